"""Protection: the parts of a text that come back character for character, hidden behind masks while a model works.

Law: for an answer that keeps every mask, `restore` gives every protected part back unchanged; for any other answer it
gives either exactly the protected parts of the source or a fault, never a lost, changed or invented one.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate, pairwise

from hymt_local.literals import Literal, find_literals
from hymt_local.scripts import is_spaced, script_of, whole_word
from hymt_local.segment import ProtectedSpan, Span, TokenGroup, TokenKind, UnitText

_UNMASKED_KINDS = frozenset({"entity"})
"""Found by the grammar but left to the model: an ampersand may well become the word `and`."""
_PLAIN_GROUPS = frozenset({TokenGroup.TEXT})
_LONGEST_MASK = 60
_FIRST_STRONG_ISOLATE, _POP_ISOLATE = "\u2068", "\u2069"
_ISOLATES = frozenset("\u2066\u2067\u2068\u2069")
_WORDLIKE = re.compile(r"[^\W\d_]{2}|[\u2e80-\u9fff]")
_LOOSE_CONVERSION = re.compile(r"%[-+#0 ]*[\d.*]*[hlLqjzt]*[a-zA-Z@]")
"""A conversion without a position or a name: it takes its value by its order."""


class MaskFamily(StrEnum):
    """How protected parts look to the model."""

    KEEP = "keep"
    """As they are."""
    TAGS = "tags"
    """`<s1>...</s1>` and `<s2/>`, in the template of the model generation that was trained on them."""
    XML = "xml"
    """`<x id="1"/>`."""
    SPLIT = "split"
    """Not at all: the texts between them are translated one by one."""


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text to translate with its protected spans settled; two equal ones have the same translation."""

    text: str
    tokens: tuple[ProtectedSpan, ...] = ()
    """In order, without overlap."""
    groups: frozenset[TokenGroup] = _PLAIN_GROUPS
    context: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The text with a space in place of each token."""
        return without_tokens(self.text, self.tokens)

    @property
    def is_plain(self) -> bool:
        """True when nothing but the text itself shapes its translation."""
        return not self.tokens and not self.context and self.groups == _PLAIN_GROUPS

    def part(self, start: int, end: int) -> SourceText:
        """Return the text of a range that cuts no token; a pair that is cut becomes two atomic tokens."""
        inside = [token for token in self.tokens if start <= token.span.start and token.span.end <= end]
        ends = Counter(token.pair for token in inside if token.kind is not TokenKind.ATOMIC)
        moved = [
            replace(
                token if ends[token.pair] == 2 else ProtectedSpan(token.span),
                span=Span(token.span.start - start, token.span.end - start),
            )
            for token in inside
        ]
        return replace(self, text=self.text[start:end], tokens=tuple(moved))


@dataclass(frozen=True, slots=True)
class Token:
    """One protected part as it stands in the source."""

    text: str
    kind: TokenKind = TokenKind.ATOMIC
    pair: int = 0
    before: str = ""
    """Whitespace in front of it."""
    after: str = ""
    left: str = ""
    """The character before that whitespace; empty at the beginning."""
    right: str = ""


@dataclass(frozen=True, slots=True)
class Masked:
    """A source text as a model sees it, and what is needed to restore the answer."""

    text: str
    lead: str
    """Before the answer, unchanged: outer whitespace, and tokens that enclose everything else."""
    trail: str
    tokens: tuple[Token, ...]
    """In order."""
    family: MaskFamily
    name: str = ""
    """What the masks are called; it does not occur in the source."""
    groups: frozenset[TokenGroup] = _PLAIN_GROUPS
    between: tuple[str, ...] = ()
    """The source's texts before, between and after the tokens."""

    def mask(self, index: int) -> str:
        """Return how one token looks to the model."""
        token = self.tokens[index]
        if self.family is MaskFamily.XML:
            return f'<{self.name} id="{index + 1}"/>'
        if self.family is MaskFamily.KEEP:
            return token.text
        number = index + 1 if token.kind is TokenKind.ATOMIC else self._opening(index) + 1
        if token.kind is TokenKind.ATOMIC:
            return f"<{self.name}{number}/>"
        return f"<{'/' if token.kind is TokenKind.CLOSE else ''}{self.name}{number}>"

    def _opening(self, index: int) -> int:
        """Return the place of the token that opens the pair of this one."""
        wanted = (TokenKind.OPEN, self.tokens[index].pair)
        return next(place for place, token in enumerate(self.tokens) if (token.kind, token.pair) == wanted)


@dataclass(frozen=True, slots=True)
class Restored:
    """An answer with every protected part in place."""

    text: str
    is_repaired: bool = False
    """A part that the model had lost was put back at the edge of the text where it stood in the source."""


@dataclass(frozen=True, slots=True)
class MaskFault:
    """Why an answer cannot be restored."""

    message: str
    """One line."""


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


def protect(source: SourceText, *, family: MaskFamily) -> Masked:
    """Hide the protected spans of a text.

    Args:
        source: Any text.
        family: Not SPLIT; see `split_at_tokens` for that.
    """
    text = source.text
    start, end, inner = _unwrapped(text, source.tokens)
    core = text[start:end]
    spans = _merged(inner)
    parts = [_token(text, span, start, end) for span in spans]
    edges = [start, *(edge for span in spans for edge in (span.span.start, span.span.end)), end]
    between = tuple(text[edges[i] : edges[i + 1]] for i in range(0, len(edges), 2))
    masked = Masked(core, text[:start], text[end:], tuple(parts), family, groups=source.groups, between=between)
    if family is MaskFamily.KEEP or not parts:
        return masked
    masked = replace(masked, name=_free_name(core, family))
    masks = [*map(masked.mask, range(len(parts))), ""]
    return replace(masked, text="".join(part for pair in zip(between, masks, strict=True) for part in pair))


def can_keep(source: SourceText) -> bool:
    """Tell whether the protected parts can be told from the rest without masks: none occurs unprotected as well."""
    masked = protect(source, family=MaskFamily.KEEP)
    if not masked.tokens:
        return True
    found = [(match.start(), match.group()) for match in _alternatives(masked.tokens).finditer(masked.text)]
    expected: list[tuple[int, str]] = []
    position = 0
    for text, token in zip(masked.between, masked.tokens, strict=False):
        expected.append((position + len(text), token.text))
        position += len(text) + len(token.text)
    return found == expected


def restore(masked: Masked, answer: str) -> Restored | MaskFault:
    """Put the protected parts back into an answer.

    Masks are recognized in the shapes that models bend them to. What is lost is put back only where its place is
    certain: at the edge of the text where it stood in the source.

    Args:
        masked: From `protect`.
        answer: What the model made of `masked.text`.
    """
    if not masked.tokens:
        fault = _invented(masked, [answer])
        return fault or Restored(f"{masked.lead}{answer}{masked.trail}")
    texts, order = _located(masked, answer)
    texts, order, is_repaired = _reattached(masked, texts, order)
    fault = _count_fault(masked.tokens, order) or _order_fault(masked.tokens, texts, order) or _invented(masked, texts)
    if fault is not None:
        return fault
    parts = _respaced(texts, [masked.tokens[index] for index in order])
    return Restored("".join([masked.lead, *parts, masked.trail]), is_repaired)


class MaskStream:
    """Restores an answer while it arrives, for the eye only: `restore` has the last word."""

    def __init__(self, masked: Masked) -> None:
        self._masked = masked
        self._held = ""

    def feed(self, text: str) -> str:
        """Take new text, return what can be shown of it: the beginning of a mask is held back."""
        if not self._masked.name:
            return text
        self._held += text
        cut = max(self._held.rfind(opening) for opening in "<＜〈")
        is_open = cut >= 0 and not any(closing in self._held[cut:] for closing in ">＞〉")
        if not is_open or len(self._held) - cut > _LONGEST_MASK:
            cut = len(self._held)
        shown, self._held = self._held[:cut], self._held[cut:]
        return self._restored(shown)

    def finish(self) -> str:
        """Return what was held back."""
        shown, self._held = self._held, ""
        return self._restored(shown)

    def _restored(self, text: str) -> str:
        if not self._masked.name:
            return text
        texts, order = _located(self._masked, text)
        tokens = [self._masked.tokens[index].text for index in order]
        return "".join(part for pair in zip(texts, [*tokens, ""], strict=True) for part in pair)


def carried_over(source: SourceText, text: str) -> SourceText | None:
    """Return a restored translation as a source of its own, with the same protected spans at their new places.

    Args:
        source: What was translated.
        text: Its translation, every protected part in it.

    Returns:
        None when a protected part cannot be told from other text.
    """
    wanted = [_token(source.text, span, 0, len(source.text)) for span in source.tokens]
    masked = Masked(source.text, "", "", tuple(wanted), MaskFamily.KEEP)
    found = list(_kept_tokens(masked, text)) if wanted else []
    if Counter(index for index, _ in found) != Counter(range(len(wanted))):
        return None
    spans = [ProtectedSpan(span, wanted[index].kind, wanted[index].pair) for index, span in found]
    return SourceText(text, tuple(spans), source.groups)


def isolated(source: SourceText, target: str) -> str:
    """Return a translation with each atomic token between marks that keep its direction apart from the text's.

    A token that has such marks already, or cannot be told from other text, stays as it is.
    """
    carried = carried_over(source, target)
    if carried is None or _ISOLATES & set(target):
        return target
    pieces = split_at_tokens(target, [token for token in carried.tokens if token.kind is TokenKind.ATOMIC])
    marks = {True: (_FIRST_STRONG_ISOLATE, _POP_ISOLATE), False: ("", "")}
    return "".join(f"{marks[piece.is_token][0]}{piece.text}{marks[piece.is_token][1]}" for piece in pieces)


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


# Finding


def _literals_between(text: str, given: Sequence[ProtectedSpan], groups: frozenset[TokenGroup]) -> list[Literal]:
    """Find what the grammar knows in each text between the given spans, as if it stood alone."""
    found: list[Literal] = []
    position = 0
    for end, after in [*((token.span.start, token.span.end) for token in given), (len(text), len(text))]:
        part = text[position:end] if position or end < len(text) else text
        for literal in find_literals(part, groups) if part else ():
            if _is_protected(literal):
                span = Span(literal.span.start + position, literal.span.end + position)
                found.append(Literal(literal.kind, literal.text, span))
        position = after
    return found


def _is_protected(literal: Literal) -> bool:
    return literal.kind not in _UNMASKED_KINDS


def _paired(literals: Sequence[Literal]) -> list[ProtectedSpan]:
    """Return literals as spans; a tag and the tag that closes it are a pair, a tag without partner is atomic."""
    partners: dict[int, tuple[TokenKind, int]] = {}
    opened: list[tuple[str, int]] = []
    for index, literal in enumerate(literals):
        if literal.kind != "tag" or literal.text.endswith("/>"):
            continue
        name = tag_name(literal.text)
        if not name.startswith("/"):
            opened.append((name, index))
        elif opened and opened[-1][0] == name[1:]:
            _, start = opened.pop()
            partners[start] = (TokenKind.OPEN, start + 1)
            partners[index] = (TokenKind.CLOSE, start + 1)
        elif any(each == name[1:] for each, _ in opened):  # tags inside that are never closed, such as <br>
            while opened[-1][0] != name[1:]:
                opened.pop()
            _, start = opened.pop()
            partners[start] = (TokenKind.OPEN, start + 1)
            partners[index] = (TokenKind.CLOSE, start + 1)
    return [
        ProtectedSpan(literal.span, *partners.get(index, (TokenKind.ATOMIC, 0)))
        for index, literal in enumerate(literals)
    ]


def tag_name(tag: str) -> str:
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
            kept.append(replace(span, pair=-span.pair) if span.pair else span)
            end = span.span.end
    ends = Counter(span.pair for span in kept if span.kind is not TokenKind.ATOMIC)
    whole = [span if ends[span.pair] == 2 else ProtectedSpan(span.span) for span in kept]
    return sorted(whole, key=lambda each: each.span.start)


# Masking


def _unwrapped(text: str, tokens: Sequence[ProtectedSpan]) -> tuple[int, int, Sequence[ProtectedSpan]]:
    """Return the range inside outer whitespace and enclosing pairs, and the tokens in it."""
    start, end, inner = 0, len(text), list(tokens)
    while True:
        start, end = _stripped(text, start, end, inner)
        if len(inner) < 2 or not _encloses(inner, start, end):
            return start, end, [span for span in inner if start <= span.span.start and span.span.end <= end]
        start, end = inner[0].span.end, inner[-1].span.start
        inner = inner[1:-1]


def _encloses(tokens: Sequence[ProtectedSpan], start: int, end: int) -> bool:
    first, last = tokens[0], tokens[-1]
    is_pair = first.kind is TokenKind.OPEN and last.kind is TokenKind.CLOSE and first.pair == last.pair
    return is_pair and first.span.start == start and last.span.end == end


def _stripped(text: str, start: int, end: int, tokens: Sequence[ProtectedSpan]) -> tuple[int, int]:
    """Leave outer whitespace out, and tokens that are nothing else; a token that only begins or ends so stays whole."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    for token in tokens:
        if token.span.start < start < token.span.end:
            start = token.span.start
        if token.span.start < end < token.span.end:
            end = token.span.end
    return start, end


def _merged(tokens: Sequence[ProtectedSpan]) -> list[ProtectedSpan]:
    """Join atomic tokens that touch: one mask is easier to keep than two."""
    merged: list[ProtectedSpan] = []
    for token in tokens:
        last = merged[-1] if merged else None
        if last and last.span.end == token.span.start and last.kind is token.kind is TokenKind.ATOMIC:
            merged[-1] = ProtectedSpan(Span(last.span.start, token.span.end))
        else:
            merged.append(token)
    return merged


def _token(text: str, span: ProtectedSpan, start: int, end: int) -> Token:
    before = text[start : span.span.start]
    after = text[span.span.end : end]
    left, right = before.rstrip(), after.lstrip()
    return Token(
        span.span.of(text),
        span.kind,
        span.pair,
        before=before[len(left) :],
        after=after[: len(after) - len(right)],
        left=left[-1:],
        right=right[:1],
    )


def _free_name(text: str, family: MaskFamily) -> str:
    """Return a name that no tag in the text could be mistaken for."""
    lowered = text.casefold()
    names = ("s", "t", "u", "w", "z") if family is MaskFamily.TAGS else ("x", "ph", "mk", "tok")
    for name in names:
        if not re.search(rf"[<＜]\s*/?\s*{name}\s*(?:\d|id)", lowered):
            return name
    number = 1
    while f"q{number}x" in lowered:
        number += 1
    return f"q{number}x"


# Restoring


def _located(masked: Masked, answer: str) -> tuple[list[str], list[int]]:
    """Return the texts of an answer between its tokens, and which token stands at each gap."""
    found = _kept_tokens(masked, answer) if masked.family is MaskFamily.KEEP else _masks(masked, answer)
    texts: list[str] = []
    order: list[int] = []
    position = 0
    for index, span in found:
        texts.append(answer[position : span.start])
        order.append(index)
        position = span.end
    return [*texts, answer[position:]], order


def _masks(masked: Masked, answer: str) -> Iterator[tuple[int, Span]]:
    pattern = _tag_pattern(masked.name) if masked.family is MaskFamily.TAGS else _xml_pattern(masked.name)
    places = _places(masked)
    previous: tuple[int, int] | None = None
    seen: set[int] = set()
    for match in pattern.finditer(answer):
        number = int(match["number"])
        is_closing = bool(match["slash"])
        index = places.get((number, is_closing), places.get((number, False)))
        if index in seen:  # the slash of the closing mask was lost
            index = places.get((number, True), index)
        if index is None:
            continue
        is_atomic = masked.tokens[index].kind is TokenKind.ATOMIC
        if is_atomic and previous == (index, match.start()):  # `<s2></s2>` for `<s2/>`
            previous = None
            continue
        previous = (index, match.end())
        seen.add(index)
        yield index, Span(*match.span())


def _places(masked: Masked) -> dict[tuple[int, bool], int]:
    """Return the token of each number on a mask, and whether it closes."""
    places: dict[tuple[int, bool], int] = {}
    for index, token in enumerate(masked.tokens):
        if masked.family is MaskFamily.XML or token.kind is not TokenKind.CLOSE:
            places[index + 1, False] = index
        else:
            opening = next(i for i, t in enumerate(masked.tokens) if t.kind is TokenKind.OPEN and t.pair == token.pair)
            places[opening + 1, True] = index
    return places


def _any_width(name: str) -> str:
    """Match a name in either case, and in the full width that Chinese and Japanese answers give it."""
    return "".join(f"[{c}{c.upper()}{chr(ord(c) + 0xFEE0)}{chr(ord(c.upper()) + 0xFEE0)}]\\s*" for c in name)


def _xml_pattern(name: str) -> re.Pattern[str]:
    quote = r"[\"'“”„«»‘’＂＇]?"
    return re.compile(
        rf"[<＜〈]\s*(?P<slash>[/／])?\s*{_any_width(name)}{_any_width('id')}[=＝]\s*{quote}\s*(?P<number>\d{{1,6}})\s*"
        rf"{quote}\s*[/／]?\s*[>＞〉]"
    )


def _tag_pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"[<＜〈]\s*(?P<slash>[/／])?\s*{_any_width(name)}(?P<number>\d{{1,6}})\s*[/／]?\s*[>＞〉]")


def _kept_tokens(masked: Masked, answer: str) -> Iterator[tuple[int, Span]]:
    """Find the tokens themselves: exactly, and those that are missing then in a bent shape."""
    waiting: dict[str, list[int]] = {}
    for index, token in enumerate(masked.tokens):
        waiting.setdefault(token.text, []).append(index)
    found = [(match.group(), Span(*match.span())) for match in _alternatives(masked.tokens).finditer(answer)]
    counts = Counter(text for text, _ in found)
    missing = [text for text, places in waiting.items() if counts[text] < len(places)]
    if missing:
        found = sorted([*found, *_bent(answer, missing, [span for _, span in found])], key=lambda each: each[1].start)
    for text, span in found:
        places = waiting[text]
        yield (places.pop(0) if len(places) > 1 else places[0]), span


def _alternatives(tokens: Sequence[Token]) -> re.Pattern[str]:
    """Match any of the tokens, as a whole word where it is one in the source."""
    edges: dict[str, tuple[str, str]] = {}
    for token in tokens:
        first = " " if not token.before and is_spaced(token.left) else token.text[0]
        last = " " if not token.after and is_spaced(token.right) else token.text[-1]
        known = edges.get(token.text, (first, last))
        edges[token.text] = (min(known[0], first), min(known[1], last))
    ordered = sorted(edges, key=len, reverse=True)
    return re.compile("|".join(whole_word(re.escape(t), first=edges[t][0], last=edges[t][1]) for t in ordered))


def _bent(answer: str, missing: Sequence[str], taken: Sequence[Span]) -> Iterator[tuple[str, Span]]:
    """Find tokens with spaces in them, in the other case, or in full width."""
    occupied = list(taken)
    for text in missing:
        if len(text) < 2 or any(character.isspace() for character in text):
            continue
        for match in re.finditer(r"\s?".join(_bent_character(c) for c in text) + r"(?!\w)", answer, re.IGNORECASE):
            span = Span(*match.span())
            if all(span.end <= other.start or other.end <= span.start for other in occupied):
                occupied.append(span)
                yield text, span


def _bent_character(character: str) -> str:
    wide = chr(ord(character) + 0xFEE0) if "!" <= character <= "~" else ""
    return f"[{re.escape(character)}{wide}]"


def _reattached(masked: Masked, texts: list[str], order: list[int]) -> tuple[list[str], list[int], bool]:
    """Put lost tokens back at the edges of the answer, when they stood at that edge of the source."""
    tokens = masked.tokens
    lost = set(range(len(tokens))) - set(order)
    if not lost or len(order) != len(set(order)) or any(_may_be_there(masked, index) for index in lost):
        return texts, order, False
    leading = [index for index in _edge(tokens) if index in lost]
    trailing = [index for index in _edge(tokens, from_end=True) if index in lost]
    if lost != set(leading) | set(trailing) or set(leading) & set(trailing):
        return texts, order, False
    return (
        ["" for _ in leading] + texts + ["" for _ in trailing],
        [*leading, *order, *trailing],
        True,
    )


def _may_be_there(masked: Masked, index: int) -> bool:
    """Tell whether a token that was not found may stand in the answer all the same, translated."""
    return masked.family is MaskFamily.KEEP and _WORDLIKE.search(masked.tokens[index].text) is not None


def _edge(tokens: Sequence[Token], *, from_end: bool = False) -> list[int]:
    """Return the tokens at one edge of the source with nothing but whitespace before (or after) them, in order."""
    places = list(range(len(tokens)))
    edge: list[int] = []
    for index in reversed(places) if from_end else places:
        token = tokens[index]
        beyond = token.right if from_end else token.left
        neighbour = tokens[edge[-1]].text if edge else ""
        is_outermost = beyond == "" or (edge and beyond == (neighbour[:1] if from_end else neighbour[-1:]))
        if not is_outermost:
            break
        edge.append(index)
    return edge[::-1] if from_end else edge


def _count_fault(tokens: Sequence[Token], order: Sequence[int]) -> MaskFault | None:
    wanted, found = Counter(range(len(tokens))), Counter(order)
    if wanted == found:
        return None
    lost = [tokens[index].text for index in (wanted - found).elements()]
    added = [tokens[index].text for index in (found - wanted).elements()]
    words = [f"lost {text}" for text in lost] + [f"added {text}" for text in added]
    return MaskFault(f"placeholders, tags, addresses or code differ: {', '.join(words)}")


def _order_fault(tokens: Sequence[Token], texts: Sequence[str], order: Sequence[int]) -> MaskFault | None:
    opened: list[int] = []
    for index in order:
        token = tokens[index]
        if token.kind is TokenKind.OPEN:
            opened.append(token.pair)
        elif token.kind is TokenKind.CLOSE and (not opened or opened.pop() != token.pair):
            return MaskFault(f"{token.text} is in the wrong place")
    if empty := next(_emptied(tokens, texts, order), None):
        return MaskFault(f"{empty} is around nothing")
    values = [token.text for token in tokens if _LOOSE_CONVERSION.fullmatch(token.text)]
    if values != [tokens[index].text for index in order if _LOOSE_CONVERSION.fullmatch(tokens[index].text)]:
        return MaskFault(f"the order of {', '.join(values)} has changed")
    return None


def _emptied(tokens: Sequence[Token], texts: Sequence[str], order: Sequence[int]) -> Iterator[str]:
    """Yield the opening tokens whose pair holds nothing, though it holds something in the source."""
    for place, (index, following) in enumerate(pairwise(order)):
        first, second = tokens[index], tokens[following]
        is_pair = first.kind is TokenKind.OPEN and second.kind is TokenKind.CLOSE and first.pair == second.pair
        if is_pair and not texts[place + 1].strip() and not (following == index + 1 and first.right == second.text[:1]):
            yield first.text


def _invented(masked: Masked, texts: Sequence[str]) -> MaskFault | None:
    """Find masks and tokens in the rest of an answer that the source does not have there."""
    rest = "\n".join(texts)
    if masked.name and re.search(rf"[<＜〈]\s*[/／]?\s*{_any_width(masked.name)}(?:\d|[iｉI]|[>＞〉])", rest):
        return MaskFault("the answer has a mask that stands for nothing")
    found = _unprotected(texts, masked.groups)
    added = found - _unprotected(masked.between, masked.groups) if found else found
    return MaskFault(f"placeholders, tags, addresses or code differ: added {', '.join(added)}") if added else None


def _unprotected(texts: Sequence[str], groups: frozenset[TokenGroup]) -> Counter[str]:
    return Counter(
        literal.text for text in texts for literal in find_literals(text, groups) if text and _is_protected(literal)
    )


def _respaced(texts: Sequence[str], tokens: Sequence[Token]) -> list[str]:
    """Return texts and tokens in turn, with the whitespace beside each token as it is in the source."""
    spaced = list(texts)
    spaced[0], spaced[-1] = spaced[0].lstrip(), spaced[-1].rstrip()
    for place, token in enumerate(tokens):
        spaced[place] = _respaced_end(spaced[place], token)
        spaced[place + 1] = _respaced_start(spaced[place + 1], token)
    parts = [spaced[0]]
    for token, text in zip(tokens, spaced[1:], strict=True):
        parts += (token.text, text)
    return parts


def _respaced_end(text: str, token: Token) -> str:
    inner = text.rstrip()
    found, beside = text[len(inner) :], inner[-1:]
    if token.kind is TokenKind.CLOSE and beside and "\n" not in found + token.before:
        return inner + token.before
    is_lost = bool(token.before) and not found and _runs_into_token(inner)
    return inner + _space(found, token.before, is_lost=is_lost, is_same=beside == token.left)


def _respaced_start(text: str, token: Token) -> str:
    inner = text.lstrip()
    found, beside = text[: len(text) - len(inner)], inner[:1]
    if token.kind is TokenKind.OPEN and beside and "\n" not in found + token.after:
        return token.after + inner
    is_lost = bool(token.after) and not found and _is_of_spaced_words(beside)
    return _space(found, token.after, is_lost=is_lost, is_same=beside == token.right) + inner


def _space(found: str, recorded: str, *, is_lost: bool, is_same: bool) -> str:
    """Return the whitespace for one side of a token: the source's, where the answer gives no reason for another.

    Args:
        found: In the answer.
        recorded: In the source.
        is_lost: Without whitespace, a word would run into the token.
        is_same: Source and answer have the same character there.
    """
    if "\n" in found + recorded:
        return found
    if (found and recorded) or is_lost:
        return recorded
    return "" if is_same and not recorded else found


def _runs_into_token(inner: str) -> bool:
    """Tell whether a text before a token should end in a space; Arabic and Hebrew write some words without one."""
    if inner and script_of(inner[-1]) in {"Arab", "Hebr"}:
        return inner[-2:-1].isalpha()
    return _is_of_spaced_words(inner[-1:])


def _is_of_spaced_words(character: str) -> bool:
    """Tell whether a word with this character never touches a token; other scripts have endings that do."""
    return character.isdigit() or (character.isalpha() and script_of(character) in {"Latn", "Cyrl"})
