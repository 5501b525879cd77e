"""What is protected comes back: exactly, or not at all with a fault; never lost, changed or doubled."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hymt_local.protect import (
    MaskFamily,
    MaskFault,
    MaskStream,
    Restored,
    can_keep,
    carried_over,
    protect,
    restore,
)
from hymt_local.segment import ProtectedSpan, Span, TokenGroup, TokenKind, UnitText
from hymt_local.source_parts import uncut
from hymt_local.source_text import SourceText, split_at_tokens, tokens_of

GROUPS = frozenset({TokenGroup.TEXT})
MASKING = [MaskFamily.XML, MaskFamily.TAGS, MaskFamily.KEEP]
WORDS = [
    "Save",
    "the",
    "file",
    "now",
    "好",
    "文件",
    "é",
    ",",
    ".",
    "!",
    "100",
    "(",
    ")",
    "⟦0⟧",
    "s1",
    "x id",
    "<3",
    "a<b",
    "&",
]
TOKENS = [
    "%s",
    "%1$d",
    "{name}",
    "{{count}}",
    "<br/>",
    "https://a.example/b",
    "`x = 1`",
    "__PH_0__",
    '<x id="1"/>',
    "$HOME",
]


@st.composite
def sources(draw: st.DrawFn) -> SourceText:
    """Return a text with literals of its own, given spans and given pairs."""
    parts: list[str] = []
    spans: list[ProtectedSpan] = []
    opened: list[int] = []
    for number in range(draw(st.integers(1, 8))):
        parts.append(draw(st.sampled_from(["", " ", "\n", "\u00a0"])))
        position = sum(map(len, parts))
        match draw(st.integers(0, 4)):
            case 0:
                parts.append(draw(st.sampled_from(TOKENS)))
            case 1:
                parts.append(draw(st.sampled_from(["**", "@@", "Bob", "<i>", "\n"])))
                spans.append(ProtectedSpan(Span(position, position + len(parts[-1]))))
            case 2:
                opened.append(number + 1)
                parts.append("[[")
                spans.append(ProtectedSpan(Span(position, position + 2), TokenKind.OPEN, number + 1))
            case 3 if opened:
                parts.append("]]")
                spans.append(ProtectedSpan(Span(position, position + 2), TokenKind.CLOSE, opened.pop()))
            case _:
                parts.append(draw(st.sampled_from(WORDS)))
    while opened:
        position = sum(map(len, parts))
        parts.append("]]")
        spans.append(ProtectedSpan(Span(position, position + 2), TokenKind.CLOSE, opened.pop()))
    unit = UnitText("".join(parts), tuple(spans), GROUPS)
    return SourceText(unit.text, tokens_of(unit), GROUPS)


def texts_of(source: SourceText) -> Counter[str]:
    return Counter(token.span.of(source.text) for token in source.tokens)


@given(sources(), st.sampled_from(MASKING))
@settings(max_examples=100)
def test_p_3_an_answer_that_keeps_every_mask_restores_the_source(source: SourceText, family: MaskFamily) -> None:
    assume(family is not MaskFamily.KEEP or can_keep(source))
    masked = protect(source, family=family)
    restored = restore(masked, masked.text)
    assert restored == Restored(source.text)


@given(sources(), st.sampled_from([MaskFamily.XML, MaskFamily.TAGS]))
def test_p_3_masks_do_not_occur_in_the_source(source: SourceText, family: MaskFamily) -> None:
    masked = protect(source, family=family)
    masks = masked.masks()
    assert len(masks) == len(masked.tokens)
    for mask in masks:
        assert mask not in source.text
        assert masked.text.count(mask) == 1


def bend(text: str, name: str, how: Callable[[str], str]) -> str:
    return re.sub(rf"</?{name}[^<>]*>", lambda match: how(match.group()), text)


BENDS: dict[str, Callable[[str], str]] = {
    "upper case": str.upper,
    "spaces": lambda mask: mask.replace("<", "< ").replace("/>", " / >"),
    "full width": lambda mask: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in mask),
    "Arabic digits": lambda mask: "".join(chr(0x660 + int(c)) if c.isdigit() else c for c in mask),
    "no quotes": lambda mask: mask.replace('"', ""),
    "curly quotes": lambda mask: mask.replace('"', "”"),
    "no slash": lambda mask: mask.replace("/>", ">"),
}


@pytest.mark.parametrize("bent", BENDS, ids=str)
@given(source=sources(), family=st.sampled_from([MaskFamily.XML, MaskFamily.TAGS]))
@settings(max_examples=25)
def test_p_4_bent_masks_are_recognized(bent: str, source: SourceText, family: MaskFamily) -> None:
    masked = protect(source, family=family)
    if masked.name:
        assert restore(masked, bend(masked.text, masked.name, BENDS[bent])) == Restored(source.text)


MANGLINGS: tuple[Callable[[str, random.Random], str], ...] = (
    lambda text, rng: text[: rng.randrange(len(text) + 1)],
    lambda text, rng: text[rng.randrange(len(text) + 1) :],
    lambda text, rng: text + text,
    lambda text, rng: "".join(rng.sample(re.split(r"(<[^<>]*>|\s+)", text), k=len(re.split(r"(<[^<>]*>|\s+)", text)))),
    lambda text, rng: re.sub(r"<[^<>]*>", "", text, count=1),
    lambda text, rng: re.sub(r"\d", lambda match: str((int(match[0]) + 1) % 10), text),
    lambda text, rng: f"{text} %s {{name}} <b>x</b>",
    lambda text, rng: f"Note: {text}",
    lambda text, rng: text.replace("name", "nom").replace("%", "percent"),
    lambda text, rng: text.swapcase(),
    lambda text, rng: "".join(c for c in text if rng.random() > 0.1),
)


@given(sources(), st.sampled_from(MASKING), st.sampled_from(MANGLINGS), st.integers(0, 2**16))
@settings(max_examples=200)
def test_p_4_any_mangling_gives_exact_tokens_or_a_fault(
    source: SourceText, family: MaskFamily, mangle: Callable[[str, random.Random], str], seed: int
) -> None:
    assume(family is not MaskFamily.KEEP or can_keep(source))
    masked = protect(source, family=family)
    restored = restore(masked, mangle(masked.text, random.Random(seed)))
    if isinstance(restored, MaskFault):
        assert restored.message
        return
    found = carried_over(source, restored.text)
    for text, count in texts_of(source).items():
        assert restored.text.count(text) >= count, text
    if found is not None:
        assert texts_of(found) == texts_of(source)
        is_nested(found)


def is_nested(source: SourceText) -> None:
    opened: list[int] = []
    for token in source.tokens:
        if token.kind is TokenKind.OPEN:
            opened.append(token.pair)
        elif token.kind is TokenKind.CLOSE:
            assert opened.pop() == token.pair
    assert opened == []


@given(sources(), st.sampled_from(MASKING), st.text(max_size=60))
def test_p_4_any_answer_at_all_is_taken(source: SourceText, family: MaskFamily, answer: str) -> None:
    assert isinstance(restore(protect(source, family=family), answer), Restored | MaskFault)


@given(sources())
def test_p_5_the_parts_at_the_tokens_joined_are_the_text(source: SourceText) -> None:
    pieces = split_at_tokens(source.text, source.tokens)
    assert "".join(piece.text for piece in pieces) == source.text
    assert [piece.text for piece in pieces if piece.is_token] == [t.span.of(source.text) for t in source.tokens]


@given(sources(), st.integers(1, 7))
def test_the_stream_shows_the_restored_text(source: SourceText, size: int) -> None:
    masked = protect(source, family=MaskFamily.XML)
    stream = MaskStream(masked)
    shown = [stream.feed(masked.text[start : start + size]) for start in range(0, len(masked.text), size)]
    assert masked.lead + "".join(shown) + stream.finish() + masked.trail == source.text


@given(sources(), st.data())
def test_a_part_of_a_source_protects_what_lies_in_it(source: SourceText, data: st.DataObject) -> None:
    cuts = [
        place
        for place in range(len(source.text) + 1)
        if not any(t.span.start < place < t.span.end for t in source.tokens)
    ]
    start, end = sorted(data.draw(st.tuples(st.sampled_from(cuts), st.sampled_from(cuts))))
    part = source.part(start, end)
    assert part.text == source.text[start:end]
    for token in part.tokens:
        assert token.span.of(part.text) == source.text[start + token.span.start : start + token.span.end]
    is_nested(part)


def test_p_2_a_token_that_ends_in_whitespace_is_not_torn() -> None:
    source = SourceText("Save this \n", (ProtectedSpan(Span(5, 10)),), GROUPS)
    masked = protect(source, family=MaskFamily.XML)
    assert (masked.text, masked.trail) == ('Save <x id="1"/>', "\n")
    assert restore(masked, "Rien") == Restored("Rien this \n", is_repaired=True)


def test_p_3_what_also_stands_there_unprotected_cannot_do_without_a_mask() -> None:
    text = "%s\n%s\n %s%s"
    spans = (ProtectedSpan(Span(5, 6)),)
    assert not can_keep(SourceText(text, tokens_of(UnitText(text, spans, GROUPS)), GROUPS))
    assert not can_keep(SourceText("Bob met Bob", (ProtectedSpan(Span(0, 3)),), GROUPS))
    assert can_keep(SourceText("Bob met Bobby", (ProtectedSpan(Span(0, 3)),), GROUPS))


@given(st.lists(st.text("ab c", min_size=1, max_size=4), max_size=8), st.text("ab c", max_size=40))
@settings(max_examples=100)
def test_words_to_keep_never_overlap_each_other_or_given_spans(words: list[str], text: str) -> None:
    given_spans = (ProtectedSpan(Span(1, 3)),) if len(text) > 2 else ()
    found = tokens_of(UnitText(text, given_spans), words=words)
    assert all(before.span.end <= after.span.start for before, after in pairwise(found))
    assert set(given_spans) <= set(found)
    assert {text[each.span.start : each.span.end] for each in found if each not in given_spans} <= set(words)


def test_many_words_to_keep_and_many_of_them_in_the_text_cost_little() -> None:
    words = [f"w{number}" for number in range(10_000)]
    started = time.perf_counter()
    assert len(tokens_of(UnitText("w1 b " * 20_000), words=words)) == 20_000
    assert time.perf_counter() - started < 5.0


@given(
    st.lists(st.text("ab", max_size=4), max_size=8),
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), max_size=4),
)
def test_parts_are_joined_where_a_token_was_cut_and_nowhere_else(
    parts: list[str], places: list[tuple[int, int]]
) -> None:
    tokens = [ProtectedSpan(Span(start, start + length)) for start, length in places]
    expected: list[str] = []
    position = 0
    for part in parts:
        if expected and any(token.span.start < position < token.span.end for token in tokens):
            expected[-1] += part
        else:
            expected.append(part)
        position += len(part)
    assert [text for text, _ in uncut([(part, 1) for part in parts], tokens)] == expected
