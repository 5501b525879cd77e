"""Where given strings stand in a text: exactly, or bent as models bend what they should copy. In linear time."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from hymt_local.scripts import whole_word
from hymt_local.segment import Span

MOST_BENT = 32
"""Strings that are looked for in a bent shape; an answer that bends more of them is beyond mending."""
LONGEST_BENT = 500
"""Characters of one of them: each place of a text may be compared with most of it."""
_NO_EDGE = " "


@dataclass(frozen=True, slots=True)
class Edges:
    """The characters that decide whether a string is a part of a longer word; a space for an edge that is none."""

    first: str = _NO_EDGE
    last: str = _NO_EDGE


def find_strings(text: str, strings: Mapping[str, Edges]) -> Iterator[tuple[str, Span]]:
    """Yield where strings stand, in order and without overlap, the longest at each place; none of them is empty."""
    if not strings:
        return
    lengths = sorted({len(string) for string in strings}, reverse=True)
    beginning = re.compile("[" + re.escape("".join(sorted({string[0] for string in strings}))) + "]")
    position = 0
    while match := beginning.search(text, position):
        start = match.start()
        found = _longest_at(text, start, lengths, strings)
        if found:
            yield found, Span(start, start + len(found))
        position = start + max(1, len(found))


def find_bent(text: str, strings: Sequence[str], taken: Sequence[Span]) -> Iterator[tuple[str, Span]]:
    """Yield strings with spaces in them, in the other case, or in full width, where nothing else is found.

    Args:
        text: Where to look.
        strings: What is missing; nothing is found of too many.
        taken: Spans of what was found, in order and without overlap.
    """
    if len(strings) > MOST_BENT:
        return
    occupied = list(taken)
    for string in strings:
        if not 2 <= len(string) <= LONGEST_BENT or any(map(str.isspace, string)):
            continue
        bent = r"\s?".join(map(_bent_character, string)) + r"(?!\w)"
        free = [
            span for match in re.finditer(bent, text, re.IGNORECASE) if _is_free(span := Span(*match.span()), occupied)
        ]
        yield from ((string, span) for span in free)
        occupied = sorted([*occupied, *free], key=lambda span: span.start)


def _longest_at(text: str, start: int, lengths: Sequence[int], strings: Mapping[str, Edges]) -> str:
    for length in lengths:
        string = text[start : start + length]
        edges = strings.get(string)
        if edges is not None and _is_whole(text, start, start + length, edges):
            return string
    return ""


def _is_whole(text: str, start: int, end: int, edges: Edges) -> bool:
    before = _edge(edges.first, _NO_EDGE).match(text, start)
    return before is not None and _edge(_NO_EDGE, edges.last).match(text, end) is not None


@cache
def _edge(first: str, last: str) -> re.Pattern[str]:
    return re.compile(whole_word("", first=first, last=last))


def _is_free(span: Span, occupied: Sequence[Span]) -> bool:
    place = bisect_left(occupied, span.end, key=lambda other: other.start)
    return place == 0 or occupied[place - 1].end <= span.start


def _bent_character(character: str) -> str:
    wide = chr(ord(character) + 0xFEE0) if "!" <= character <= "~" else ""
    return f"[{re.escape(character)}{wide}]"
