"""Generates the segments of a request: one or several attempts, whole or in parts, shown while they grow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from hymt_local.catalog import ModelSpec
from hymt_local.checks import Identify
from hymt_local.coverage import Coverage
from hymt_local.engine.base import Engine, GenerationRequest, ModelInfo, PromptRead, TokensGenerated
from hymt_local.events import Event, PromptProgress, TextDelta, TokenUsage
from hymt_local.generation.answer import Answer
from hymt_local.generation.asking import Asking, Direction, Form, Prepared
from hymt_local.generation.judging import Judge
from hymt_local.generation.ladder import Ladder, Step
from hymt_local.generation.parts import fitting_parts, joined, sentences_of, without_added_stop
from hymt_local.generation.watching import Record
from hymt_local.protect import MaskFamily, MaskStream
from hymt_local.retries import DEFAULT_RETRIES, RetryPolicy
from hymt_local.segment import Attempt, Finding, Segment, Severity
from hymt_local.segmenter import GraphemeStream
from hymt_local.source_parts import piece_of, split_parts
from hymt_local.source_text import SourceText

Emit = Callable[[Event], None]
T = TypeVar("T")


class SegmentGenerator:
    """Generates the segments of one request with a loaded engine. Belongs to one asyncio loop.

    Args:
        spec: The model's entry in the catalog.
        engine: Loaded.
        coverage: The closed domain of a demo model.
        info: What the loaded engine says of itself.
        direction: Languages, sampling and priority of the request.
        emit: Takes PromptProgress and TextDelta events; None when nobody watches the text grow.
        identify: Tells the language of an answer; None leaves that check out.
        retries: How often a text is tried, and what is changed.
    """

    def __init__(
        self,
        spec: ModelSpec,
        engine: Engine,
        *,
        coverage: Coverage | None,
        info: ModelInfo,
        direction: Direction,
        emit: Emit | None,
        identify: Identify | None = None,
        retries: RetryPolicy = DEFAULT_RETRIES,
    ) -> None:
        self._spec = spec
        self._engine = engine
        self._info = info
        self._direction = direction
        self._emit = emit
        self._asking = Asking(spec, engine, coverage=coverage, info=info, direction=direction)
        self._ladder = Ladder(spec, self._asking, direction, retries)
        self._judge = Judge(spec, direction, identify=identify)
        self._least_probability = coverage.min_probability if coverage else 0.0
        self._needs_probabilities = coverage is not None
        self._shown: dict[int, GraphemeStream] = {}
        self._stop_ids = frozenset(info.control_tokens[t] for t in spec.stop_tokens if t in info.control_tokens)

    async def open(self) -> None:
        """Learn how much room the prompt template leaves; before anything else.

        Raises:
            ContextOverflowError: the loaded context does not even hold the prompt template.
            UnsupportedModelError: the model file lacks a control token of the template.
        """
        await self._asking.open()

    async def prepare(self, sources: Sequence[SourceText]) -> list[Prepared]:
        """Mask, build and tokenize all prompts in one call to the engine."""
        return await self._asking.prepare([(source, self._asking.first_form(source)) for source in sources])

    async def answer(self, prepared: Prepared, index: int, *, draft: str = "") -> Answer:
        """Translate one source text, in pieces when it is longer than the model takes at once.

        Args:
            prepared: From `prepare`.
            index: The segment that the events are about.
            draft: What the answer probably is; it changes nothing but the time.

        Raises:
            HymtError: the engine failed; what the answer lacks is in `Answer.error` instead.
        """
        answer = await self._answer(prepared, index, draft=draft)
        if index in self._shown:
            self._emit_delta(index, self._shown.pop(index).finish())
        return answer

    async def _answer(self, prepared: Prepared, index: int, *, draft: str) -> Answer:
        if prepared.masked is None:
            return await self._answer_split(prepared.source, index, is_only=True)
        if prepared.n_source_tokens <= self._asking.budget:
            return await self._best(prepared, index, draft=draft)
        languages, budget = self._direction, self._asking.budget
        parts = await fitting_parts(self._engine, prepared.source, lang=languages.source_lang, budget=budget)
        return await self._answer_parts(prepared.source, parts, index, is_only=True)

    # In parts

    async def _answer_split(self, source: SourceText, index: int, *, is_only: bool) -> Answer:
        """Translate what stands between the tokens, sentence by sentence where the model wants that."""
        parts = split_parts(self._spec, source, source_lang=self._direction.source_lang)
        return await self._answer_parts(source, parts, index, is_only=is_only)

    async def _answer_parts(
        self, source: SourceText, parts: Sequence[SourceText], index: int, *, is_only: bool
    ) -> Answer:
        """Translate parts in order; the first that fails fails the whole.

        Args:
            source: The whole.
            parts: Joined, their texts are its text; a part that is one token stays.
            index: The segment.
            is_only: Each part gets all the attempts that a segment gets; else, one.
        """
        pieces = [piece_of(number, part) for number, part in enumerate(parts)]
        wanted = [(piece, part) for piece, part in zip(pieces, parts, strict=True) if piece.translatable]
        inner = [part.part(len(piece.lead), len(piece.lead) + len(piece.source)) for piece, part in wanted]
        prepared = await self._asking.prepare([(part, self._form_of_part(part)) for part in inner])
        prompts = dict(zip((piece.index for piece, _ in wanted), prepared, strict=True))
        answers: list[Answer] = []
        for piece in pieces:
            answers.append(await self._answer_piece(piece, prompts.get(piece.index), index, is_only=is_only))
            if answers[-1].error:
                break
        return joined(source, parts, pieces, answers, direction=self._direction)

    def _form_of_part(self, part: SourceText) -> Form:
        if part.tokens:
            return self._asking.first_form(replace(part, context=()))
        return Form(MaskFamily.KEEP, guidance=self._asking.guidance_of(part))

    async def _answer_piece(self, piece: Segment, prompt: Prepared | None, index: int, *, is_only: bool) -> Answer:
        self._emit_text(index, piece.lead)
        if prompt is None:
            answer = Answer(piece.source, TokenUsage())
            self._emit_text(index, piece.source)
        elif prompt.masked is None:
            answer = await self._answer_split(prompt.source, index, is_only=is_only)
        elif is_only:
            answer = await self._best(prompt, index)
        else:
            answer = await self._generate(prompt, index, self._ladder.first(prompt.form), is_streamed=False)
        self._emit_text(index, piece.trail)
        return replace(answer, target=without_added_stop(piece, answer.target)) if not answer.error else answer

    # Attempts

    async def _best(self, prepared: Prepared, index: int, *, draft: str = "") -> Answer:
        """Try again in other ways what that may mend. Only the first attempt streams: it is on the screen already."""
        steps = [self._ladder.first(prepared.form)]
        refused: list[Answer] = []
        answer = await self._generate(prepared, index, steps[0], draft=draft)
        while answer.error and answer.is_retryable:
            step = self._ladder.next_step(prepared.source, steps, answer)
            if step is None:
                break
            refused.append(answer)
            steps.append(step)
            answer = await self._attempt(prepared.source, index, step)
        if not refused and answer.is_doubtful and (step := self._ladder.second_opinion(prepared.form)):
            refused.append(answer)
            answer = await self._less_doubtful(answer, prepared.source, index, step)
        if not refused:
            return answer
        usage = sum((each.usage for each in refused), answer.usage)
        attempts = tuple(attempt for each in (*refused, answer) for attempt in each.attempts)
        return replace(answer, usage=usage, findings=(*_retried(refused), *answer.findings), attempts=attempts)

    async def _less_doubtful(self, answer: Answer, source: SourceText, index: int, step: Step) -> Answer:
        """Try once more what may be in the wrong language; keep the first answer when the second is no better."""
        second = await self._attempt(source, index, step)
        if second.error or second.is_doubtful:
            # Its own usage and attempt are counted with the refused ones.
            return replace(answer, usage=second.usage, attempts=second.attempts)
        return second

    async def _attempt(self, source: SourceText, index: int, step: Step) -> Answer:
        """Make one further attempt, without showing it."""
        if step.is_by_sentence:
            parts = sentences_of(source, self._direction.source_lang)
            return await self._answer_parts(source, parts, index, is_only=False)
        if step.form.family is MaskFamily.SPLIT:
            return await self._answer_split(source, index, is_only=False)
        (prepared,) = await self._asking.prepare([(source, step.form)])
        return replace(await self._generate(prepared, index, step, is_streamed=False), is_storable=step.is_storable)

    # One generation

    async def _generate(
        self, prepared: Prepared, index: int, step: Step, *, draft: str = "", is_streamed: bool = True
    ) -> Answer:
        assert prepared.masked is not None
        is_streamed = is_streamed and self._emit is not None
        request = await self._request(prepared, step, draft=draft)
        record = Record(
            prepared,
            watches_loops=self._spec.kind != "test",
            least_probability=self._least_probability,
            most_characters=self._judge.most_characters(prepared),
        )
        shown = MaskStream(prepared.masked)
        self._emit_text(index, prepared.masked.lead if is_streamed else "")
        async with _closing(self._engine.generate(request)) as events:
            async for event in events:
                if isinstance(event, PromptRead):
                    self._emit_progress(index, event)
                elif isinstance(event, TokensGenerated):
                    text = record.add(event)
                    if record.is_hopeless:
                        break
                    if is_streamed:
                        self._emit_text(index, shown.feed(text))
                else:
                    record.done = event
        rest = record.finish()
        if is_streamed and not record.is_unsure:
            self._emit_text(index, shown.feed(rest) + shown.finish() + prepared.masked.trail)
        answer = self._judge.judge(record)
        return replace(answer, attempts=(self._attempted(record, step, answer),))

    def _attempted(self, record: Record, step: Step, answer: Answer) -> Attempt:
        form = record.prepared.form
        gravest = [finding.code for finding in answer.findings if finding.severity is Severity.ERROR]
        failed = [answer.fault or answer.error.code, *gravest] if answer.error else []
        return Attempt(
            prompt=self._asking.prompt_id(form),
            masks=form.family.value,
            temperature=step.sampling.temperature,
            finish=record.finish_reason,
            failed=tuple(dict.fromkeys(failed)),
        )

    async def _request(self, prepared: Prepared, step: Step, *, draft: str) -> GenerationRequest:
        has_draft = bool(draft) and prepared.form.family is MaskFamily.KEEP
        return GenerationRequest(
            prompt=prepared.prompt,
            max_tokens=prepared.answer_room(self._info.context_length),
            sampling=step.sampling,
            stop_ids=self._stop_ids,
            priority=self._direction.priority,
            draft=(await self._engine.tokenize([draft]))[0] if has_draft else (),
            n_fixed=prepared.n_fixed,
            probabilities=self._needs_probabilities,
        )

    # What is shown of it

    def _emit_progress(self, index: int, event: PromptRead) -> None:
        if self._emit is not None:
            self._emit(PromptProgress(index, event.done, event.total))

    def _emit_text(self, index: int, text: str) -> None:
        if text and self._emit is not None:
            self._emit_delta(index, self._shown.setdefault(index, GraphemeStream()).feed(text))

    def _emit_delta(self, index: int, text: str) -> None:
        if text and self._emit is not None:
            self._emit(TextDelta(index, text))


def _retried(refused: Sequence[Answer]) -> list[Finding]:
    """Return why each earlier attempt was refused."""
    return [
        Finding("retried", Severity.INFO, f"an answer was refused: {answer.error.message}")
        for answer in refused
        if answer.error
    ]


@asynccontextmanager
async def _closing(events: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close an engine's iterator on the way out, which cancels what it still does."""
    try:
        yield events
    finally:
        aclose = getattr(events, "aclose", None)
        if aclose is not None:
            await aclose()
