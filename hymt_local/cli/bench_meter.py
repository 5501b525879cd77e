"""Measures one loaded engine: reading, writing, alone and together, and what drafts and kept prompts save."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass

from hymt_local.engine.base import Engine, FinishReason, GenerationDone, GenerationRequest, TokensGenerated
from hymt_local.errors import DecodeError
from hymt_local.events import Priority, TokenUsage

N_OTHERS = 4
"""Prompts after which a sequence is not in the cache any more."""
BATCH_PROMPT = 32
"""Tokens; a sentence and its template."""
FILLER = "The quick brown fox jumps over the lazy dog and runs through the quiet green forest. "


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much to measure."""

    prompt_tokens: int
    output_tokens: int
    runs: int
    batches: tuple[int, ...]
    """Generations at once."""
    batch_runs: int


@dataclass(frozen=True, slots=True)
class BatchPoint:
    """Speed of several generations decoded together."""

    generations: int
    output_tokens_per_s: float
    """Of all together, their prompts included."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Medians over the runs."""

    prompt_tokens_per_s: float
    output_tokens_per_s: float
    first_token_s: float
    """After a new prompt, as somebody waits who types."""
    batch: tuple[BatchPoint, ...]
    draft_ratio: float
    """Time of an answer whose draft is right, over its time without a draft; 0.0 when there was no answer."""
    prefix_ratio: float
    """Time to the first token with a prompt that was read before and kept, over the time when it was not."""


@dataclass(frozen=True, slots=True)
class _Timed:
    total_s: float
    first_s: float
    ids: tuple[int, ...]
    usage: TokenUsage


class Meter:
    """Runs the measurements; `measure` yields after each, for a progress bar, and `figures` is their result.

    Args:
        engine: Loaded.
        ids: Of a text longer than every prompt.
        sizes: How much.
    """

    def __init__(self, engine: Engine, ids: tuple[int, ...], *, sizes: Sizes) -> None:
        self._engine = engine
        self._ids = ids
        self._sizes = sizes
        self._usages: list[TokenUsage] = []
        self._first_s: list[float] = []
        self._drafts: list[float] = []
        self._prefixes: list[float] = []
        self._batch: list[BatchPoint] = []

    @classmethod
    async def of(cls, engine: Engine, sizes: Sizes) -> Meter:
        """Return a meter with a text for its prompts."""
        (ids,) = await engine.tokenize([FILLER * (sizes.prompt_tokens // 4 + 1)])
        return cls(engine, ids[: sizes.prompt_tokens], sizes=sizes)

    def steps(self) -> Iterator[tuple[str, Awaitable[object]]]:
        """Yield what is measured, one after the other: a name and a coroutine to be awaited before the next."""
        yield "warming up", self._timed(GenerationRequest(self._prompt(0), 8))
        for run in range(1, self._sizes.runs + 1):
            yield "reading and writing", self._alone(run)
            yield "drafts", self._draft(run)
            yield "kept prompts", self._prefix(run)
        for n_together in self._sizes.batches:
            yield f"{n_together} together", self._together(n_together)

    @property
    def n_steps(self) -> int:
        """How many `steps` yields."""
        return 1 + 3 * self._sizes.runs + len(self._sizes.batches)

    @property
    def figures(self) -> Figures:
        """Everything measured."""
        return Figures(
            prompt_tokens_per_s=_rate([(u.prompt_tokens - u.reused_tokens, u.prompt_s) for u in self._usages]),
            output_tokens_per_s=_rate([(u.output_tokens, u.decode_s) for u in self._usages]),
            first_token_s=round(statistics.median(self._first_s), 4),
            batch=tuple(self._batch),
            draft_ratio=round(statistics.median(self._drafts), 3),
            prefix_ratio=round(statistics.median(self._prefixes), 3),
        )

    async def _alone(self, run: int) -> None:
        request = GenerationRequest(self._prompt(run), self._sizes.output_tokens, priority=Priority.INTERACTIVE)
        timed = await self._timed(request)
        self._usages.append(timed.usage)
        self._first_s.append(timed.first_s)

    async def _draft(self, run: int) -> None:
        """Compare an answer without and with itself as its draft; the prompt has been read before both."""
        request = GenerationRequest(self._prompt(run), self._sizes.output_tokens)
        plain = await self._timed(request)
        drafted = await self._timed(GenerationRequest(request.prompt, self._sizes.output_tokens, draft=plain.ids))
        self._drafts.append(drafted.total_s / plain.total_s if plain.ids else 0.0)

    async def _prefix(self, run: int) -> None:
        """Compare the first token after a prompt that was kept with that after one that is new."""
        new, kept = self._prompt(-2 * run), self._prompt(-2 * run - 1)
        await self._timed(_fixed(kept))
        for other in range(N_OTHERS):
            await self._timed(GenerationRequest(self._prompt(run + 7 * other + 3)[:BATCH_PROMPT], 1))
        kept_s = (await self._timed(_fixed(kept))).first_s
        new_s = (await self._timed(_fixed(new))).first_s
        self._prefixes.append(kept_s / new_s)

    async def _together(self, n_together: int) -> None:
        rates: list[float] = []
        for run in range(self._sizes.batch_runs):
            started = time.perf_counter()
            prompts = [self._prompt(run + 3 * index)[:BATCH_PROMPT] for index in range(n_together)]
            answers = await asyncio.gather(
                *(self._timed(GenerationRequest(prompt, self._sizes.output_tokens)) for prompt in prompts)
            )
            rates.append(sum(len(answer.ids) for answer in answers) / (time.perf_counter() - started))
        self._batch.append(BatchPoint(n_together, round(statistics.median(rates), 2)))

    def _prompt(self, turn: int) -> tuple[int, ...]:
        """Return a prompt of the same tokens that begins otherwise: turned round, so that nothing of it is known."""
        turn %= len(self._ids)
        return self._ids[turn:] + self._ids[:turn]

    async def _timed(self, request: GenerationRequest) -> _Timed:
        started = time.perf_counter()
        first_s: float | None = None
        ids: list[int] = []
        async for event in self._engine.generate(request):
            if isinstance(event, TokensGenerated):
                first_s = first_s or time.perf_counter() - started
                ids += event.ids
            elif isinstance(event, GenerationDone) and event.reason is not FinishReason.CANCELLED:
                total_s = time.perf_counter() - started
                return _Timed(total_s, first_s or total_s, tuple(ids), event.usage)
        raise DecodeError("the generation ended without a result", hint="see the log file: `hymt config path`")


def _fixed(prompt: tuple[int, ...]) -> GenerationRequest:
    return GenerationRequest(prompt, 1, n_fixed=len(prompt) - 1)


def _rate(pairs: list[tuple[int, float]]) -> float:
    rates = [tokens / seconds for tokens, seconds in pairs if tokens and seconds > 0]
    return round(statistics.median(rates), 2) if rates else 0.0
