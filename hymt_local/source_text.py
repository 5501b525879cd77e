"""A text to translate and what is protected in it: the given spans, those the grammar finds, the user's words."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import msgspec

from hymt_local.literals import Literal, find_literals
from hymt_local.scripts import whole_word
from hymt_local.segment import NO_GUIDANCE, Guidance, ProtectedSpan, Span, TokenGroup, TokenKind, UnitText

_UNMASKED_KINDS = frozenset({"entity"})
"""Found by the grammar but left to the model: an ampersand may well become the word `and`."""
PLAIN_GROUPS = frozenset({TokenGroup.TEXT})


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text to translate with its protected spans settled; two equal ones have the same translation."""

    text: str
    tokens: tuple[ProtectedSpan, ...] = ()
    """In order, without overlap."""
    groups: frozenset[TokenGroup] = PLAIN_GROUPS
    context: tuple[str, ...] = ()
    guidance: Guidance = NO_GUIDANCE

    @property
    def words(self) -> str:
        """The text with a space in place of each token."""
        return without_tokens(self.text, self.tokens)

    @property
    def is_plain(self) -> bool:
        """True when nothing but the text itself shapes its translation."""
        is_alone = not self.context and self.guidance == NO_GUIDANCE
        return is_alone and not self.tokens and self.groups == PLAIN_GROUPS

    def part(self, start: int, end: int) -> SourceText:
        """Return the text of a range that cuts no token; a pair that is cut becomes two atomic tokens."""
        first = bisect_left(self.tokens, start, key=lambda token: token.span.start)
        after = bisect_right(self.tokens, end, key=lambda token: token.span.end)
        inside = self.tokens[first:after]
        ends = Counter(token.pair for token in inside if token.kind is not TokenKind.ATOMIC)
        moved = [
            msgspec.structs.replace(
                token if ends[token.pair] == 2 else ProtectedSpan(token.span),
                span=Span(token.span.start - start, token.span.end - start),
            )
            for token in inside
        ]
        return replace(self, text=self.text[start:end], tokens=tuple(moved))

    def parts(self, texts: Sequence[str]) -> list[SourceText]:
        """Return the parts that these texts are; joined, they are the text, and none ends inside a token."""
        ends = accumulate(map(len, texts))
        return [self.part(end - len(text), end) for text, end in zip(texts, ends, strict=True)]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text that was split at its tokens."""

    text: str
    is_token: bool


def split_at_tokens(text: str, tokens: Sequence[ProtectedSpan]) -> list[Piece]:
    """Cut a text into its tokens and what stands between them; joined they are the text. No piece is empty."""
    pieces: list[Piece] = []
    position = 0
    for token in tokens:
        pieces += (Piece(text[position : token.span.start], False), Piece(token.span.of(text), True))
        position = token.span.end
    return [piece for piece in [*pieces, Piece(text[position:], False)] if piece.text]


def without_tokens(text: str, tokens: Sequence[ProtectedSpan]) -> str:
    """Return a text with a space in place of each token."""
    if not tokens:
        return text
    return " ".join(piece.text for piece in split_at_tokens(text, tokens) if not piece.is_token)


def tokens_of(unit: UnitText, *, words: Sequence[str] = ()) -> tuple[ProtectedSpan, ...]:
    """Return all protected spans of a unit: the given ones, those of its token groups, and the user's words.

    Args:
        unit: Its own spans win where others overlap them.
        words: Names and terms that stay as they are, longest first; matched exactly, as whole words.
    """
    found = _paired(_literals_between(unit.text, unit.protected, unit.groups))
    spans = [*found, *_found_words(unit.text, words)] if words else found
    if not unit.protected:
        return tuple(_without_overlaps(spans)) if words else tuple(spans)
    return tuple(_without_overlaps([*unit.protected, *spans], first=len(unit.protected)))


# Finding


def _literals_between(text: str, given: Sequence[ProtectedSpan], groups: frozenset[TokenGroup]) -> list[Literal]:
    """Find what the grammar knows in each text between the given spans, as if it stood alone."""
    found: list[Literal] = []
    position = 0
    for end, after in [*((token.span.start, token.span.end) for token in given), (len(text), len(text))]:
        part = text[position:end] if position or end < len(text) else text
        for literal in find_literals(part, groups) if part else ():
            if is_protected(literal):
                span = Span(literal.span.start + position, literal.span.end + position)
                found.append(Literal(literal.kind, literal.text, span))
        position = after
    return found


def is_protected(literal: Literal) -> bool:
    """Tell whether a model may not change it."""
    return literal.kind not in _UNMASKED_KINDS


def _paired(literals: Sequence[Literal]) -> list[ProtectedSpan]:
    """Return literals as spans; a tag and the tag that closes it are a pair, a tag without partner is atomic."""
    partners: dict[int, tuple[TokenKind, int]] = {}
    opened: list[tuple[str, int]] = []
    n_opened: Counter[str] = Counter()
    for index, literal in enumerate(literals):
        if literal.kind != "tag" or literal.text.endswith("/>"):
            continue
        name = _tag_name(literal.text)
        closed = name.removeprefix("/")
        if name == closed:
            opened.append((name, index))
            n_opened[name] += 1
        elif n_opened[closed]:
            start = _popped(opened, n_opened, closed)
            partners[start] = (TokenKind.OPEN, start + 1)
            partners[index] = (TokenKind.CLOSE, start + 1)
    return [
        ProtectedSpan(literal.span, *partners.get(index, (TokenKind.ATOMIC, 0)))
        for index, literal in enumerate(literals)
    ]


def _popped(opened: list[tuple[str, int]], n_opened: Counter[str], name: str) -> int:
    """Take the last tag of a name, and those opened in it that are never closed, such as <br>; return its place."""
    while True:
        each, index = opened.pop()
        n_opened[each] -= 1
        if each == name:
            return index


def _tag_name(tag: str) -> str:
    """Return `b` for `<b class='x'>` and `/b` for `</b>`."""
    return re.split(r"[\s.>]", tag[1:], maxsplit=1)[0]


def _found_words(text: str, words: Sequence[str]) -> list[ProtectedSpan]:
    wanted = sorted({word for word in words if word and word in text}, key=len, reverse=True)
    pattern = "|".join(_as_whole_word(word) for word in wanted)
    return [ProtectedSpan(Span(*match.span())) for match in re.finditer(pattern, text)] if pattern else []


def _as_whole_word(word: str) -> str:
    return whole_word(re.escape(word), first=word[0], last=word[-1])


def _without_overlaps(spans: Sequence[ProtectedSpan], *, first: int = 0) -> list[ProtectedSpan]:
    """Keep the first `first` spans, and of the others those that overlap none kept; a half pair becomes atomic."""
    kept = list(spans[:first])
    given = sorted((each.span.start, each.span.end) for each in kept)
    starts, reach = [start for start, _ in given], list(accumulate((end for _, end in given), max))
    end = 0
    for span in sorted(spans[first:], key=lambda each: (each.span.start, -each.span.end)):
        n_before = bisect_left(starts, span.span.end)
        if span.span.start >= end and (n_before == 0 or reach[n_before - 1] <= span.span.start):
            kept.append(msgspec.structs.replace(span, pair=-span.pair) if span.pair else span)
            end = span.span.end
    ends = Counter(span.pair for span in kept if span.kind is not TokenKind.ATOMIC)
    whole = [span if ends[span.pair] == 2 else ProtectedSpan(span.span) for span in kept]
    return sorted(whole, key=lambda each: each.span.start)
