"""What the markup formats share: the roles of inline events, and which of them a unit needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Protocol

from hymt_local.segment import ProtectedSpan, Span

_UNWRITABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_MAX_WRAPS = 16
"""Layers taken off; what is wrapped more often keeps the rest."""


class Role(Enum):
    """What an event is in the text."""

    LITERAL = auto()
    SOFT_BREAK = auto()
    ATOMIC = auto()
    OPEN = auto()
    CLOSE = auto()


class Placed(Protocol):
    """A stretch of text or markup."""

    @property
    def role(self) -> Role:
        """What it is."""

    @property
    def text(self) -> str:
        """What a reader reads of it: literals, and markup that is a word of the sentence, such as code."""


def text_window(events: Sequence[Placed]) -> tuple[int, int]:
    """Return the range of events without markup at the edges that holds no text, and without what wraps all of it."""
    first, last = 0, len(events)
    for _ in range(_MAX_WRAPS):
        first += _n_textless(events, range(first, last), Role.OPEN)
        last -= _n_textless(events, range(last - 1, first - 1, -1), Role.CLOSE)
        if not _is_wrapped(events, first, last):
            break
        first, last = first + 1, last - 1
    return first, last


def has_letters(events: Iterable[Placed]) -> bool:
    """Tell whether the literals among events have something to translate."""
    return any(character.isalpha() for event in events if event.role is Role.LITERAL for character in event.text)


def unwritable(target: str) -> str | None:
    """Say in one line which character of a target no text document can hold; None for none."""
    match = _UNWRITABLE.search(target)
    return f"it holds the character U+{ord(match.group()):04X}, which is no text" if match else None


def find_marks(text: str, marks: frozenset[str]) -> list[Span]:
    """Return where these strings stand in a text, the longest at each place; in linear time however many they are."""
    if not marks:
        return []
    lengths = sorted({len(mark) for mark in marks}, reverse=True)
    first = re.compile("[" + re.escape("".join(sorted({mark[0] for mark in marks}))) + "]")
    found: list[Span] = []
    position = 0
    while match := first.search(text, position):
        start = match.start()
        length = next((len(mark) for n in lengths if (mark := text[start : start + n]) in marks), 0)
        if length:
            found.append(Span(start, start + length))
        position = start + max(length, 1)
    return found


def is_clear(text: str, protected: Sequence[ProtectedSpan]) -> bool:
    """Tell whether the protected strings are found again where they stand, and nowhere else."""
    marks = frozenset(mark.span.of(text) for mark in protected)
    return find_marks(text, marks) == [mark.span for mark in protected]


def split_at_marks(text: str, marks: frozenset[str]) -> list[tuple[str, bool]]:
    """Return the parts of a text and whether each is one of the marks; no part is empty."""
    parts: list[tuple[str, bool]] = []
    position = 0
    for span in find_marks(text, marks):
        parts += [(text[position : span.start], False), (span.of(text), True)]
        position = span.end
    parts.append((text[position:], False))
    return [part for part in parts if part[0]]


def _n_textless(events: Sequence[Placed], indexes: Iterable[int], opening: Role) -> int:
    """Return how many of the first events hold whole markup and no text; `opening` tells the direction of reading."""
    depth = n_textless = 0
    for n_read, index in enumerate(indexes, start=1):
        event = events[index]
        if event.text.strip():
            break
        if event.role in (Role.OPEN, Role.CLOSE):
            depth += 1 if event.role is opening else -1
        if depth < 0:
            break
        if depth == 0:
            n_textless = n_read
    return n_textless


def _is_wrapped(events: Sequence[Placed], first: int, last: int) -> bool:
    if last - first < 3 or events[first].role is not Role.OPEN:
        return False
    depth = 0
    for index in range(first, last):
        depth += (events[index].role is Role.OPEN) - (events[index].role is Role.CLOSE)
        if depth == 0:
            return index == last - 1
    return False
