"""Protection: the parts of a text that come back character for character, hidden behind masks while a model works.

Law: for an answer that keeps every mask, `restore` gives every protected part back unchanged; for any other answer it
gives either exactly the protected parts of the source or a fault, never a lost, changed or invented one.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from hymt_local.literals import find_literals
from hymt_local.occurrences import Edges, find_bent, find_strings
from hymt_local.scripts import is_spaced, script_of
from hymt_local.segment import ProtectedSpan, Span, TokenGroup, TokenKind
from hymt_local.source_text import PLAIN_GROUPS, SourceText, is_protected, split_at_tokens

_LONGEST_MASK = 60
_OPENINGS = "<＜〈"
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
    groups: frozenset[TokenGroup] = PLAIN_GROUPS
    between: tuple[str, ...] = ()
    """The source's texts before, between and after the tokens."""

    def numbers(self) -> list[int]:
        """Return the number on the mask of each token: its place; for one that closes a pair, that of its partner."""
        if self.family is MaskFamily.XML:
            return [*range(1, len(self.tokens) + 1)]
        opened = {token.pair: place for place, token in enumerate(self.tokens, 1) if token.kind is TokenKind.OPEN}
        return [
            opened[token.pair] if token.kind is TokenKind.CLOSE else place for place, token in enumerate(self.tokens, 1)
        ]

    def masks(self) -> list[str]:
        """Return how each token looks to the model."""
        return [self._mask(token, number) for token, number in zip(self.tokens, self.numbers(), strict=True)]

    def _mask(self, token: Token, number: int) -> str:
        if self.family is MaskFamily.XML:
            return f'<{self.name} id="{number}"/>'
        if token.kind is TokenKind.ATOMIC:
            return f"<{self.name}{number}/>"
        return f"<{'/' if token.kind is TokenKind.CLOSE else ''}{self.name}{number}>"


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
    pairs = zip(between, [*masked.masks(), ""], strict=True)
    return replace(masked, text="".join(part for pair in pairs for part in pair))


def can_keep(source: SourceText) -> bool:
    """Tell whether the protected parts can be told from the rest without masks: none occurs unprotected as well."""
    masked = protect(source, family=MaskFamily.KEEP)
    if not masked.tokens:
        return True
    found = [(text, span.start) for text, span in find_strings(masked.text, _edges(masked.tokens))]
    expected: list[tuple[str, int]] = []
    position = 0
    for text, token in zip(masked.between, masked.tokens, strict=False):
        expected.append((token.text, position + len(text)))
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
        self._places = _places(masked)
        self._held = ""

    def feed(self, text: str) -> str:
        """Take new text, return what can be shown of it: the beginning of a mask is held back."""
        if not self._masked.name:
            return text
        self._held += text
        cut = max(map(self._held.rfind, _OPENINGS))
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
        if not any(opening in text for opening in _OPENINGS):
            return text
        texts, order = _located(self._masked, text, self._places)
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


# Masking


def _unwrapped(text: str, tokens: Sequence[ProtectedSpan]) -> tuple[int, int, Sequence[ProtectedSpan]]:
    """Return the range inside outer whitespace and enclosing pairs, and the tokens in it."""
    start, end, first, last = 0, len(text), 0, len(tokens) - 1
    while True:
        start, end = _stripped(text, start, end, tokens)
        if first >= last or not _encloses(tokens[first], tokens[last], start, end):
            inner = tokens[first : last + 1]
            return start, end, [span for span in inner if start <= span.span.start and span.span.end <= end]
        start, end = tokens[first].span.end, tokens[last].span.start
        first, last = first + 1, last - 1


def _encloses(first: ProtectedSpan, last: ProtectedSpan, start: int, end: int) -> bool:
    is_pair = first.kind is TokenKind.OPEN and last.kind is TokenKind.CLOSE and first.pair == last.pair
    return is_pair and first.span.start == start and last.span.end == end


def _stripped(text: str, start: int, end: int, tokens: Sequence[ProtectedSpan]) -> tuple[int, int]:
    """Leave outer whitespace out, and tokens that are nothing else; a token that only begins or ends so stays whole."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    at_start, at_end = _around(tokens, start), _around(tokens, end)
    return at_start.start if at_start else start, at_end.end if at_end else end


def _around(tokens: Sequence[ProtectedSpan], position: int) -> Span | None:
    """Return the token that a position is inside of."""
    place = bisect_left(tokens, position, key=lambda token: token.span.start) - 1
    return tokens[place].span if place >= 0 and position < tokens[place].span.end else None


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
    left, right = span.span.start, span.span.end
    while left > start and text[left - 1].isspace():
        left -= 1
    while right < end and text[right].isspace():
        right += 1
    return Token(
        span.span.of(text),
        span.kind,
        span.pair,
        before=text[left : span.span.start],
        after=text[span.span.end : right],
        left=text[max(start, left - 1) : left],
        right=text[right : min(end, right + 1)],
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


_Places = Mapping[tuple[int, bool], int]


def _located(masked: Masked, answer: str, places: _Places | None = None) -> tuple[list[str], list[int]]:
    """Return the texts of an answer between its tokens, and which token stands at each gap.

    Args:
        masked: What was asked.
        answer: The answer or a part of it.
        places: Of the masks, where they are known already.
    """
    is_kept = masked.family is MaskFamily.KEEP
    found = _kept_tokens(masked, answer) if is_kept else _masks(masked, answer, places or _places(masked))
    texts: list[str] = []
    order: list[int] = []
    position = 0
    for index, span in found:
        texts.append(answer[position : span.start])
        order.append(index)
        position = span.end
    return [*texts, answer[position:]], order


def _masks(masked: Masked, answer: str, places: _Places) -> Iterator[tuple[int, Span]]:
    pattern = _tag_pattern(masked.name) if masked.family is MaskFamily.TAGS else _xml_pattern(masked.name)
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


def _places(masked: Masked) -> _Places:
    """Return the token of each number on a mask, and whether it closes."""
    closes = (masked.family is not MaskFamily.XML and token.kind is TokenKind.CLOSE for token in masked.tokens)
    return {key: index for index, key in enumerate(zip(masked.numbers(), closes, strict=True))}


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
    waiting: dict[str, deque[int]] = {}
    for index, token in enumerate(masked.tokens):
        waiting.setdefault(token.text, deque()).append(index)
    found = list(find_strings(answer, _edges(masked.tokens)))
    counts = Counter(text for text, _ in found)
    missing = [text for text, places in waiting.items() if counts[text] < len(places)]
    if missing:
        bent = find_bent(answer, missing, [span for _, span in found])
        found = sorted([*found, *bent], key=lambda each: each[1].start)
    for text, span in found:
        places = waiting[text]
        yield (places.popleft() if len(places) > 1 else places[0]), span


def _edges(tokens: Sequence[Token]) -> dict[str, Edges]:
    """Return each different token with its edges: it counts as a whole word where it is one in the source."""
    edges: dict[str, Edges] = {}
    for token in tokens:
        first = " " if not token.before and is_spaced(token.left) else token.text[0]
        last = " " if not token.after and is_spaced(token.right) else token.text[-1]
        known = edges.get(token.text, Edges(first, last))
        edges[token.text] = Edges(min(known.first, first), min(known.last, last))
    return edges


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
        literal.text for text in texts for literal in find_literals(text, groups) if text and is_protected(literal)
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
