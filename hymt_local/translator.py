"""From one request to its events: detect, split, look up, generate, check, join. It owns no thread and no lock."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from hymt_local.catalog import ModelSpec
from hymt_local.detect import LanguageDetector
from hymt_local.engine.base import ModelInfo
from hymt_local.errors import (
    EngineLoadError,
    EngineUnavailableError,
    HymtError,
    ModelError,
    SegmentRejectedError,
    UnsupportedModelError,
)
from hymt_local.events import (
    Event,
    Failed,
    Finished,
    ModelLoaded,
    ModelLoading,
    Origin,
    SegmentDone,
    Started,
    TokenUsage,
    TranslationRequest,
)
from hymt_local.generation.answer import Answer, not_covered
from hymt_local.generation.asking import Direction, Prepared
from hymt_local.generation.segments import Emit, SegmentGenerator
from hymt_local.memory.phrase_cache import CachedPhrase
from hymt_local.planning import UNDETERMINED, OpenModel, Plan, Planner
from hymt_local.protect import carried_over, isolated
from hymt_local.segment import Segment
from hymt_local.segmenter import join_segments
from hymt_local.self_test import check_answers
from hymt_local.source_parts import asked_of_model
from hymt_local.source_text import SourceText

__all__ = ["SEGMENTS_IN_FLIGHT", "UNDETERMINED", "OpenModel", "PhraseStore", "Translator"]

SEGMENTS_IN_FLIGHT = 48
"""Segments of one job given to the engine at once: more than any engine decodes together on a laptop."""
SEGMENTS_AT_ONCE = 64
"""Looked up before others of the loop have their turn: a few milliseconds."""
_PREPARED_TOGETHER = 256


class PhraseStore(Protocol):
    """Where verified translations are remembered; `memory.phrase_cache` is the real one."""

    def get(self, signature: str, source: str) -> CachedPhrase | None:
        """Return what is stored under a signature digest, or None."""

    def edited(self, source: str, *, source_lang: str, target_lang: str) -> str | None:
        """Return the target that a person has given to a source, or None."""

    def put(self, signature: str, source: str, *, target: str) -> None:
        """Remember one verified translation."""


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
        before_load: Awaited before the weights are read: whoever holds other models may make room.
    """

    def __init__(
        self,
        model: OpenModel,
        *,
        cache: PhraseStore | None = None,
        detector: LanguageDetector | None = None,
        before_load: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._model = model
        self._before_load = before_load
        self._cache = cache
        self._is_tested = model.passed_tests is None
        self._testing = asyncio.Lock()
        self._planner = Planner(model, detector or LanguageDetector())

    @property
    def model(self) -> OpenModel:
        """The model it was built with."""
        return self._model

    async def load(self, on_progress: Callable[[float], None] | None = None) -> ModelInfo:
        """Read the model's weights if need be.

        Raises:
            HymtError: it cannot be loaded.
        """
        if self._before_load is not None and self._model.engine.info is None:
            await self._before_load()
        return await self._model.engine.load(on_progress)

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
        plan = await asyncio.to_thread(self._planner.plan, request)  # splitting and detecting a long text take a while
        yield self._started(plan)
        settled: dict[int, SegmentDone] = {}
        way = self._through(plan, plan.pivot_lang) if plan.pivot_lang else self._direct(plan)
        async with aclosing(way) as events:
            async for event in events:
                if isinstance(event, SegmentDone):
                    settled[event.segment] = event
                yield event
        yield self._last(plan, settled, elapsed_s=time.perf_counter() - started_at)

    async def _direct(self, plan: Plan) -> AsyncGenerator[Event, None]:
        """Settle every segment: without the engine where that can be done, then with it."""
        settled: set[int] = set()
        for number, (segment, source) in enumerate(zip(plan.segments, plan.sources, strict=True), 1):
            if done := self._without_engine(plan, segment, source):
                settled.add(done.segment)
                yield done
            if number % SEGMENTS_AT_ONCE == 0:
                await asyncio.sleep(0)  # the loop is everybody's
        groups = _group(plan.sources, [index for index in range(len(plan.sources)) if index not in settled])
        if groups:
            async with aclosing(_relay(lambda emit: self._generate_all(plan, groups, emit))) as events:
                async for event in events:
                    yield event

    async def _through(self, plan: Plan, pivot_lang: str) -> AsyncGenerator[Event, None]:
        """Settle every segment in two legs. What fails in the first is settled with it; only the second one streams."""
        first: dict[int, SegmentDone] = {}
        leg = self._planner.leg(
            plan,
            source_lang=plan.source_lang,
            target_lang=pivot_lang,
            segments=plan.segments,
            sources=plan.sources,
        )
        async with aclosing(self._direct(leg)) as events:
            async for event in events:
                if isinstance(event, SegmentDone):
                    first[event.segment] = event
                elif isinstance(event, ModelLoading | ModelLoaded):
                    yield event
        segments, sources = _after_first_leg(plan, first)
        leg = self._planner.leg(
            plan, source_lang=pivot_lang, target_lang=plan.target_lang, segments=segments, sources=sources
        )
        async with aclosing(self._direct(leg)) as events:
            async for event in events:
                yield _of_both_legs(plan, first[event.segment], event) if isinstance(event, SegmentDone) else event

    def foresee(self, request: TranslationRequest) -> tuple[Origin | None, ...]:
        """Say of each segment where its target would come from now, None where it would be refused.

        Nothing is loaded or generated.

        Raises:
            UsageError: as `run` would refuse the request.
        """
        plan = self._planner.plan(request)
        known = [self._without_engine(plan, *each) for each in zip(plan.segments, plan.sources, strict=True)]
        return tuple(Origin.MODEL if done is None else None if done.error else done.origin for done in known)

    # The beginning

    def _started(self, plan: Plan) -> Started:
        return Started(
            model=self._model.name,
            model_kind=self._model.spec.kind,
            source_lang=plan.source_lang,
            target_lang=plan.target_lang,
            detected_confidence=plan.detection.confidence if plan.detection else None,
            n_segments=len(plan.segments),
            segments=plan.segments,
            pivot_lang=plan.pivot_lang,
            doubt=plan.doubt,
        )

    # What needs no engine

    def _without_engine(self, plan: Plan, segment: Segment, source: SourceText) -> SegmentDone | None:
        if self._stays(plan, segment, source):
            return SegmentDone(segment.index, segment.source, segment.source, Origin.SOURCE)
        return self._from_cache(plan, segment, source) or self._refusal(plan, segment, source)

    def _stays(self, plan: Plan, segment: Segment, source: SourceText) -> bool:
        """Tell whether there is nothing to translate in a segment."""
        if plan.is_identity or not segment.translatable:
            return True
        request = plan.request
        return bool(request.units) and request.keeps_translated and self._planner.is_translated(plan, source)

    def _from_cache(self, plan: Plan, segment: Segment, source: SourceText) -> SegmentDone | None:
        if self._cache is None or not plan.request.use_cache:
            return None
        edited = self._cache.edited(segment.source, source_lang=plan.source_lang, target_lang=plan.target_lang)
        if edited is not None and carried_over(source, edited) is not None:
            return SegmentDone(segment.index, segment.source, edited, Origin.CACHE)
        phrase = self._cache.get(plan.digest_of(source), segment.source)
        if phrase is None:
            return None
        return SegmentDone(segment.index, segment.source, phrase.target, Origin.CACHE)

    def _refusal(self, plan: Plan, segment: Segment, source: SourceText) -> SegmentDone | None:
        """Refuse what lies outside the closed domain of a demo model."""
        coverage = self._model.coverage
        if coverage is None:
            return None
        for text in asked_of_model(self._model.spec, source, source_lang=plan.source_lang):
            gap = coverage.gap(text, plan.source_lang, target_lang=plan.target_lang)
            if gap is not None:
                is_known = coverage.gap(text, plan.source_lang) is None
                refusal = not_covered(gap or text, target_lang=plan.target_lang if is_known else None)
                return _failed(segment.index, segment.source, refusal)
        return None

    # What the engine does

    async def _generate_all(self, plan: Plan, groups: Sequence[_Group], emit: Emit) -> None:
        """Load the model, then keep up to SEGMENTS_IN_FLIGHT generations submitted until all groups are settled."""
        generator = await self._open_generator(plan, emit)
        work = _Work(generator, groups)

        async def take_turns() -> None:
            while (item := await work.take()) is not None:
                await self._settle(plan, *item, generator=generator, emit=emit)

        await _run_together([take_turns() for _ in range(min(SEGMENTS_IN_FLIGHT, len(groups)))])

    async def _open_generator(self, plan: Plan, emit: Emit) -> SegmentGenerator:
        model = self._model
        info = await self.load(lambda fraction: emit(ModelLoading(model.name, fraction)))
        emit(_loaded(model.name, info))
        _check_control_tokens(model.spec, info)
        await self._check_answers(info)
        direction = Direction(
            plan.source_lang, plan.target_lang, plan.sampling, plan.request.priority, plan.request.guidance
        )
        watched = None if plan.request.units else emit  # nobody reads along in a document
        generator = SegmentGenerator(
            model.spec,
            model.engine,
            coverage=model.coverage,
            info=info,
            direction=direction,
            emit=watched,
            identify=self._planner.identify,
            retries=model.retries,
        )
        await generator.open()
        return generator

    async def _check_answers(self, info: ModelInfo) -> None:
        """Let the model pass its self-test, once."""
        model, passed = self._model, self._model.passed_tests
        async with self._testing:
            if passed is not None and not self._is_tested:
                identify = self._planner.identify
                await check_answers(model.spec, model.engine, info, identify=identify, passed=passed)
                self._is_tested = True

    async def _settle(
        self, plan: Plan, group: _Group, prepared: Prepared, *, generator: SegmentGenerator, emit: Emit
    ) -> None:
        """Generate one group; an engine error fails its segments, and the job only when no other could do better."""
        try:
            answer = await generator.answer(prepared, group.index, draft=plan.draft_of(group.index))
        except (ModelError, EngineLoadError, EngineUnavailableError):
            raise
        except HymtError as error:
            answer = Answer(group.source.text, TokenUsage(), error)
        if answer.error is None and plan.isolates:
            answer = replace(answer, target=isolated(group.source, answer.target))
        if answer.error is None and answer.is_storable and self._cache and plan.request.use_cache:
            self._cache.put(plan.digest_of(group.source), group.source.text, target=answer.target)
        for done in _done(group, answer):
            emit(done)

    # The end

    def _last(self, plan: Plan, settled: dict[int, SegmentDone], *, elapsed_s: float) -> Finished | Failed:
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
            signature=plan.provenance,
            origin=_origin_of([result for result in wanted if not result.error]),
            usage=sum((result.usage for result in results), TokenUsage()),
            elapsed_s=elapsed_s,
            failed=failed,
            pivot_lang=plan.pivot_lang,
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


def _after_first_leg(
    plan: Plan, first: Mapping[int, SegmentDone]
) -> tuple[tuple[Segment, ...], tuple[SourceText, ...]]:
    """Return what the second leg starts from; what the first one could not translate has nothing left to translate."""
    segments: list[Segment] = []
    sources: list[SourceText] = []
    for segment, source in zip(plan.segments, plan.sources, strict=True):
        done = first[segment.index]
        carried = None if done.error else carried_over(source, done.target)
        is_wanted = segment.translatable and carried is not None
        segments.append(msgspec.structs.replace(segment, source=done.target, translatable=is_wanted))
        sources.append(carried or SourceText(done.target))
    return tuple(segments), tuple(sources)


def _of_both_legs(plan: Plan, first: SegmentDone, second: SegmentDone) -> SegmentDone:
    """Return one result for a segment that went through another language."""
    source = plan.segments[second.segment].source
    error = first.error or second.error
    if error is None and plan.segments[second.segment].translatable and second.origin is Origin.SOURCE:
        lost = SegmentRejectedError("a protected part was lost on the way", hint="translate it directly")
        error = lost.report()
    return msgspec.structs.replace(
        second,
        source=source,
        target=source if error else second.target,
        origin=Origin.SOURCE if error else _origin_of([first, second]),
        usage=first.usage + second.usage,
        error=error,
        findings=(*first.findings, *second.findings),
        attempts=(*first.attempts, *second.attempts),
    )


def _loaded(name: str, info: ModelInfo) -> ModelLoaded:
    return ModelLoaded(
        name,
        info.context_length,
        n_gpu_layers=info.n_gpu_layers,
        n_layers=info.n_layers,
        gpu=info.gpu,
        is_reduced=info.is_reduced,
    )


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
            done = _failed(index, source, answer.error, usage=usage)
        else:
            done = SegmentDone(index, source, answer.target, Origin.MODEL, usage)
        yield msgspec.structs.replace(done, findings=answer.findings, attempts=answer.attempts)


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
