"""Shims around the widgets of Textual 8.2 and Rich 15, each to be dropped when upstream does the same.

- cell widths as this terminal measures them, instead of one table for all;
- a text area that keeps joiners and wide spaces typed key by key, and whose rows cannot disturb their neighbours.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager

import rich.cells
from rich._unicode_data import load as load_cell_table
from rich.cells import CellTable, cell_len
from rich.segment import Segment
from rich.text import Text
from textual.strip import Strip
from textual.widgets import TextArea

from hymt_local.sanitize import sanitize
from hymt_local.tui.bidi import has_rtl, is_rtl, mirrored, shaped, visual_order
from hymt_local.tui.terminal import CellWidths, Terminal

TYPED_CHARACTERS = frozenset(
    "\u200c\u200d\u200e\u200f\u2066\u2067\u2068\u2069\u00ad\u3000\u00a0\u202f\u2007\u2009\u2060\u200b"
)
"""Joiners, direction marks and special spaces that keyboards of several languages send.

TextArea inserts only what `str.isprintable` accepts, which leaves them out.
"""

_LINE_SEPARATORS = str.maketrans("\r\u2028\u2029", "\n\n\n")
_LRM = "\u200e"
_WORD_JOINER = "\u2060"  # takes no cell anywhere and does nothing: it stands in for what must not reach the terminal
_BIDI_MASK = dict.fromkeys(range(0x202A, 0x202F), _WORD_JOINER) | dict.fromkeys(range(0x2066, 0x206A), _WORD_JOINER)
_SKIN_TONE_MASK = dict.fromkeys(range(0x1F3FB, 0x1F400), _WORD_JOINER)
_JOINED_EMOJI = re.compile("\u200d[\u2600-\u27bf\U0001f000-\U0001faff]\ufe0f?")


def clean(text: str) -> str:
    """Return text as a pane may hold it: sanitized, and with LF as the only line end that TextArea knows."""
    return sanitize(text.replace("\r\n", "\n").translate(_LINE_SEPARATORS))


@contextmanager
def cell_widths_as(widths: CellWidths | None) -> Iterator[None]:
    """Measure text as the terminal does while the block runs; None leaves Rich's table in force."""
    if widths is None:
        yield
        return
    table = _cell_table(widths)
    names = vars(rich.cells)
    original = names["load_cell_table"]
    names["load_cell_table"] = lambda unicode_version="auto": table
    _forget_measurements()
    try:
        yield
    finally:
        names["load_cell_table"] = original
        _forget_measurements()


def _forget_measurements() -> None:
    rich.cells.get_character_cell_size.cache_clear()
    rich.cells.cached_cell_len.cache_clear()


def _cell_table(widths: CellWidths) -> CellTable:
    """Return Rich's newest table with spacing marks and the emoji selector as measured."""
    table = load_cell_table("latest")
    ranges = list(table.widths)
    if widths.spacing_mark_cells:
        ranges = [part for entry in table.widths for part in _without_spacing_marks(*entry)]
    return CellTable(
        table.unicode_version, ranges, table.narrow_to_wide if widths.widens_emoji_selector else frozenset()
    )


def _without_spacing_marks(start: int, end: int, width: int) -> Iterator[tuple[int, int, int]]:
    """Split a range around characters of category Mc: what no range names takes one cell."""
    if width:
        yield (start, end, width)
        return
    first: int | None = None
    for code in range(start, end + 1):
        if unicodedata.category(chr(code)) == "Mc":
            if first is not None:
                yield (first, code - 1, 0)
            first = None
        elif first is None:
            first = code
    if first is not None:
        yield (first, end, 0)


class TextPane(TextArea):
    """A text area whose rows are safe beside others: what is drawn may differ from the text, never in length.

    Args:
        terminal: Decides what is masked and whether rows are fenced.
        placeholder: Shown while the pane is empty; plain text.
        read_only: True for text that only the program changes.
        id: As for every widget.
    """

    def __init__(self, terminal: Terminal, *, placeholder: str, read_only: bool, id: str) -> None:  # noqa: A002
        super().__init__(
            placeholder=placeholder, read_only=read_only, show_cursor=True, highlight_cursor_line=False, id=id
        )
        self.cursor_blink = False  # a blinking cursor repaints twice a second, over a network too
        self._terminal = terminal

    def get_line(self, line_index: int) -> Text:
        """Return one line of the document as it may be drawn."""
        return Text(masked(self.document.get_line(line_index), self._terminal), end="", no_wrap=True)

    def render_line(self, y: int) -> Strip:
        """Return one row; a terminal that reorders rows is told to keep this one apart from its neighbours."""
        strip = super().render_line(y)
        if self._terminal.rtl == "terminal":
            return fenced(strip)
        is_reordered = self._terminal.rtl == "visual" and self.read_only and has_rtl(strip.text)
        return in_visual_order(strip) if is_reordered else strip


def masked(line: str, terminal: Terminal) -> str:
    """Replace what would disturb the row by something invisible of the same length.

    Direction controls lose their partner when a line wraps, and emoji that the terminal does not join take more cells
    than their base.
    """
    line = line.translate(_BIDI_MASK)
    widths = terminal.cell_widths
    if widths is None:
        return line
    if not widths.joins_skin_tone:
        line = line.translate(_SKIN_TONE_MASK)
    if not widths.joins_emoji:
        line = _JOINED_EMOJI.sub(lambda match: _WORD_JOINER * len(match.group()), line)
    return line


def in_visual_order(strip: Strip) -> Strip:
    """Return a row as it is to be seen, for a terminal that draws every character where it arrives.

    A row that begins from right to left stands at the right edge. Styles follow their characters, cursor and selection
    with them.
    """
    cells = [(character, segment.style) for segment in strip if not segment.control for character in segment.text]
    text = "".join(character for character, _ in cells)
    n_shown = len(text.rstrip(" "))
    row = text[:n_shown]
    is_base_rtl = is_rtl(row)
    drawn = mirrored(shaped(row), is_base_rtl=is_base_rtl)
    ordered = [(drawn[position], cells[position][1]) for position in visual_order(row, is_base_rtl=is_base_rtl)]
    n_saved = strip.cell_length - cell_len(drawn) - (len(text) - n_shown)  # a ligature takes one cell for two
    padding = [*cells[n_shown:], *[(" ", cells[-1][1])] * n_saved]
    moved = [*padding, *ordered] if is_base_rtl else [*ordered, *padding]
    return Strip([Segment(character, style) for character, style in moved], strip.cell_length).simplify()


def fenced(strip: Strip) -> Strip:
    """Put a left-to-right mark at each end: a right-to-left row is then reordered within itself only."""
    fence = Segment(_LRM)
    return Strip([fence, *strip, fence], strip.cell_length)
