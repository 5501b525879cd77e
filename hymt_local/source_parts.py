"""How a source text becomes parts that a model can take: which masks it may have, where it is cut and joined."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import msgspec

from hymt_local.catalog import ModelSpec
from hymt_local.prompts import Formatted, has_task
from hymt_local.protect import MaskFamily, can_keep
from hymt_local.segment import ProtectedSpan, Segment, TokenKind
from hymt_local.segmenter import outer_split, split_sentences
from hymt_local.source_text import SourceText, split_at_tokens

_MARKS_AROUND = re.compile(
    r"([\s,;:)\]}»”’\"'–—/|·•*_=+>，、；：）」』】-]*)(.*?)([\s,;:(\[{«“‘\"'–—/|·•*_=+<，、；：（「『【-]*)", re.DOTALL
)


def mask_families(spec: ModelSpec, source: SourceText) -> tuple[MaskFamily, ...]:
    """Return how a text may be masked for a model, the first choice first and SPLIT last.

    A demo model knows whole phrases and no masks. What is in the text for the reader (an address, a file name) is left
    to the model first, because it needs it to understand the sentence; markup is not.
    """
    if spec.kind == "demo":
        has_parts = bool(source.tokens) or len(split_sentences(source.text, "und")) > 1
        return (MaskFamily.SPLIT,) if has_parts else (MaskFamily.KEEP,)
    if not source.tokens:
        return (MaskFamily.KEEP,)
    if spec.kind == "test":
        return (MaskFamily.XML, MaskFamily.SPLIT)
    first = MaskFamily.TAGS if has_task(spec, Formatted.name) else MaskFamily.XML
    has_pairs = any(token.kind is not TokenKind.ATOMIC for token in source.tokens)
    if not can_keep(source):
        return (first, MaskFamily.SPLIT)
    order = (first, MaskFamily.KEEP) if has_pairs else (MaskFamily.KEEP, first)
    return (*order, MaskFamily.SPLIT)


def split_parts(spec: ModelSpec, source: SourceText, *, source_lang: str) -> list[SourceText]:
    """Return a text cut at its tokens, and into sentences for a model that takes only those."""
    texts: list[str] = []
    for piece in split_at_tokens(source.text, source.tokens):
        if piece.is_token:
            texts.append(piece.text)
            continue
        for text in _apart_from_marks(piece.text) if source.tokens else [piece.text]:
            sentences = split_sentences(text, source_lang) if spec.unit == "sentence" else ()
            texts += [sentence.restored(sentence.source) for sentence in sentences] or [text]
    ends = accumulate(map(len, texts))
    return [replace(source.part(end - len(text), end), context=()) for text, end in zip(texts, ends, strict=True)]


def asked_of_model(spec: ModelSpec, source: SourceText, *, source_lang: str) -> list[str]:
    """Return what a model is asked to translate of a text in the first attempt, part by part."""
    if MaskFamily.SPLIT is not mask_families(spec, source)[0]:
        return [source.text]
    parts = [piece_of(0, part) for part in split_parts(spec, source, source_lang=source_lang)]
    return [piece.source for piece in parts if piece.translatable]


def _apart_from_marks(text: str) -> list[str]:
    """Cut off the punctuation that joins a text to the tokens beside it; the words between it are a phrase."""
    match = _MARKS_AROUND.fullmatch(text)
    return [part for part in match.groups() if part] if match else [text]


def piece_of(index: int, part: SourceText) -> Segment:
    """Return a part without its outer whitespace; what has no words outside its tokens stays as it is."""
    piece = outer_split(index, part.text)
    has_words = any(map(str.isalpha, part.words))
    return piece if has_words else msgspec.structs.replace(piece, translatable=False)


def is_token(part: SourceText) -> bool:
    """Tell whether a part is one token and nothing else."""
    return len(part.tokens) == 1 and len(part.tokens[0].span.of(part.text)) == len(part.text)


def uncut(counted: Sequence[tuple[str, int]], tokens: Sequence[ProtectedSpan]) -> list[tuple[str, int]]:
    """Join parts that were cut inside a token."""
    whole: list[tuple[str, int]] = []
    by_start = deque(sorted((token.span for token in tokens), key=lambda span: span.start))
    position = end_of_tokens = 0
    for text, count in counted:
        while by_start and by_start[0].start < position:
            end_of_tokens = max(end_of_tokens, by_start.popleft().end)
        if whole and position < end_of_tokens:
            whole[-1] = (whole[-1][0] + text, whole[-1][1] + count)
        else:
            whole.append((text, count))
        position += len(text)
    return whole


def packed_to(counted: Sequence[tuple[str, int]], *, budget: int) -> list[str]:
    """Join neighbours as long as their tokens stay within the budget."""
    packed: list[str] = []
    room = 0
    for text, count in counted:
        if packed and count <= room:
            packed[-1] += text
            room -= count
        else:
            packed.append(text)
            room = budget - count
    return packed
