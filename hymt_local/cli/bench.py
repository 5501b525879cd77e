"""`hymt bench`: speed of the engine on this machine with one model."""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import time
from dataclasses import asdict, dataclass

import click

from hymt_local.application import Application, open_application
from hymt_local.cli import output
from hymt_local.cli.diagnostics import ProgressLine
from hymt_local.engine.base import Engine, FinishReason, GenerationDone, GenerationRequest, TokensGenerated
from hymt_local.errors import DecodeError, UsageError
from hymt_local.events import SamplingParams, TokenUsage

WARM_UP_TOKENS = 8
BATCHES = (1, 2, 4, 8, 16, 32)
"""Generations at once whose common speed is measured, as far as the engine takes them."""
N_OTHERS = 4
"""Prompts after which a sequence is not in the cache any more."""
FILLER = "The quick brown fox jumps over the lazy dog and runs through the quiet green forest. "


@dataclass(frozen=True, slots=True)
class BatchPoint:
    """Speed of several generations decoded together."""

    generations: int
    output_tokens_per_s: float
    """Of all together, their prompts included."""


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Medians over the runs."""

    model: str
    quantization: str
    machine: str
    load_s: float
    """From opening the file to a context that can decode."""
    prompt_tokens: int
    prompt_tokens_per_s: float
    output_tokens: int
    output_tokens_per_s: float
    batch: tuple[BatchPoint, ...]
    draft_ratio: float
    """Time of an answer whose draft is right, over its time without a draft; 0.0 when there was no answer."""
    prefix_ratio: float
    """Time to the first token with a prompt that was read before and kept, over the time when it was not."""
    runs: int


@click.command(name="bench")
@click.option("-m", "--model", metavar="MODEL", help="Model; the default one when not given.")
@click.option(
    "--prompt-tokens",
    default=128,
    show_default=True,
    type=click.IntRange(8, 4096),
    metavar="N",
    help="Length of the prompt that is read.",
)
@click.option(
    "--output-tokens",
    default=64,
    show_default=True,
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Tokens to decode; fewer when the model stops by itself.",
)
@click.option(
    "--runs", default=5, show_default=True, type=click.IntRange(1, 100), metavar="N",
    help="Times to measure.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def bench_command(
    model: str | None,
    prompt_tokens: int,
    output_tokens: int,
    runs: int,
    as_json: bool,
) -> int:
    """Measure speed on this machine.

    That is loading, prompt reading and decoding, alone and together; and what a right draft and a prompt read before
    save. Figures are medians over the runs. Nothing is sent anywhere.
    """
    app = open_application(os.environ, flags={"model": model})
    if app.resolve_model(None).path is None:
        raise UsageError("the test engines have no speed to measure", hint="name a model: `hymt bench -m demo`")
    result = asyncio.run(_measure(app, prompt_tokens, output_tokens=output_tokens, runs=runs))
    if as_json:
        output.write_json(asdict(result))
    else:
        _print(result)
    return 0


async def _measure(app: Application, prompt_tokens: int, *, output_tokens: int, runs: int) -> BenchResult:
    opened = app.open_model(None)
    progress = ProgressLine()
    try:
        started = time.perf_counter()
        info = await opened.engine.load(lambda fraction: progress.show("loading", fraction))
        load_s = time.perf_counter() - started
        meter = _Meter(opened.engine, await _prompt(opened.engine, prompt_tokens), n_tokens=output_tokens)
        await _generate(opened.engine, meter.prompt(0), n_tokens=WARM_UP_TOKENS)
        usages, drafts, prefixes = [], list[float](), list[float]()
        for run in range(runs):
            progress.show("measuring", run / (runs + 1))
            usages.append(await _generate(opened.engine, meter.prompt(run + 1), n_tokens=output_tokens))
            drafts.append(await meter.draft_ratio(run + 1))
            prefixes.append(await meter.prefix_ratio(run + 1))
        progress.show("measuring", runs / (runs + 1))
        batch = [await meter.batch_point(n, runs) for n in BATCHES if n <= info.slots]
    finally:
        progress.clear()
        await opened.engine.close()
    return BenchResult(
        model=info.name,
        quantization=info.quantization,
        machine=f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        load_s=round(load_s, 4),
        prompt_tokens=prompt_tokens,
        prompt_tokens_per_s=_rate([(u.prompt_tokens - u.reused_tokens, u.prompt_s) for u in usages]),
        output_tokens=output_tokens,
        output_tokens_per_s=_rate([(u.output_tokens, u.decode_s) for u in usages]),
        batch=tuple(batch),
        draft_ratio=round(statistics.median(drafts), 3),
        prefix_ratio=round(statistics.median(prefixes), 3),
        runs=runs,
    )


class _Meter:
    """Measures one engine with one text.

    Args:
        engine: Loaded.
        ids: Of a prompt.
        n_tokens: Most tokens of an answer.
    """

    def __init__(self, engine: Engine, ids: tuple[int, ...], *, n_tokens: int) -> None:
        self._engine = engine
        self._ids = ids
        self._n_tokens = n_tokens

    def prompt(self, turn: int) -> tuple[int, ...]:
        """Return the prompt with another first token each time: nothing of the KV cache may be reused."""
        turn %= len(self._ids)
        return self._ids[turn:] + self._ids[:turn]

    async def draft_ratio(self, turn: int) -> float:
        """Compare an answer without and with itself as its draft; the prompt has been read before both."""
        prompt = self.prompt(turn)
        plain_s, _, ids = await self._timed(GenerationRequest(prompt, self._n_tokens))
        drafted_s, _, _ = await self._timed(GenerationRequest(prompt, self._n_tokens, draft=ids))
        return drafted_s / plain_s if ids else 0.0

    async def prefix_ratio(self, turn: int) -> float:
        """Compare the first token after a prompt that was kept with that after one that is new."""
        new, kept = self.prompt(-2 * turn), self.prompt(-2 * turn - 1)
        await self._timed(self._fixed(kept))
        for other in range(N_OTHERS):
            await self._timed(GenerationRequest(self.prompt(turn + 7 * other + 3), 1))
        kept_s = (await self._timed(self._fixed(kept)))[1]
        new_s = (await self._timed(self._fixed(new)))[1]
        return kept_s / new_s

    async def batch_point(self, n_together: int, runs: int) -> BatchPoint:
        """Decode several answers together."""
        rates: list[float] = []
        for run in range(runs):
            started = time.perf_counter()
            prompts = [self.prompt(run + 3 * index) for index in range(n_together)]
            answers = await asyncio.gather(
                *(self._timed(GenerationRequest(prompt, self._n_tokens)) for prompt in prompts)
            )
            rates.append(sum(len(ids) for _, _, ids in answers) / (time.perf_counter() - started))
        return BatchPoint(n_together, round(statistics.median(rates), 2))

    def _fixed(self, prompt: tuple[int, ...]) -> GenerationRequest:
        return GenerationRequest(prompt, 1, n_fixed=len(prompt) - 1)

    async def _timed(self, request: GenerationRequest) -> tuple[float, float, tuple[int, ...]]:
        """Return seconds to the end, seconds to the first token or the end, and the answer."""
        started = time.perf_counter()
        first_s: float | None = None
        ids: list[int] = []
        async for event in self._engine.generate(request):
            if isinstance(event, TokensGenerated):
                first_s = first_s or time.perf_counter() - started
                ids += event.ids
        total_s = time.perf_counter() - started
        return total_s, first_s or total_s, tuple(ids)


async def _prompt(engine: Engine, n_tokens: int) -> tuple[int, ...]:
    (ids,) = await engine.tokenize([FILLER * (n_tokens // 4 + 1)])
    return ids[:n_tokens]


async def _generate(engine: Engine, ids: tuple[int, ...], *, n_tokens: int) -> TokenUsage:
    """Decode up to `n_tokens`; a model may stop earlier, so the count of the answer is what the rate uses."""
    request = GenerationRequest(prompt=ids, max_tokens=n_tokens, sampling=SamplingParams())
    async for event in engine.generate(request):
        if isinstance(event, GenerationDone) and event.reason is not FinishReason.CANCELLED:
            return event.usage
    raise DecodeError("the generation ended without a result", hint="see the log file: `hymt config path`")


def _rate(pairs: list[tuple[int, float]]) -> float:
    rates = [tokens / seconds for tokens, seconds in pairs if tokens and seconds > 0]
    return round(statistics.median(rates), 2) if rates else 0.0


def _print(result: BenchResult) -> None:
    output.write_text(f"{result.model} ({result.quantization}) on {result.machine}, median of {result.runs}\n")
    rows = [
        ("load", f"{result.load_s * 1000:.0f} ms"),
        (f"read a prompt of {result.prompt_tokens} tokens", f"{result.prompt_tokens_per_s:.1f} tokens/s"),
        (f"decode up to {result.output_tokens} tokens", f"{result.output_tokens_per_s:.1f} tokens/s"),
        *(
            (f"answers together, with prompts: {p.generations}", f"{p.output_tokens_per_s:.1f} tokens/s")
            for p in result.batch
        ),
        ("an answer with a right draft", f"{result.draft_ratio:.2f} of its time without"),
        ("first token after a prompt that was kept", f"{result.prefix_ratio:.2f} of that after a new one"),
    ]
    output.write_table(rows, header=("WHAT", "SPEED"))
