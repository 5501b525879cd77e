"""A text as several that are translated one by one: where it is cut, and how their answers become one again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from hymt_local.engine.base import Engine
from hymt_local.events import TokenUsage
from hymt_local.generation.answer import Answer
from hymt_local.generation.asking import Direction
from hymt_local.segment import Segment
from hymt_local.segmenter import Level, join_segments, parts_at
from hymt_local.source_parts import is_token, packed_to, uncut
from hymt_local.source_text import SourceText

_FULL_STOPS = frozenset(".。།။።۔")


def sentences_of(source: SourceText, source_lang: str) -> list[SourceText]:
    """Cut a text at the ends of its sentences, never inside a token."""
    texts = parts_at(source.text, Level.SENTENCE, lang=source_lang)
    whole = [text for text, _ in uncut([(text, 0) for text in texts], source.tokens)]
    return [replace(part, context=()) for part in source.parts(whole)]


async def fitting_parts(engine: Engine, source: SourceText, *, lang: str, budget: int) -> list[SourceText]:
    """Cut a text into parts of at most `budget` tokens, as large and at ends as natural as can be.

    What cannot be cut, a character or a protected part, stays longer.
    """
    counted = await _split(engine, source.text, Level.SENTENCE, lang=lang, budget=budget)
    return source.parts(packed_to(uncut(counted, source.tokens), budget=budget))


async def _split(engine: Engine, text: str, level: Level, *, lang: str, budget: int) -> list[tuple[str, int]]:
    """Return parts of `text` with their token counts, each within the budget unless it cannot be cut further."""
    parts = parts_at(text, level, lang=lang)
    counts = [len(ids) for ids in await engine.tokenize(parts)]
    fitting: list[tuple[str, int]] = []
    for part, count in zip(parts, counts, strict=True):
        if count <= budget or (level is Level.GRAPHEME and len(parts) == 1):
            fitting.append((part, count))
        else:
            fitting += await _split(engine, part, Level(min(level + 1, Level.GRAPHEME)), lang=lang, budget=budget)
    return fitting


def joined(
    source: SourceText,
    parts: Sequence[SourceText],
    pieces: Sequence[Segment],
    answers: Sequence[Answer],
    *,
    direction: Direction,
) -> Answer:
    """Return the answer to the whole; the last answer may be the error that ended it.

    Args:
        source: The whole.
        parts: Joined, their texts are its text.
        pieces: The parts without their outer whitespace.
        answers: To the pieces, one each but for those after an error.
        direction: The languages.
    """
    usage = sum((answer.usage for answer in answers), TokenUsage())
    findings = tuple(finding for answer in answers for finding in answer.findings)
    attempts = tuple(attempt for answer in answers for attempt in answer.attempts)
    if answers[-1].error:
        return replace(answers[-1], target=source.text, usage=usage, attempts=attempts)
    target = _join(parts, pieces, answers, direction=direction)
    is_storable = all(answer.is_storable for answer in answers)
    return Answer(target, usage, findings=findings, is_storable=is_storable, attempts=attempts)


def _join(
    parts: Sequence[SourceText], pieces: Sequence[Segment], answers: Sequence[Answer], *, direction: Direction
) -> str:
    """Join texts as the target language asks, and tokens to them as the source does."""
    languages = {"source_lang": direction.source_lang, "target_lang": direction.target_lang}
    texts: list[str] = []
    for each_is_token, run in groupby(zip(parts, pieces, answers, strict=True), key=lambda each: is_token(each[0])):
        _, segments, targets = zip(*run, strict=True)
        if each_is_token:
            texts += [segment.restored(answer.target) for segment, answer in zip(segments, targets, strict=True)]
        else:
            texts.append(join_segments(segments, [answer.target for answer in targets], **languages))
    return "".join(texts)


def without_added_stop(piece: Segment, target: str) -> str:
    """Drop the full stop that a model adds to a part of a sentence that has none."""
    if piece.source[-1:].isalnum() and target[-1:] in _FULL_STOPS and target[-2:-1].isalnum():
        return target[:-1]
    return target
