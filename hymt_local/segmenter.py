"""Splitting: a text into lines and sentences to translate, and an oversize one into pieces that fit.

Law of everything here: the parts joined in order are the text, and no part is cut inside a grapheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from hymt_local.literals import without_literals
from hymt_local.segment import Segment

# What str.strip() removes, and two invisible marks that a model would drop: the byte order mark, the zero width space.
_OUTER = "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    chr(code) for code in range(0x2000, 0x200C)
)


def is_passthrough(text: str) -> bool:
    """Tell whether there is nothing to translate: no letter outside of URLs, paths, placeholders, code and the like."""
    return not any(character.isalpha() for character in without_literals(text))


def split_lines(text: str) -> tuple[Segment, ...]:
    """Return one segment per line; line ends (those of `str.splitlines`) are in `trail`. Empty text has none."""
    return tuple(outer_split(index, line) for index, line in enumerate(text.splitlines(keepends=True)))


def outer_split(index: int, line: str) -> Segment:
    """Split off the outer whitespace of one line."""
    inner = line.lstrip(_OUTER)
    source = inner.rstrip(_OUTER)
    lead = line[: len(line) - len(inner)]
    return Segment(index, source, lead, inner[len(source) :], translatable=not is_passthrough(source))


class Level(IntEnum):
    """Where an oversize text may be cut, best place first."""

    SENTENCE = 0
    CLAUSE = 1
    WORD = 2
    GRAPHEME = 3


def strip_outer(text: str) -> str:
    return text.strip(_OUTER)


def split_sentences(text: str, lang: str) -> tuple[Segment, ...]:
    return split_lines(text)


def parts_at(text: str, level: Level, *, lang: str) -> list[str]:
    middle = len(text) // 2
    return [text[:middle], text[middle:]] if len(text) > 1 and level == Level.GRAPHEME else [text]


def join_segments(segments: Sequence[Segment], targets: Sequence[str], *, source_lang: str, target_lang: str) -> str:
    return "".join(s.restored(t) for s, t in zip(segments, targets, strict=True))
