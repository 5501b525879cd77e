"""`hymt bench`: speed of the engine on this machine with one model."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from hymt_local.application import Application, open_application
from hymt_local.cli import output
from hymt_local.cli.bench_meter import BATCH_PROMPT, BatchPoint, Meter, Sizes
from hymt_local.cli.bench_peers import Peer, PeerWork, measure_peers
from hymt_local.cli.diagnostics import ProgressLine
from hymt_local.engine.base import ModelInfo
from hymt_local.engine.counters import EngineCounters
from hymt_local.errors import UsageError

QUICK = Sizes(prompt_tokens=128, output_tokens=32, runs=3, batches=(1, 16, 32), batch_runs=1)
FULL = Sizes(prompt_tokens=256, output_tokens=64, runs=5, batches=(1, 2, 4, 8, 16, 32), batch_runs=3)
BAR_CELLS = 24


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Medians over the runs."""

    model: str
    quantization: str
    machine: str
    build: str
    threads: int
    context_length: int
    slots: int
    kv_type: str
    gpu_layers: int
    load_s: float
    """From opening the file to a context that can decode, the start of its process included."""
    memory_bytes: int
    """Resident, of the process that holds the model: mapped weights count, as far as they are in memory."""
    prompt_tokens: int
    prompt_tokens_per_s: float
    output_tokens: int
    output_tokens_per_s: float
    first_token_s: float
    batch: tuple[BatchPoint, ...]
    draft_ratio: float
    prefix_ratio: float
    counters: EngineCounters
    """What the engine counted meanwhile."""
    runs: int
    peers: tuple[Peer, ...]


@click.command(name="bench")
@click.option("-m", "--model", metavar="MODEL", help="Model; the default one when not given.")
@click.option("--quick/--full", default=True, help="A minute at most on a usual machine, or more of everything.")
@click.option(
    "--prompt-tokens", default=None, type=click.IntRange(8, 4096), metavar="N",
    help="Length of the prompt that is read; 128, or 256 with --full.",
)  # fmt: skip
@click.option(
    "--output-tokens", default=None, type=click.IntRange(1, 1024), metavar="N",
    help="Tokens to decode, 32 or 64; fewer when the model stops by itself.",
)  # fmt: skip
@click.option("--runs", default=None, type=click.IntRange(1, 100), metavar="N", help="Times to measure; 3 or 5.")
@click.option("--peers/--no-peers", default=True, help="Compare with llama-bench and llama-server if they are here.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def bench_command(
    model: str | None,
    quick: bool,
    prompt_tokens: int | None,
    output_tokens: int | None,
    runs: int | None,
    peers: bool,
    as_json: bool,
) -> int:
    """Measure speed on this machine.

    That is loading, prompt reading and decoding, alone and together; what a right draft and a prompt read before save;
    and memory. Figures are medians over the runs. Nothing is sent anywhere.
    """
    app = open_application(os.environ, flags={"model": model})
    path = app.resolve_model(None).path
    if path is None:
        raise UsageError("the test engines have no speed to measure", hint="name a model: `hymt bench -m demo`")
    usual = QUICK if quick else FULL
    sizes = Sizes(
        prompt_tokens or usual.prompt_tokens,
        output_tokens or usual.output_tokens,
        runs or usual.runs,
        usual.batches,
        usual.batch_runs,
    )
    result = asyncio.run(_measure(app, path, sizes=sizes, with_peers=peers))
    if as_json:
        output.write_json(asdict(result))
    else:
        _print(result)
    return 0


async def _measure(app: Application, path: Path, *, sizes: Sizes, with_peers: bool) -> BenchResult:
    engine = app.open_model(None).engine
    progress = ProgressLine()
    try:
        started = time.perf_counter()
        info = await engine.load(lambda fraction: progress.show("loading", fraction))
        load_s = time.perf_counter() - started
        batches = tuple(n_together for n_together in sizes.batches if n_together <= info.slots)
        sizes = Sizes(sizes.prompt_tokens, sizes.output_tokens, sizes.runs, batches, sizes.batch_runs)
        meter = await Meter.of(engine, sizes)
        for step, (label, measurement) in enumerate(meter.steps()):
            progress.show(label, step / meter.n_steps)
            await measurement
        memory_bytes = _resident_bytes(info)
        counters = await engine.counters()
        (batch_prompt,) = await engine.tokenize(["The quick brown fox jumps over the lazy dog. " * BATCH_PROMPT])
    finally:
        progress.clear()
        await engine.close()
    figures = meter.figures
    return BenchResult(
        model=info.name,
        quantization=info.quantization,
        machine=_machine(),
        build=info.build,
        threads=info.threads,
        context_length=info.context_length,
        slots=info.slots,
        kv_type=info.kv_type,
        gpu_layers=info.n_gpu_layers,
        load_s=round(load_s, 4),
        memory_bytes=memory_bytes,
        prompt_tokens=sizes.prompt_tokens,
        prompt_tokens_per_s=figures.prompt_tokens_per_s,
        output_tokens=sizes.output_tokens,
        output_tokens_per_s=figures.output_tokens_per_s,
        first_token_s=figures.first_token_s,
        batch=figures.batch,
        draft_ratio=figures.draft_ratio,
        prefix_ratio=figures.prefix_ratio,
        counters=counters,
        runs=sizes.runs,
        peers=_peers(path, info, batch_prompt[:BATCH_PROMPT], sizes=sizes) if with_peers else (),
    )


def _peers(path: Path, info: ModelInfo, batch_prompt: tuple[int, ...], *, sizes: Sizes) -> tuple[Peer, ...]:
    """Run them one after the other, when our engine has given its memory back."""
    return measure_peers(
        PeerWork(
            path=path,
            prompt_tokens=sizes.prompt_tokens,
            output_tokens=sizes.output_tokens,
            runs=sizes.runs,
            threads=info.threads,
            gpu_layers=info.n_gpu_layers,
            n_together=max(sizes.batches, default=1),
            batch_prompt=batch_prompt,
        )
    )


def _resident_bytes(info: ModelInfo) -> int:
    import psutil

    try:
        return int(psutil.Process(info.process_id or None).memory_info().rss)
    except psutil.Error:  # it was just started again
        return 0


def _machine() -> str:
    import psutil

    from hymt_local.engine.fit import gibibytes
    from hymt_local.engine.machine import usable_cores

    name = _processor_name() or platform.processor() or platform.machine()
    memory = gibibytes(int(psutil.virtual_memory().total))
    return f"{name}, {usable_cores()} cores, {memory}, {platform.system()}"


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _print(result: BenchResult) -> None:
    placed = f"{result.gpu_layers} layers on the GPU" if result.gpu_layers else "on the processor"
    output.write_text(
        f"{result.model} ({result.quantization}), {placed}, {output.counted(result.threads, 'thread')}, "
        f"context {result.context_length}, KV {result.kv_type}\n{result.machine}\n{result.build}\n\n"
    )
    output.write_table([*_rows(result), *_peer_rows(result)], header=("WHAT", "", f"MEDIAN OF {result.runs}"))


def _rows(result: BenchResult) -> Iterator[tuple[str, str, str]]:
    from hymt_local.engine.fit import gibibytes

    yield "load", "", f"{result.load_s * 1000:.0f} ms"
    yield "memory", "", gibibytes(result.memory_bytes)
    yield "read a prompt", f"{result.prompt_tokens} tokens", f"{result.prompt_tokens_per_s:.1f} tokens/s"
    yield "write an answer", f"{result.output_tokens} tokens", f"{result.output_tokens_per_s:.1f} tokens/s"
    yield "first token", "after a new prompt", f"{result.first_token_s * 1000:.0f} ms"
    fastest = max((point.output_tokens_per_s for point in result.batch), default=0.0)
    for point in result.batch:
        bar = "━" * max(1, round(BAR_CELLS * point.output_tokens_per_s / fastest)) if fastest else ""
        yield "together, with prompts", f"{point.generations:>2} {bar}", f"{point.output_tokens_per_s:.1f} tokens/s"
    yield "an answer with a right draft", "", f"{result.draft_ratio:.2f} of its time"
    yield "first token, kept prompt", "", f"{result.prefix_ratio:.2f} of its time"
    yield from _counter_rows(result.counters)


def _counter_rows(counters: EngineCounters) -> Iterator[tuple[str, str, str]]:
    drafts, prefixes = counters.drafts, counters.prefixes
    if drafts.guessed:
        share = f"{drafts.accepted} of {drafts.guessed} tokens right"
        yield "drafts", output.counted(drafts.slices, "slice"), share + (", given up" if drafts.is_given_up else "")
    if prefixes.hits:
        milliseconds = 1000 * prefixes.restored_s / prefixes.hits
        yield "prompts restored", f"{prefixes.hits} of {prefixes.hits + prefixes.misses}", f"{milliseconds:.1f} ms each"
    if prefixes.given_up:
        lengths = ", ".join(map(str, prefixes.given_up))
        yield "prompts not worth keeping", f"from {lengths} tokens", "restoring takes longer than reading"


def _peer_rows(result: BenchResult) -> Iterator[tuple[str, str, str]]:
    best = max((point.output_tokens_per_s for point in result.batch), default=0.0)
    for peer in result.peers:
        if peer.error:
            yield peer.name, "failed", peer.error
        for what, theirs, ours in (
            ("reads", peer.prompt_tokens_per_s, result.prompt_tokens_per_s),
            ("writes", peer.output_tokens_per_s, result.output_tokens_per_s),
            ("together", peer.batch_tokens_per_s, best),
        ):
            if theirs:
                yield peer.name, what, f"{theirs:.1f} tokens/s; here {ours / theirs:.2f} x"
