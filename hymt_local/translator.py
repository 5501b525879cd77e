"""From one request to its events: detect, split, look up, generate, check, join. It owns no thread and no lock."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol

from hymt_local.catalog import ModelSpec
from hymt_local.coverage import Coverage
from hymt_local.detect import Detection, LanguageDetector
from hymt_local.engine.base import Engine, ModelInfo
from hymt_local.errors import (
    EmptyInputError,
    EngineLoadError,
    EngineUnavailableError,
    HymtError,
    InputEncodingError,
    LanguageError,
    ModelError,
    UnsupportedModelError,
    UsageError,
)
from hymt_local.events import (
    Event,
    Failed,
    Finished,
    ModelLoading,
    Origin,
    SamplingParams,
    SegmentDone,
    Started,
    TokenUsage,
    TranslationRequest,
)
from hymt_local.generation import (
    Answer,
    Direction,
    Emit,
    Prepared,
    SegmentGenerator,
    asked_of_model,
    not_covered,
    shown,
)
from hymt_local.language import match_language
from hymt_local.literals import without_literals
from hymt_local.memory.phrase_cache import CachedPhrase
from hymt_local.prompts import Context, has_task, template_signature
from hymt_local.protect import SourceText, tokens_of
from hymt_local.segment import Segment, UnitText
from hymt_local.segmenter import join_segments, split_lines, split_sentences
from hymt_local.signature import Signature, shaped_digest

UNDETERMINED = "und"
"""The source language of a text without a word in it (BCP 47)."""

SEGMENTS_IN_FLIGHT = 48
"""Segments of one job given to the engine at once: more than any engine decodes together on a laptop."""
_PREPARED_TOGETHER = 256
_SAMPLE_CHARACTERS = 8000
"""More text than the detector looks at."""


class PhraseStore(Protocol):
    """Where verified translations are remembered; `memory.phrase_cache` is the real one."""

    def get(self, signature: str, source: str) -> CachedPhrase | None:
        """Return what is stored under a signature digest, or None."""

    def edited(self, source: str, *, source_lang: str, target_lang: str) -> str | None:
        """Return the target that a person has given to a source, or None."""

    def put(self, signature: str, source: str, *, target: str) -> None:
        """Remember one verified translation."""


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A model ready to be used: its weights are read by the engine when they are first needed."""

    spec: ModelSpec
    engine: Engine
    coverage: Coverage | None = None
    """The closed domain of a demo model; None for a model that translates anything."""
    fingerprint: str = ""
    """sha256 of the model file, known without loading it; for test engines their id."""
    quantization: str = ""

    @property
    def name(self) -> str:
        """The reference a user types."""
        return f"{self.spec.id}:{self.quantization}" if self.spec.kind == "translation" else self.spec.id


@dataclass(frozen=True, slots=True)
class _Plan:
    """A request that has been understood."""

    request: TranslationRequest
    source_lang: str
    target_lang: str
    detection: Detection | None
    segments: tuple[Segment, ...]
    sources: tuple[SourceText, ...]
    """What the segments' source texts protect, one each."""
    sampling: SamplingParams
    signature: Signature
    digest: str

    def digest_of(self, source: SourceText) -> str:
        """Return the cache's key for one source text: protected spans and context shape its translation too."""
        if source.is_plain:
            return self.digest
        shape = (
            [(token.span.start, token.span.end, token.kind.value, token.pair) for token in source.tokens],
            sorted(source.groups),
            source.context,
        )
        return shaped_digest(self.digest, shape)

    @property
    def is_identity(self) -> bool:
        """True when there is nothing to do: no words, or they are in the target language already."""
        return self.source_lang in {UNDETERMINED, self.target_lang}


@dataclass(frozen=True, slots=True)
class _Group:
    """All segments with one source text: it is generated once."""

    source: SourceText
    indexes: tuple[int, ...]

    @property
    def index(self) -> int:
        """The segment that shows progress."""
        return self.indexes[0]


class Translator:
    """Translates with one model. Belongs to one asyncio loop; many requests may run at once.

    Args:
        model: The model; its engine is loaded by the first request that needs it.
        cache: Remembers verified translations; None remembers nothing.
        detector: Shared between translators, since it loads its data once.
    """

    def __init__(
        self, model: OpenModel, *, cache: PhraseStore | None = None, detector: LanguageDetector | None = None
    ) -> None:
        self._model = model
        self._cache = cache
        self._detector = detector or LanguageDetector()

    @property
    def model(self) -> OpenModel:
        """The model it was built with."""
        return self._model

    async def run(self, request: TranslationRequest) -> AsyncGenerator[Event, None]:
        """Yield the events of one request; the last is Finished or Failed. Closing the iterator cancels the work."""
        try:
            async with aclosing(self._run(request)) as events:
                async for event in events:
                    yield event
        except HymtError as error:
            yield Failed(error.report())

    async def _run(self, request: TranslationRequest) -> AsyncGenerator[Event, None]:
        started_at = time.perf_counter()
        plan = await asyncio.to_thread(self._plan, request)  # splitting and detecting a long text take a while
        yield self._started(plan)
        settled: dict[int, SegmentDone] = {}
        for done in self._settle_without_engine(plan):
            settled[done.segment] = done
            yield done
        groups = _group(plan.sources, [index for index in range(len(plan.sources)) if index not in settled])
        if groups:
            async with aclosing(_relay(lambda emit: self._generate_all(plan, groups, emit))) as events:
                async for event in events:
                    if isinstance(event, SegmentDone):
                        settled[event.segment] = event
                    yield event
        yield self._last(plan, settled, elapsed_s=time.perf_counter() - started_at)

    def foresee(self, request: TranslationRequest) -> tuple[Origin, ...]:
        """Say of each segment where its target would come from now; nothing is loaded or generated.

        Raises:
            UsageError: as `run` would refuse the request.
        """
        plan = self._plan(request)
        known = {done.segment: done.origin for done in self._settle_without_engine(plan)}
        return tuple(known.get(segment.index, Origin.MODEL) for segment in plan.segments)

    # Understanding the request

    def _plan(self, request: TranslationRequest) -> _Plan:
        """Validate, detect and split.

        Raises:
            UsageError: empty or undecodable text, unknown or unsupported language.
        """
        _check_texts(request)
        spec = self._model.spec
        target_lang = match_language(request.target_lang, supported=spec.languages)
        units = tuple(map(self._unit_source, request.units))
        texts = _segments_of(units) if units else split_lines(request.text)
        detection = self._detect(texts, units) if request.source_lang is None else None
        if request.source_lang is None:
            source_lang = detection.tag if detection else UNDETERMINED
        else:
            source_lang = match_language(request.source_lang, supported=spec.languages)
        if not units and spec.unit == "sentence":
            texts = split_sentences(request.text, source_lang)
        sampling = request.sampling or spec.sampling.greedy_params()
        signature = self._sign(sampling, source_lang=source_lang, target_lang=target_lang)
        return _Plan(
            request=request,
            source_lang=source_lang,
            target_lang=target_lang,
            detection=detection,
            segments=texts,
            sources=units or tuple(_line_source(segment) for segment in texts),
            sampling=sampling,
            signature=signature,
            digest=signature.digest(),
        )

    def _unit_source(self, unit: UnitText) -> SourceText:
        """Settle what a unit protects; context that the model cannot be shown shapes nothing."""
        context = unit.context if has_task(self._model.spec, Context.name) else ()
        return SourceText(unit.text, tokens_of(unit), unit.groups, context)

    def _detect(self, segments: Sequence[Segment], units: Sequence[SourceText]) -> Detection | None:
        """Return None when there is nothing to translate; refuse a text whose language cannot be told."""
        texts = (unit.words for unit in units) if units else (segment.source for segment in segments)
        words = _sample(text for text, segment in zip(texts, segments, strict=True) if segment.translatable)
        detection = self._detector.detect(words, supported=self._model.spec.languages) if words else None
        if detection is None and sum(character.isalpha() for character in without_literals(words)) > 1:
            raise LanguageError(
                f"cannot tell the language of {shown(words)!r}",
                hint="name it (`-f LANG`); `hymt languages` lists what the models speak",
            )
        return self._within_domain(words, detection) if detection else None

    def _identify(self, text: str) -> tuple[str, float] | None:
        found = self._detector.detect(text)
        return (found.tag, found.confidence) if found else None

    def _within_domain(self, words: str, detection: Detection) -> Detection:
        """Let a closed domain decide where it can: its short phrases are too short for statistics."""
        coverage = self._model.coverage
        if coverage is None or self._covers(coverage, words, detection.tag):
            return detection
        preferred = [*self._model.spec.full_languages, *coverage.languages]
        known = [lang for lang in dict.fromkeys(preferred) if self._covers(coverage, words, lang)]
        return Detection(known[0], 1.0 / len(known)) if known else detection

    def _covers(self, coverage: Coverage, words: str, lang: str) -> bool:
        sentences = split_sentences(words, lang)
        return all(coverage.gap(s.source, lang) is None for s in sentences if s.translatable)

    def _sign(self, sampling: SamplingParams, *, source_lang: str, target_lang: str) -> Signature:
        spec = self._model.spec
        is_prompted = source_lang not in {UNDETERMINED, target_lang}
        template = template_signature(spec, source_lang=source_lang, target_lang=target_lang) if is_prompted else "none"
        return Signature(
            fingerprint=self._model.fingerprint,
            quantization=self._model.quantization,
            template=template,
            sampling=sampling,
            source_lang=source_lang,
            target_lang=target_lang,
        )

    def _started(self, plan: _Plan) -> Started:
        return Started(
            model=self._model.name,
            model_kind=self._model.spec.kind,
            source_lang=plan.source_lang,
            target_lang=plan.target_lang,
            detected_confidence=plan.detection.confidence if plan.detection else None,
            n_segments=len(plan.segments),
            segments=plan.segments,
        )

    # What needs no engine

    def _settle_without_engine(self, plan: _Plan) -> Iterator[SegmentDone]:
        for segment, source in zip(plan.segments, plan.sources, strict=True):
            if plan.is_identity or not segment.translatable:
                yield SegmentDone(segment.index, segment.source, segment.source, Origin.SOURCE)
            elif done := self._from_cache(plan, segment, source) or self._refusal(plan, segment, source):
                yield done

    def _from_cache(self, plan: _Plan, segment: Segment, source: SourceText) -> SegmentDone | None:
        if self._cache is None or not plan.request.use_cache:
            return None
        edited = self._cache.edited(segment.source, source_lang=plan.source_lang, target_lang=plan.target_lang)
        if edited is not None:
            return SegmentDone(segment.index, segment.source, edited, Origin.CACHE)
        phrase = self._cache.get(plan.digest_of(source), segment.source)
        if phrase is None:
            return None
        return SegmentDone(segment.index, segment.source, phrase.target, Origin.CACHE)

    def _refusal(self, plan: _Plan, segment: Segment, source: SourceText) -> SegmentDone | None:
        """Refuse what lies outside the closed domain of a demo model."""
        coverage = self._model.coverage
        if coverage is None:
            return None
        for text in asked_of_model(self._model.spec, source, source_lang=plan.source_lang):
            gap = coverage.gap(text, plan.source_lang, target_lang=plan.target_lang)
            if gap is not None:
                return _failed(segment.index, segment.source, not_covered(gap or text))
        return None

    # What the engine does

    async def _generate_all(self, plan: _Plan, groups: Sequence[_Group], emit: Emit) -> None:
        """Load the model, then keep up to SEGMENTS_IN_FLIGHT generations submitted until all groups are settled."""
        generator = await self._open_generator(plan, emit)
        work = _Work(generator, groups)

        async def take_turns() -> None:
            while (item := await work.take()) is not None:
                await self._settle(plan, *item, generator=generator, emit=emit)

        await _run_together([take_turns() for _ in range(min(SEGMENTS_IN_FLIGHT, len(groups)))])

    async def _open_generator(self, plan: _Plan, emit: Emit) -> SegmentGenerator:
        model = self._model
        info = await model.engine.load(lambda fraction: emit(ModelLoading(model.name, fraction)))
        _check_control_tokens(model.spec, info)
        direction = Direction(plan.source_lang, plan.target_lang, plan.sampling, plan.request.priority)
        watched = None if plan.request.units else emit  # nobody reads along in a document
        generator = SegmentGenerator(
            model.spec,
            model.engine,
            coverage=model.coverage,
            info=info,
            direction=direction,
            emit=watched,
            identify=self._identify,
        )
        await generator.open()
        return generator

    async def _settle(
        self, plan: _Plan, group: _Group, prepared: Prepared, *, generator: SegmentGenerator, emit: Emit
    ) -> None:
        """Generate one group; an engine error fails its segments, and the job only when no other could do better."""
        try:
            answer = await generator.answer(prepared, group.index)
        except (ModelError, EngineLoadError, EngineUnavailableError):
            raise
        except HymtError as error:
            answer = Answer(group.source.text, TokenUsage(), error)
        if answer.error is None and answer.is_storable and self._cache and plan.request.use_cache:
            self._cache.put(plan.digest_of(group.source), group.source.text, target=answer.target)
        for done in _done(group, answer):
            emit(done)

    # The end

    def _last(self, plan: _Plan, settled: dict[int, SegmentDone], *, elapsed_s: float) -> Finished | Failed:
        results = [settled[segment.index] for segment in plan.segments]
        wanted = [results[segment.index] for segment in plan.segments if segment.translatable]
        failed = tuple(result for result in wanted if result.error)
        if failed and len(failed) == len(wanted) and failed[0].error:
            return Failed(failed[0].error)
        languages = {"source_lang": plan.source_lang, "target_lang": plan.target_lang}
        targets = [result.target for result in results]
        return Finished(
            text="" if plan.request.units else join_segments(plan.segments, targets, **languages),
            **languages,
            model=self._model.name,
            signature=str(plan.signature),
            origin=_origin_of([result for result in wanted if not result.error]),
            usage=sum((result.usage for result in results), TokenUsage()),
            elapsed_s=elapsed_s,
            failed=failed,
        )


class _Work:
    """The groups of one request, prepared a block at a time: the first ones do not wait for the last."""

    def __init__(self, generator: SegmentGenerator, groups: Sequence[_Group]) -> None:
        self._generator = generator
        self._groups = groups
        self._n_taken = 0
        self._ready: deque[tuple[_Group, Prepared]] = deque()
        self._preparing = asyncio.Lock()

    async def take(self) -> tuple[_Group, Prepared] | None:
        """Return the next group with its prompt, or None when all are taken."""
        async with self._preparing:
            if not self._ready:
                block = self._groups[self._n_taken : self._n_taken + _PREPARED_TOGETHER]
                self._n_taken += len(block)
                prepared = await self._generator.prepare([group.source for group in block])
                self._ready.extend(zip(block, prepared, strict=True))
            return self._ready.popleft() if self._ready else None


def _check_texts(request: TranslationRequest) -> None:
    if not request.text and not request.units:
        raise EmptyInputError("there is no text to translate", hint='name it: `hymt "Good morning" -t fr`')
    if request.text and request.units:
        raise UsageError("a request has either a text or units", hint="leave the text empty")
    for text in (request.text, *(unit.text for unit in request.units)):
        _check_encoding(text)


def _check_encoding(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputEncodingError(
            f"the text holds half a character at position {error.start}", hint="save it as UTF-8"
        ) from error


def _segments_of(units: Sequence[SourceText]) -> tuple[Segment, ...]:
    """Return one segment per unit; the whitespace around a unit, if any, stays in it."""
    return tuple(
        Segment(index, unit.text, translatable=any(map(str.isalpha, unit.words))) for index, unit in enumerate(units)
    )


def _line_source(segment: Segment) -> SourceText:
    if not segment.translatable:
        return SourceText(segment.source)
    return SourceText(segment.source, tokens_of(UnitText(segment.source)))


def _sample(texts: Iterator[str]) -> str:
    """Join the first texts, as much of them as a language is told by."""
    sample: list[str] = []
    n_characters = 0
    for text in texts:
        sample.append(text)
        n_characters += len(text) + 1
        if n_characters > _SAMPLE_CHARACTERS:
            break
    return "\n".join(sample)


def _check_control_tokens(spec: ModelSpec, info: ModelInfo) -> None:
    """Refuse a file whose vocabulary is not that of the model it is taken for: it would answer with noise."""
    for text, wanted in spec.control_ids.items():
        found = info.control_tokens.get(text, wanted)
        if found != wanted:
            raise UnsupportedModelError(
                f"{text} is token {found} in the file of {info.name}, and {wanted} in every {spec.id}",
                hint="import the file under its own name: `hymt models import FILE --as ID`",
            )


def _group(sources: Sequence[SourceText], wanted: Sequence[int]) -> list[_Group]:
    """Collect equal sources, in the order of their first appearance."""
    indexes: dict[SourceText, list[int]] = {}
    for index in wanted:
        indexes.setdefault(sources[index], []).append(index)
    return [_Group(source, tuple(places)) for source, places in indexes.items()]


def _done(group: _Group, answer: Answer) -> Iterator[SegmentDone]:
    """Yield one result per segment; the usage is counted once."""
    source = group.source.text
    for index in group.indexes:
        usage = answer.usage if index == group.index else TokenUsage()
        if answer.error:
            yield replace(_failed(index, source, answer.error, usage=usage), findings=answer.findings)
        else:
            yield SegmentDone(index, source, answer.target, Origin.MODEL, usage, findings=answer.findings)


def _failed(index: int, source: str, error: HymtError, *, usage: TokenUsage | None = None) -> SegmentDone:
    return SegmentDone(index, source, source, Origin.SOURCE, usage or TokenUsage(), error.report())


def _origin_of(results: Sequence[SegmentDone]) -> Origin:
    origins = {result.origin for result in results}
    return origins.pop() if len(origins) == 1 else Origin.MODEL if origins else Origin.SOURCE


async def _run_together(coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all at once; the first error cancels the others and is raised."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for coroutine in coroutines:
                tasks.create_task(coroutine)
    except ExceptionGroup as group:
        raise group.exceptions[0] from group


async def _relay(work: Callable[[Emit], Coroutine[Any, Any, None]]) -> AsyncGenerator[Event, None]:
    """Yield what `work` emits while it runs, then raise what it raised. Closing the iterator cancels it."""
    events: asyncio.Queue[Event | None] = asyncio.Queue()
    task = asyncio.create_task(work(events.put_nowait))
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        await task
    finally:
        task.cancel()
        await asyncio.wait([task])
