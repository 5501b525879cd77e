"""What readers take for one character: where the cursor may stand in a line, and what one backspace takes away."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

_JOINERS = "\u200c\u200d"
_MARKS = range(0x300, 0x1A00)
"""Where the scripts that write vowels as marks have them."""
_SPELT = range(0x590, 0x1A00)
"""Hebrew and Arabic points, and the vowel signs of India and Southeast Asia."""


def boundary_before(line: str, column: int) -> int:
    """Return the nearest place before `column` where no character is torn; 0 at the beginning."""
    return _boundary(line, column - 1, step=-1)


def boundary_after(line: str, column: int) -> int:
    """Return the nearest place after `column` where no character is torn; the length at the end."""
    return _boundary(line, column + 1, step=1)


def boundary_at(line: str, column: int) -> int:
    """Return `column`, or the nearest place before it where no character is torn."""
    return _boundary(line, column, step=-1)


def backspaced(line: str, column: int) -> int:
    """Return where the text ends that one backspace leaves before `column`.

    A vowel sign, tone mark or part of a conjunct goes alone, as it was typed; an emoji, a flag, a Hangul syllable and a
    letter with its accents go as a whole.
    """
    start = boundary_before(line, column)
    is_spelt = any(_is_spelt(character) for character in line[start:column])
    return column - 1 if is_spelt and column > start else start


def _is_spelt(character: str) -> bool:
    """Tell whether a character is a mark with a key of its own; accents of Latin letters come before this range."""
    return ord(character) in _SPELT and unicodedata.category(character) in {"Mn", "Mc"}


def _boundary(line: str, column: int, *, step: int) -> int:
    from hymt_local.segmenter import is_grapheme_boundary  # with its tables of literals: not before the first key

    while 0 < column < len(line) and not is_grapheme_boundary(line, column):
        column += step
    return max(0, min(column, len(line)))


@cache
def word_pattern() -> re.Pattern[str]:
    """Return what matches between a word and what is none; vowel signs and joiners belong to their word."""
    marks = "".join(chr(code) for code in _MARKS if unicodedata.category(chr(code)).startswith("M"))
    word, other = rf"[\w{marks}{_JOINERS}]", rf"[^\w{marks}{_JOINERS}]"
    return re.compile(f"(?<={other})(?={word})|(?<={word})(?={other})")
