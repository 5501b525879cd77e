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
from hymt_local.engine.base import Engine, FinishReason, GenerationDone, GenerationRequest
from hymt_local.errors import DecodeError, UsageError
from hymt_local.events import SamplingParams, TokenUsage

WARM_UP_TOKENS = 8
FILLER = "The quick brown fox jumps over the lazy dog and runs through the quiet green forest. "


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

    That is loading, prompt reading and decoding; figures are medians over the runs. Nothing is sent anywhere.
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
        ids = await _prompt(opened.engine, prompt_tokens)
        await _generate(opened.engine, ids, n_tokens=WARM_UP_TOKENS)
        usages = []
        for run in range(runs):
            progress.show("measuring", run / runs)
            # Another first token each time: nothing of the last run's KV cache may be reused.
            usages.append(await _generate(opened.engine, ids[run + 1 :] + ids[: run + 1], n_tokens=output_tokens))
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
        runs=runs,
    )


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
    ]
    output.write_table(rows, header=("WHAT", "SPEED"))
