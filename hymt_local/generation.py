"""One source text -> one judged answer: fit it to the model, generate, check, try once more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from hymt_local.catalog import ModelSpec
from hymt_local.checks import check_output, repeats_at_end
from hymt_local.coverage import Coverage
from hymt_local.engine.base import (
    Engine,
    FinishReason,
    GenerationDone,
    GenerationRequest,
    ModelInfo,
    PromptRead,
    TokensGenerated,
)
from hymt_local.engine.utf8 import Utf8Stream
from hymt_local.errors import ContextOverflowError, DecodeError, HymtError, NotCoveredError, SegmentRejectedError
from hymt_local.events import Event, Priority, PromptProgress, SamplingParams, TextDelta, TokenUsage
from hymt_local.prompts import Prompt, build_prompt
from hymt_local.segment import Segment
from hymt_local.segmenter import Level, join_segments, outer_split, parts_at

Emit = Callable[[Event], None]
T = TypeVar("T")

# Room for the answer. An English token is 4 to 5 characters, and scripts such as Burmese or Tibetan may cost 3 tokens a
# character: 16 answer tokens a source token are enough for every pair. An answer that loops is stopped long before.
_ANSWER_TOKENS_PER_SOURCE_TOKEN = 16
_ANSWER_TOKENS_LEAST = 64
_LEAST_ANSWER_RATIO = 2
"""A source that leaves less room than this many times its own tokens is split."""
_LOOP_CHECK_TOKENS = 16
_RETRY_TEMPERATURE = 0.7
_SHOWN_CHARACTERS = 60
_RETRIED_HINT = "the source text was kept; translate this part again, alone or with another model"
_COVERAGE_HINT = "`hymt models pull` fetches a real model that suits this machine; `hymt models list` shows all"


@dataclass(frozen=True, slots=True)
class Direction:
    """What all segments of one request have in common."""

    source_lang: str
    target_lang: str
    sampling: SamplingParams
    priority: Priority


@dataclass(frozen=True, slots=True)
class Prepared:
    """A source text with its prompt as token ids."""

    source: str
    prompt: tuple[int, ...]
    n_source_tokens: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The judged result for one source text."""

    target: str
    """Without outer whitespace; the source text when `error` is set."""
    usage: TokenUsage
    error: HymtError | None = None
    is_retryable: bool = False
    """True when another attempt may succeed."""
    is_storable: bool = True
    """False for what a retry gave: it was not sampled as the signature says."""


def not_covered(text: str) -> NotCoveredError:
    """Return the refusal of a text (or the part of it) outside a demo model's closed domain."""
    return NotCoveredError(f"the demo phrasebook does not cover {shown(text)!r}", hint=_COVERAGE_HINT)


def shown(text: str) -> str:
    """Return the beginning of a text for a one-line message."""
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


class SegmentGenerator:
    """Generates the segments of one request with a loaded engine. Belongs to one asyncio loop.

    Args:
        spec: The model's entry in the catalog.
        engine: Loaded.
        coverage: The closed domain of a demo model.
        info: What the loaded engine says of itself.
        direction: Languages, sampling and priority of the request.
        emit: Takes PromptProgress and TextDelta events.
    """

    def __init__(
        self,
        spec: ModelSpec,
        engine: Engine,
        *,
        coverage: Coverage | None,
        info: ModelInfo,
        direction: Direction,
        emit: Emit,
    ) -> None:
        self._spec = spec
        self._engine = engine
        self._coverage = coverage
        self._info = info
        self._direction = direction
        self._emit = emit
        self._budget = spec.max_segment_tokens
        self._stop_ids = frozenset(info.control_tokens[t] for t in spec.stop_tokens if t in info.control_tokens)

    async def prepare(self, sources: Sequence[str]) -> list[Prepared]:
        """Build and tokenize all prompts in one call to the engine.

        Raises:
            ContextOverflowError: the loaded context does not even hold the prompt template.
            UnsupportedModelError: the model file lacks a control token of the template.
        """
        template, *prompts = await self._tokenize([self._prompt(source) for source in ["", *sources]])
        self._budget = self._source_budget(len(template))
        return [
            Prepared(source, prompt, max(1, len(prompt) - len(template)))
            for source, prompt in zip(sources, prompts, strict=True)
        ]

    async def answer(self, prepared: Prepared, index: int) -> Answer:
        """Translate one source text, in pieces when it is longer than the model takes at once.

        Args:
            prepared: From `prepare`.
            index: The segment that the events are about.

        Raises:
            HymtError: the engine failed; what the answer lacks is in `Answer.error` instead.
        """
        if prepared.n_source_tokens <= self._budget:
            return await self._best_of_two(prepared, index)
        return await self._answer_in_pieces(prepared.source, index)

    # Fitting

    def _prompt(self, source: str) -> Prompt:
        languages = self._direction
        if self._coverage:
            source = self._coverage.usual_form(source, languages.source_lang)
        return build_prompt(
            self._spec, source_lang=languages.source_lang, target_lang=languages.target_lang, source=source
        )

    async def _tokenize(self, prompts: Sequence[Prompt]) -> list[tuple[int, ...]]:
        texts = [text for prompt in prompts for text in prompt.texts]
        tokenized = iter(await self._engine.tokenize(texts))
        control = self._info.control_tokens
        return [prompt.assemble(control, [next(tokenized) for _ in prompt.texts]) for prompt in prompts]

    def _source_budget(self, n_template: int) -> int:
        """Return how many source tokens one prompt may hold."""
        room = self._info.context_length - n_template - _ANSWER_TOKENS_LEAST
        budget = min(self._spec.max_segment_tokens, room // (1 + _LEAST_ANSWER_RATIO))
        if budget < 1:
            raise ContextOverflowError(
                f"a context of {self._info.context_length} tokens is too small for the prompt of {n_template} tokens",
                hint="raise the context length: `hymt config set context_length 2048`",
            )
        return budget

    async def _answer_in_pieces(self, source: str, index: int) -> Answer:
        """Translate the pieces in order; the first that fails fails the whole segment."""
        pieces = [outer_split(number, text) for number, text in enumerate(await self._fitting_pieces(source))]
        wanted = [piece for piece in pieces if piece.translatable]
        prompts = dict(zip(wanted, await self.prepare([piece.source for piece in wanted]), strict=True))
        answers: list[Answer] = []
        for piece in pieces:
            answer = await self._answer_piece(piece, prompts.get(piece), index)
            answers.append(answer)
            if answer.error:
                break
        usage = sum((answer.usage for answer in answers), TokenUsage())
        if answers[-1].error:
            return Answer(source, usage, answers[-1].error)
        return Answer(self._join(pieces, answers), usage, is_storable=all(answer.is_storable for answer in answers))

    async def _answer_piece(self, piece: Segment, prompt: Prepared | None, index: int) -> Answer:
        self._emit_text(index, piece.lead)
        if prompt is None:
            answer = Answer(piece.source, TokenUsage())
            self._emit_text(index, piece.source)
        else:
            answer = await self._best_of_two(prompt, index)
        self._emit_text(index, piece.trail)
        return answer

    def _join(self, pieces: Sequence[Segment], answers: Sequence[Answer]) -> str:
        return join_segments(
            pieces,
            [answer.target for answer in answers],
            source_lang=self._direction.source_lang,
            target_lang=self._direction.target_lang,
        )

    async def _fitting_pieces(self, source: str) -> list[str]:
        counted = await self._split(source, Level.SENTENCE)
        return _pack(counted, budget=self._budget)

    async def _split(self, text: str, level: Level) -> list[tuple[str, int]]:
        """Return parts of `text` with their token counts, each within the budget unless it cannot be cut further."""
        parts = parts_at(text, level, lang=self._direction.source_lang)
        counts = [len(ids) for ids in await self._engine.tokenize(parts)]
        fitting: list[tuple[str, int]] = []
        for part, count in zip(parts, counts, strict=True):
            if count <= self._budget or (level is Level.GRAPHEME and len(parts) == 1):
                fitting.append((part, count))
            else:
                fitting += await self._split(part, Level(min(level + 1, Level.GRAPHEME)))
        return fitting

    # Generating

    async def _best_of_two(self, prepared: Prepared, index: int) -> Answer:
        """Try once more, sampled, what that may mend. Not streamed: the first attempt is on the screen already."""
        first = await self._generate(prepared, index, sampling=self._direction.sampling, is_streamed=True)
        if first.error is None or not first.is_retryable:
            return first
        second = await self._generate(prepared, index, sampling=self._retry_sampling(), is_streamed=False)
        return replace(second, usage=first.usage + second.usage, is_storable=False)

    def _retry_sampling(self) -> SamplingParams:
        card = self._spec.sampling.params(seed=self._direction.sampling.seed + 1)
        return replace(card, temperature=_RETRY_TEMPERATURE)

    async def _generate(self, prepared: Prepared, index: int, *, sampling: SamplingParams, is_streamed: bool) -> Answer:
        request = self._request(prepared, sampling)
        least = self._coverage.min_probability if self._coverage else 0.0
        record = _Record(prepared, watches_loops=self._spec.kind != "test", least_probability=least)
        async with _closing(self._engine.generate(request)) as events:
            async for event in events:
                if isinstance(event, PromptRead):
                    self._emit(PromptProgress(index, event.done, event.total))
                elif isinstance(event, TokensGenerated):
                    text = record.add(event)
                    if record.is_looping or record.is_unsure:
                        break
                    if is_streamed:
                        self._emit_text(index, text)
                else:
                    record.done = event
        rest = record.finish()
        if is_streamed and not record.is_unsure:
            self._emit_text(index, rest)
        return self._judge(record)

    def _request(self, prepared: Prepared, sampling: SamplingParams) -> GenerationRequest:
        wanted = _ANSWER_TOKENS_PER_SOURCE_TOKEN * prepared.n_source_tokens + _ANSWER_TOKENS_LEAST
        return GenerationRequest(
            prompt=prepared.prompt,
            max_tokens=max(1, min(wanted, self._info.context_length - len(prepared.prompt))),
            sampling=sampling,
            stop_ids=self._stop_ids,
            priority=self._direction.priority,
            probabilities=self._coverage is not None,
        )

    def _emit_text(self, index: int, text: str) -> None:
        if text:
            self._emit(TextDelta(index, text))

    # Judging

    def _judge(self, record: _Record) -> Answer:
        source, target = record.prepared.source, outer_split(0, record.text).source
        error, is_retryable = self._fault(record, target)
        return Answer(source if error else target, record.usage, error, is_retryable)

    def _fault(self, record: _Record, target: str) -> tuple[HymtError | None, bool]:
        """Return what is wrong with an answer, and whether another attempt may mend it."""
        source = record.prepared.source
        if record.is_unsure:
            return not_covered(source), False
        if record.is_looping:
            return _rejected("the answer repeats itself"), True
        if record.done is None or record.done.reason is FinishReason.CANCELLED:
            return DecodeError("the engine stopped in the middle of an answer", hint="try again"), False
        if record.done.reason is FinishReason.LENGTH:
            return _rejected(f"the answer was cut off after {record.usage.output_tokens} tokens"), False
        if record.n_invalid:
            return _rejected("the answer is not valid UTF-8"), True
        if self._spec.kind == "test":
            return None, False
        finding = check_output(source, target, target_lang=self._direction.target_lang)
        return (_rejected(finding.message), True) if finding else (None, False)


@dataclass(slots=True)
class _Record:
    """One generation as it arrives."""

    prepared: Prepared
    watches_loops: bool
    least_probability: float
    """A token below it shows that the source lies outside a closed domain; what follows is not worth waiting for."""
    done: GenerationDone | None = None
    lowest_probability: float = 1.0
    is_looping: bool = False
    _ids: list[int] = field(default_factory=list)
    _parts: list[str] = field(default_factory=list)
    _stream: Utf8Stream = field(default_factory=Utf8Stream)
    _n_checked: int = 0

    def add(self, event: TokensGenerated) -> str:
        """Take new tokens, return the text they complete."""
        self._ids += event.ids
        self.lowest_probability = min(self.lowest_probability, *event.probabilities, 1.0)
        if self.watches_loops and len(self._ids) - self._n_checked >= _LOOP_CHECK_TOKENS:
            self._n_checked = len(self._ids)
            self.is_looping = repeats_at_end(self._ids, allowed=self.prepared.prompt)
        return self._keep(self._stream.feed(event.data))

    @property
    def is_unsure(self) -> bool:
        return self.lowest_probability < self.least_probability

    def finish(self) -> str:
        """Return what a broken last character leaves."""
        return self._keep(self._stream.finish())

    def _keep(self, text: str) -> str:
        self._parts.append(text)
        return text

    @property
    def text(self) -> str:
        return "".join(self._parts)

    @property
    def n_invalid(self) -> int:
        return self._stream.n_invalid

    @property
    def usage(self) -> TokenUsage:
        if self.done:
            return self.done.usage
        return TokenUsage(prompt_tokens=len(self.prepared.prompt), output_tokens=len(self._ids))


def _rejected(message: str) -> SegmentRejectedError:
    return SegmentRejectedError(message, hint=_RETRIED_HINT)


def _pack(counted: Sequence[tuple[str, int]], *, budget: int) -> list[str]:
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


@asynccontextmanager
async def _closing(events: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close an engine's iterator on the way out, which cancels what it still does."""
    try:
        yield events
    finally:
        aclose = getattr(events, "aclose", None)
        if aclose is not None:
            await aclose()
