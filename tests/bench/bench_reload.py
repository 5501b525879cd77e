"""Opening and closing a model again and again: does anything grow?

Run `python -m tests.bench.bench_reload [--cycles 50] [--model FILE] [--json]`. Each cycle loads the model, answers once
and closes it, in this process. Memory is compared after the first cycles, which fill what is kept for ever.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from hymt_local.engine.base import GenerationRequest
from hymt_local.engine.llama import open_llama_backend
from hymt_local.engine.options import LlamaOptions
from hymt_local.installed import demo_file

N_WARM_UP = 5


@dataclass(frozen=True)
class Growth:
    """Between the end of the warm-up and the last cycle."""

    file: str
    cycles: int
    cycle_ms: float
    """Median."""
    rss_bytes: int
    """At the end."""
    growth_bytes_per_cycle: float
    new_files: int
    new_threads: int


def measure(path: Path, *, cycles: int, options: LlamaOptions) -> Growth:
    """Open and close `cycles` times after the warm-up."""
    own = psutil.Process()
    times: list[float] = []
    before = (0, 0, 0)
    for cycle in range(N_WARM_UP + cycles):
        if cycle == N_WARM_UP:
            before = _state(own)
        started = time.perf_counter()
        backend = open_llama_backend(path, options)(lambda fraction: True)
        list(backend.generate(GenerationRequest(tuple(range(40, 80)), 8, n_fixed=32), lambda: False))
        backend.close()
        times.append(time.perf_counter() - started)
    after = _state(own)
    return Growth(
        file=path.name,
        cycles=cycles,
        cycle_ms=1e3 * statistics.median(times[N_WARM_UP:]),
        rss_bytes=after[0],
        growth_bytes_per_cycle=(after[0] - before[0]) / cycles,
        new_files=after[1] - before[1],
        new_threads=after[2] - before[2],
    )


def _state(own: psutil.Process) -> tuple[int, int, int]:
    gc.collect()
    n_files = own.num_fds() if hasattr(own, "num_fds") else own.num_handles()
    return own.memory_info().rss, n_files, own.num_threads()


def main(arguments: list[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--model", type=Path, default=None, help="a GGUF file instead of the demo's")
    options = parser.parse_args(arguments)
    path = options.model or demo_file()
    row = asdict(measure(path, cycles=options.cycles, options=LlamaOptions()))
    if options.json:
        sys.stdout.write(json.dumps(row, indent=2) + "\n")
    else:
        sys.stdout.write("".join(f"{name:>24}  {value}\n" for name, value in row.items()))


if __name__ == "__main__":
    main()
