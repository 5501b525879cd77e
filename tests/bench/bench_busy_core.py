"""Decoding while another program keeps one core busy: `python -m tests.bench.bench_busy_core --model FILE [--json]`.

Quiet and busy rounds alternate, in the engine's own number of threads and in one per core. The other program does
nothing but count, at the same priority. A machine that lost one of its cores owes what the others do: the speed is
compared with the quiet one scaled by the cores left.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hymt_local.engine.llama import open_llama_backend
from hymt_local.engine.machine import usable_cores
from hymt_local.engine.options import LlamaOptions, default_threads
from hymt_local.engine.scheduler import ThreadedEngine
from tests.bench.bench_decode import CONTEXT_LENGTH, HEAVY, run_engine
from tests.toy_models import ToyModel, write_toy_model

_COUNTER = "print(flush=True)\nwhile True: pass"


@dataclass(frozen=True)
class BusyCore:
    """Medians over the rounds, with one number of threads."""

    file: str
    threads: int
    cores: int
    rounds: int
    quiet_tokens_per_s: float
    busy_tokens_per_s: float
    kept: float
    """Busy speed over quiet speed: median of the rounds' own ratios."""
    kept_of_cores_left: float
    """The same, over the share of the cores that is left."""


@contextlib.contextmanager
def busy_core() -> Iterator[None]:
    """Keep one core busy."""
    with subprocess.Popen([sys.executable, "-c", _COUNTER], stdout=subprocess.PIPE) as counter:
        assert counter.stdout is not None
        counter.stdout.readline()
        try:
            yield
        finally:
            counter.kill()


def measure(path: Path, *, threads: int, rounds: int, n_tokens: int) -> BusyCore:
    """Decode in turn on a quiet and on a busy machine."""
    engine = ThreadedEngine(open_llama_backend(path, LlamaOptions(context_length=CONTEXT_LENGTH, threads=threads)), "")
    pairs: list[tuple[float, float]] = []
    with asyncio.Runner() as runner:
        runner.run(run_engine(engine, n_tokens))
        for _ in range(rounds):
            quiet_s = runner.run(run_engine(engine, n_tokens)).wall_s
            with busy_core():
                pairs.append((quiet_s, runner.run(run_engine(engine, n_tokens)).wall_s))
        runner.run(engine.close())
    return _summary(path, pairs, threads=threads, cores=usable_cores())


def _summary(path: Path, pairs: Sequence[tuple[float, float]], *, threads: int, cores: int) -> BusyCore:
    kept = statistics.median(quiet_s / busy_s for quiet_s, busy_s in pairs)
    return BusyCore(
        file=path.stem,
        threads=threads,
        cores=cores,
        rounds=len(pairs),
        quiet_tokens_per_s=1 / statistics.median(quiet_s for quiet_s, _ in pairs),
        busy_tokens_per_s=1 / statistics.median(busy_s for _, busy_s in pairs),
        kept=kept,
        kept_of_cores_left=kept * cores / max(1, cores - 1),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=None, help="a GGUF file instead of a synthetic one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = options.model or write_toy_model(Path(folder) / "heavy.gguf", ToyModel(HEAVY))
        own = default_threads(path.stat().st_size, usable_cores())
        rows = [
            asdict(measure(path, threads=threads, rounds=options.rounds, n_tokens=options.tokens))
            for threads in sorted({own, usable_cores()})
        ]
    if options.json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return
    for row in rows:
        sys.stdout.write("".join(f"{name:>20}  {value}\n" for name, value in row.items()) + "\n")


if __name__ == "__main__":
    main()
