"""Decoding speed of the engine against a bare llama_decode loop on the same file, in one process, interleaved.

Run `python -m tests.bench.bench_decode [--json]`. Ratios only: both sides share whatever else the machine is doing,
round by round. Two files: one whose token takes 5 ms or more, for the ratio; one whose arithmetic is nearly free but
whose vocabulary is real-sized, for the cost of Python per token.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType

from hymt_local.engine.base import GenerationRequest, TokensGenerated
from hymt_local.engine.llama import LlamaBackend, load_library, open_llama_backend
from hymt_local.engine.machine import usable_cores
from hymt_local.engine.options import LlamaOptions, default_threads
from hymt_local.engine.scheduler import ThreadedEngine
from tests.toy_models import ToyGeometry, ToyModel, write_toy_model

N_REAL_VOCABULARY = 120_000
CONTEXT_LENGTH = 512
PROMPT = tuple(range(32, 96))

HEAVY = ToyGeometry(
    hidden=1024, layers=12, heads=16, kv_heads=4, head_dim=64, feed_forward=4096,
    n_filler_tokens=N_REAL_VOCABULARY, tensor_type=GGMLQuantizationType.Q8_0,
)  # fmt: skip
LIGHT = ToyGeometry(
    hidden=64, layers=1, n_filler_tokens=N_REAL_VOCABULARY, tensor_type=GGMLQuantizationType.Q8_0
)  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """One run: seconds per decoded token."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class Comparison:
    """Medians over the rounds of one file."""

    file: str
    size_bytes: int
    threads: int
    rounds: int
    tokens_per_round: int
    bare_ms: float
    engine_ms: float
    wall_ratio: float
    """Speed of the engine over speed of the bare loop: median of the rounds' own ratios of wall time."""
    cpu_ratio: float
    """The same of processor time, which other programs disturb less."""
    overhead_us: float
    """Processor time per token beyond the bare loop's: Python, both threads together."""


def compare(path: Path, *, series: int, rounds: int, n_tokens: int) -> Comparison:
    """Run both loops in turn, on the same weights in memory; each series has contexts of its own.

    Where buffers happen to lie makes some 3 % of difference, as much as what is to be measured: hence several series.
    """
    threads = default_threads(path.stat().st_size, usable_cores())
    pairs = [
        pair for _ in range(series) for pair in _one_series(path, threads=threads, rounds=rounds, n_tokens=n_tokens)
    ]
    return summarize(path, pairs, threads=threads, n_tokens=n_tokens)


def _one_series(path: Path, *, threads: int, rounds: int, n_tokens: int) -> list[tuple[Sample, Sample]]:
    opened: list[LlamaBackend] = []

    def open_and_remember(on_progress: Callable[[float], bool]) -> LlamaBackend:
        options = LlamaOptions(context_length=CONTEXT_LENGTH, threads=threads)
        opened.append(open_llama_backend(path, options)(on_progress))
        return opened[0]

    engine = ThreadedEngine(open_and_remember, path.stem)
    with asyncio.Runner() as runner:
        info = runner.run(engine.load())
        bare = BareLoop(opened[0]._model, threads=threads, n_vocab=info.vocab_size)
        pairs = [_round(index, bare, engine, runner=runner, n_tokens=n_tokens) for index in range(rounds + 1)]
        bare.close()
        runner.run(engine.close())
    return pairs[1:]  # the first round warms caches


def _round(
    index: int, bare: BareLoop, engine: ThreadedEngine, *, runner: asyncio.Runner, n_tokens: int
) -> tuple[Sample, Sample]:
    if index % 2:
        first = bare.run(n_tokens)
        return first, runner.run(run_engine(engine, n_tokens))
    first = runner.run(run_engine(engine, n_tokens))
    return bare.run(n_tokens), first


def summarize(path: Path, pairs: list[tuple[Sample, Sample]], *, threads: int, n_tokens: int) -> Comparison:
    """Reduce paired samples (bare, engine) to medians."""
    return Comparison(
        file=path.stem,
        size_bytes=path.stat().st_size,
        threads=threads,
        rounds=len(pairs),
        tokens_per_round=n_tokens,
        bare_ms=1e3 * statistics.median(bare.wall_s for bare, _ in pairs),
        engine_ms=1e3 * statistics.median(engine.wall_s for _, engine in pairs),
        wall_ratio=statistics.median(bare.wall_s / engine.wall_s for bare, engine in pairs),
        cpu_ratio=statistics.median(bare.cpu_s / engine.cpu_s for bare, engine in pairs),
        overhead_us=1e6 * statistics.median(engine.cpu_s - bare.cpu_s for bare, engine in pairs),
    )


async def run_engine(engine: ThreadedEngine, n_tokens: int) -> Sample:
    """Time the tokens after the first one, as the consumer sees them."""
    n_seen = 0
    started = (0.0, 0.0)
    async for event in engine.generate(GenerationRequest(PROMPT, max_tokens=n_tokens)):
        if isinstance(event, TokensGenerated):
            n_seen += len(event.ids)
            ended = _clocks()
            started = ended if n_seen == 1 else started
    return _per_token(started, ended, n_seen - 1)


class BareLoop:
    """llama_decode and an argmax, nothing else, with the engine's settings."""

    def __init__(self, model: Any, *, threads: int, n_vocab: int) -> None:
        self._api: Any = load_library().api
        self._n_vocab = n_vocab
        params = self._api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = CONTEXT_LENGTH, 256, 256
        params.n_threads = params.n_threads_batch = threads
        params.n_outputs_max = 1
        params.flash_attn_type = self._api.LLAMA_FLASH_ATTN_TYPE_ENABLED
        params.no_perf = True
        self._context = self._api.llama_init_from_model(model, params)

    def run(self, n_tokens: int) -> Sample:
        """Time the tokens after the first one."""
        api, context = self._api, self._context
        api.llama_memory_clear(api.llama_get_memory(context), False)
        prompt = (api.llama_token * len(PROMPT))(*PROMPT)
        api.llama_decode(context, api.llama_batch_get_one(prompt, len(PROMPT)))
        logits = np.ctypeslib.as_array(api.llama_get_logits(context), shape=(self._n_vocab,))
        one = (api.llama_token * 1)(logits.argmax())
        batch = api.llama_batch_get_one(one, 1)
        started = _clocks()
        for _ in range(n_tokens - 1):
            api.llama_decode(context, batch)
            api.llama_get_logits(context)  # waits for the result
            one[0] = logits.argmax()
        return _per_token(started, _clocks(), n_tokens - 1)

    def close(self) -> None:
        """Free the context; the model is the engine's."""
        self._api.llama_free(self._context)


@dataclass(frozen=True)
class Peer:
    """The engine against llama.cpp's own `llama-bench`, in turn: medians over the rounds."""

    file: str
    threads: int
    rounds: int
    llama_bench_ms: float
    engine_ms: float
    wall_ratio: float
    """Speed of the engine over that of llama-bench: median of the rounds' own ratios."""


def compare_with_peer(
    path: Path, program: str, *, rounds: int, n_tokens: int, threads: int, repacks: bool = False
) -> Peer:
    """Decode as many tokens by both; llama-bench loads the file anew each time, which it does not count.

    With `repacks` both rearrange the weights, llama.cpp's default; without, neither does, ours on x86.
    """
    options = LlamaOptions(context_length=CONTEXT_LENGTH, threads=threads, repack=repacks)
    engine = ThreadedEngine(open_llama_backend(path, options), path.stem)
    pairs: list[tuple[float, float]] = []
    with asyncio.Runner() as runner:
        runner.run(run_engine(engine, n_tokens))
        for _ in range(rounds):
            theirs_s = _llama_bench_s(program, path, threads=threads, n_tokens=n_tokens, repacks=repacks)
            pairs.append((theirs_s, runner.run(run_engine(engine, n_tokens)).wall_s))
        runner.run(engine.close())
    return Peer(
        file=path.stem,
        threads=threads,
        rounds=rounds,
        llama_bench_ms=1e3 * statistics.median(theirs for theirs, _ in pairs),
        engine_ms=1e3 * statistics.median(ours for _, ours in pairs),
        wall_ratio=statistics.median(theirs / ours for theirs, ours in pairs),
    )


def _llama_bench_s(program: str, path: Path, *, threads: int, n_tokens: int, repacks: bool) -> float:
    arguments = [
        program, "-m", str(path), "-p", "0", "-n", str(n_tokens), "-r", "1", "-t", str(threads), "-fa", "1",
        "--repack", str(int(repacks)), "-o", "json",
    ]  # fmt: skip
    done = subprocess.run(arguments, capture_output=True, check=True)
    (row,) = json.loads(done.stdout)
    return 1 / float(row["avg_ts"])


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _per_token(started: tuple[float, float], ended: tuple[float, float], n_tokens: int) -> Sample:
    return Sample((ended[0] - started[0]) / n_tokens, (ended[1] - started[1]) / n_tokens)


def run(
    folder: Path, *, series: int, rounds: int, n_tokens: int, geometries: dict[str, ToyGeometry]
) -> list[Comparison]:
    """Write a random model per geometry and compare on each."""
    comparisons = []
    for name, geometry in geometries.items():
        path = write_toy_model(folder / f"{name}.gguf", ToyModel(geometry))
        comparisons.append(compare(path, series=series, rounds=rounds, n_tokens=n_tokens))
        path.unlink()
    return comparisons


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--series", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=33)
    parser.add_argument("--model", type=Path, default=None, help="a GGUF file instead of the synthetic ones")
    parser.add_argument("--peer", default="", help="llama-bench, to compare one model with")
    parser.add_argument("--threads", type=int, default=None, help="with --peer")
    parser.add_argument("--repack", action="store_true", help="with --peer: both rearrange the weights")
    options = parser.parse_args(arguments)
    if options.peer:
        threads = options.threads or default_threads(options.model.stat().st_size, usable_cores())
        peer = compare_with_peer(
            options.model,
            options.peer,
            rounds=options.rounds,
            n_tokens=options.tokens,
            threads=threads,
            repacks=options.repack,
        )
        _print([peer], as_json=options.json)
        return
    if options.model is not None:
        comparison = compare(options.model, series=options.series, rounds=options.rounds, n_tokens=options.tokens)
        _print([comparison], as_json=options.json)
        return
    with tempfile.TemporaryDirectory() as folder:
        comparisons = run(
            Path(folder),
            series=options.series,
            rounds=options.rounds,
            n_tokens=options.tokens,
            geometries={"heavy": HEAVY, "light": LIGHT},
        )
    _print(comparisons, as_json=options.json)


def _print(comparisons: Sequence[Comparison | Peer], *, as_json: bool) -> None:
    rows = [asdict(comparison) for comparison in comparisons]
    if as_json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return
    for row in rows:
        sys.stdout.write("".join(f"{name:>18}  {value}\n" for name, value in row.items()) + "\n")


if __name__ == "__main__":
    main()
