"""Where a line may be broken: a small part of UAX 14, for scripts without spaces and the punctuation of East Asia.

Textual 8.2 breaks at spaces, and within a word anywhere. Here no row begins with a closing mark or a small kana, none
ends with an opening one, letters and ideographs part from each other, and no mark leaves its letter.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.cells import get_character_cell_size
from textual._wrap import compute_wrap_offsets
from textual.document import _wrapped_document

_NEVER_FIRST = frozenset(
    "。，、．：；！？）］｝」』】〉》〗〙〕’”…‥ー～·・々〻％‰℃"
    "ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ"
    ".,:;!?)]}%»›།༎၊။។៕៖॥।"
)
_NEVER_LAST = frozenset("（［｛「『【〈《〖〘〔‘“([{«‹$￥￡＄")
_TSHEG = "\u0f0b"
_AFTER = frozenset({"\u200b", "\u00ad", "-", "\u2010", _TSHEG, "\u3000"})
_JOINERS = frozenset({"\u200d", "\u2060", "\u00a0", "\u202f"})
_WIDE = frozenset({"W", "F"})


def line_breaks(text: str, width: int, tab_size: int = 4, **given: Any) -> list[int]:
    """Return the positions at which a line is broken to fit into so many cells.

    Args:
        text: One line.
        width: Cells of a row.
        tab_size: Cells between tab stops; lines with tabs are broken as Textual does.
        given: What Textual has computed already.
    """
    if "\t" in text or width < 2:
        return compute_wrap_offsets(text, width, tab_size, **given)
    if len(text) <= width // 2:
        return []  # not even wide characters could fill the row
    breaks: list[int] = []
    start, opportunity, used = 0, 0, 0
    widths = [get_character_cell_size(character) for character in text]
    for index, cells in enumerate(widths):
        if index > start and may_break(text, index):
            opportunity = index
        used += cells
        while used > width and cells:  # a second time where marks that may not begin a row are too many for one
            start = opportunity if opportunity > start else _cluster_start(text, index, least=start)
            breaks.append(start)
            used = sum(widths[start : index + 1])
    return breaks


def may_break(text: str, index: int) -> bool:
    """Tell whether a row may end before this position."""
    before, after = text[index - 1], text[index]
    if _is_mark(after) or before in _JOINERS or after in _JOINERS or after in _NEVER_FIRST or before in _NEVER_LAST:
        return False
    if after.isspace():
        return False
    if before.isspace() or before in _AFTER:
        return True
    return _is_ideographic(before) or _is_ideographic(after)


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) in {"Mn", "Mc", "Me"} or "\U0001f3fb" <= character <= "\U0001f3ff"


def _is_ideographic(character: str) -> bool:
    """Tell whether a row may be broken on both sides of a character: Han, kana, emoji; Hangul has spaces."""
    is_hangul = "\uac00" <= character <= "\ud7a3"
    return unicodedata.east_asian_width(character) in _WIDE and not is_hangul


def _cluster_start(text: str, index: int, *, least: int) -> int:
    """Return where the letter begins whose mark may stand at this position; never so far back that nothing is left."""
    position = index
    while position > least + 1 and (_is_mark(text[position]) or text[position - 1] in _JOINERS):
        position -= 1
    return position if position > least + 1 or not _is_mark(text[index]) else index


@contextmanager
def unicode_line_breaks() -> Iterator[None]:
    """Break the lines of all text areas this way while the block runs."""
    names = vars(_wrapped_document)
    original = names["compute_wrap_offsets"]
    names["compute_wrap_offsets"] = line_breaks
    try:
        yield
    finally:
        names["compute_wrap_offsets"] = original
