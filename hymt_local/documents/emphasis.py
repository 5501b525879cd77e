"""The emphasis trap of CommonMark: `**真，**她` is not bold, since a closing mark after punctuation wants a space.

The rules are made for scripts with word spaces, so translation into others silently loses emphasis.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

_MARKS = frozenset({"*", "**", "_", "__", "~~"})
_BRACKETS = {
    "」": "「",
    "』": "『",
    "）": "（",
    "》": "《",
    "】": "【",
    "”": "“",
    "’": "‘",
    "»": "«",
    ")": "(",
    "]": "[",
}
_SHARED = {"_": "*", "__": "**"}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a target: literal text, or markup that stays as it is."""

    text: str
    is_markup: bool = False


def mend_emphasis(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces with their emphasis written so that it holds: punctuation and spaces moved out of the marks.

    Where nothing can be moved, markup at the inner side or half a pair of brackets, a space goes to the outer side.
    """
    texts = _alternating(pieces)
    for index in range(1, len(texts), 2):
        texts[index] = _SHARED.get(texts[index], texts[index])
    for opening, closing in _pairs(texts):
        _move_out(texts, opening, closing)
    for opening, closing in _pairs(texts):
        if _is_blocked(_inner_start(texts, opening), _outer_start(texts, opening)):
            texts[opening - 1] += " "
        if _is_blocked(_inner_end(texts, closing), _outer_end(texts, closing)):
            texts[closing + 1] = " " + texts[closing + 1]
    return [Piece(text, is_markup=bool(index % 2)) for index, text in enumerate(texts) if text]


def _alternating(pieces: Sequence[Piece]) -> list[str]:
    """Return literal, markup, literal, ... with empty literals where none stands."""
    texts = [""]
    for piece in pieces:
        if piece.is_markup:
            texts += [piece.text, ""]
        else:
            texts[-1] += piece.text
    return texts


def _pairs(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Return the emphasis marks that belong together, inner pairs first."""
    stack: list[int] = []
    pairs: list[tuple[int, int]] = []
    for index in range(1, len(texts), 2):
        if texts[index] not in _MARKS:
            continue
        if stack and texts[stack[-1]] == texts[index]:
            pairs.append((stack.pop(), index))
        else:
            stack.append(index)
    return pairs


def _move_out(texts: list[str], opening: int, closing: int) -> None:
    first, last = opening + 1, closing - 1
    kept = texts[first].lstrip()
    texts[opening - 1] += texts[first][: len(texts[first]) - len(kept)]
    texts[first] = kept
    kept = texts[last].rstrip()
    texts[closing + 1] = texts[last][len(kept) :] + texts[closing + 1]
    texts[last] = kept
    head = tail = ""
    if _is_blocked(_inner_end(texts, closing), _outer_end(texts, closing)):
        tail = _tail(texts[last])
        head = _partners(texts[first], tail)
    if not head and _is_blocked(_inner_start(texts, opening), _outer_start(texts, opening)):
        head = _head(texts[first])
    if not _can_move(texts[first : last + 1], head, tail):
        return
    texts[opening - 1] += head
    texts[first] = texts[first][len(head) :]
    texts[closing + 1] = tail + texts[closing + 1]
    texts[last] = texts[last][: len(texts[last]) - len(tail)]


def _is_blocked(inner: str, outer: str) -> bool:
    """Tell whether a mark between these two characters is no mark: punctuation inside, a letter outside."""
    return _is_punctuation(inner) and bool(outer) and not outer.isspace() and not _is_punctuation(outer)


def _is_punctuation(character: str) -> bool:
    return bool(character) and unicodedata.category(character)[0] in "PS"


def _inner_start(texts: Sequence[str], opening: int) -> str:
    return "".join(texts[opening + 1 : opening + 3])[:1]


def _outer_start(texts: Sequence[str], opening: int) -> str:
    return "".join(texts[max(opening - 2, 0) : opening])[-1:]


def _inner_end(texts: Sequence[str], closing: int) -> str:
    return "".join(texts[closing - 2 : closing])[-1:]


def _outer_end(texts: Sequence[str], closing: int) -> str:
    return "".join(texts[closing + 1 : closing + 3])[:1]


def _tail(text: str) -> str:
    kept = len(text)
    while kept and _is_punctuation(text[kept - 1]):
        kept -= 1
    return text[kept:]


def _head(text: str) -> str:
    return _tail(text[::-1])[::-1]


def _partners(text: str, tail: str) -> str:
    """Return what must leave at the front together with the closing brackets of a tail."""
    head = _head(text)
    wanted = {_BRACKETS[character] for character in tail if character in _BRACKETS}
    return head if wanted & set(head) else ""


def _can_move(inner: Sequence[str], head: str, tail: str) -> bool:
    """Tell whether something stays inside, and no pair of brackets is torn."""
    whole = "".join(inner)
    stays = whole[len(head) : len(whole) - len(tail)]
    torn = any(_BRACKETS.get(character, character) in stays for character in tail if character in _BRACKETS)
    return bool(stays.strip()) and not torn
