"""Loading and the first token of a 30-token prompt, against llama.cpp's own defaults, each in a process of its own.

Run `python -m tests.bench.bench_load --model FILE [--rounds 5] [--cold] [--json]`. With `--cold` the file is dropped
from the page cache before each load (Linux). Memory is resident memory after the answer, mapped weights included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

PROMPT_TOKENS = 30
CONTEXT_LENGTH = 4096

_OURS = """
import json, sys, time, psutil
from pathlib import Path
from hymt_local.engine.base import GenerationRequest
from hymt_local.engine.llama import load_library, open_llama_backend
from hymt_local.engine.options import LlamaOptions
load_library()
started, started_cpu = time.perf_counter(), time.process_time()
options = LlamaOptions(context_length=4096, threads=int(sys.argv[2]))
backend = open_llama_backend(Path(sys.argv[1]), options)(lambda fraction: True)
loaded = time.perf_counter()
loaded_cpu = time.process_time()
list(backend.generate(GenerationRequest(tuple(range(40, 70)), 1), lambda: False))
ended = time.perf_counter()
print(json.dumps([loaded - started, ended - started, psutil.Process().memory_info().rss, loaded_cpu - started_cpu]))
"""
_DEFAULTS = """
import ctypes, json, sys, time, psutil
from llama_cpp import llama_cpp as api
quiet = api.llama_log_callback(lambda *_: None)
api.llama_log_set(quiet, None)
api.llama_backend_init()
started, started_cpu = time.perf_counter(), time.process_time()
model = api.llama_model_load_from_file(sys.argv[1].encode(), api.llama_model_default_params())
params = api.llama_context_default_params()
params.n_ctx, params.n_threads, params.n_threads_batch = 4096, int(sys.argv[2]), int(sys.argv[2])
context = api.llama_init_from_model(model, params)
loaded = time.perf_counter()
loaded_cpu = time.process_time()
prompt = (api.llama_token * 30)(*range(40, 70))
api.llama_decode(context, api.llama_batch_get_one(prompt, 30))
api.llama_get_logits(context)
ended = time.perf_counter()
print(json.dumps([loaded - started, ended - started, psutil.Process().memory_info().rss, loaded_cpu - started_cpu]))
"""


@dataclass(frozen=True)
class Loading:
    """Medians over the rounds; ratios are medians of the rounds' own."""

    file: str
    cold: bool
    threads: int
    rounds: int
    load_s: float
    first_token_s: float
    """Loading included."""
    rss_bytes: int
    default_load_s: float
    default_first_token_s: float
    default_rss_bytes: int
    load_ratio: float
    first_token_ratio: float
    rss_ratio: float
    load_cpu_ratio: float
    """Of processor time, which other programs disturb less."""


def measure(path: Path, *, rounds: int, threads: int, cold: bool) -> Loading:
    """Load both ways in turn."""
    pairs = [(_run(_OURS, path, threads, cold=cold), _run(_DEFAULTS, path, threads, cold=cold)) for _ in range(rounds)]
    ours, theirs = zip(*pairs, strict=True)
    return Loading(
        file=path.stem,
        cold=cold,
        threads=threads,
        rounds=rounds,
        load_s=statistics.median(row[0] for row in ours),
        first_token_s=statistics.median(row[1] for row in ours),
        rss_bytes=int(statistics.median(row[2] for row in ours)),
        default_load_s=statistics.median(row[0] for row in theirs),
        default_first_token_s=statistics.median(row[1] for row in theirs),
        default_rss_bytes=int(statistics.median(row[2] for row in theirs)),
        load_ratio=statistics.median(a[0] / b[0] for a, b in pairs),
        first_token_ratio=statistics.median(a[1] / b[1] for a, b in pairs),
        rss_ratio=statistics.median(a[2] / b[2] for a, b in pairs),
        load_cpu_ratio=statistics.median(a[3] / b[3] for a, b in pairs),
    )


def _run(program: str, path: Path, threads: int, *, cold: bool) -> list[float]:
    if cold:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), str(threads)], capture_output=True, check=True, text=True
    )
    row: list[float] = json.loads(done.stdout)
    return row


def main(arguments: list[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    row = asdict(measure(options.model, rounds=options.rounds, threads=options.threads, cold=options.cold))
    if options.json:
        sys.stdout.write(json.dumps(row, indent=2) + "\n")
    else:
        sys.stdout.write("".join(f"{name:>22}  {value}\n" for name, value in row.items()))


if __name__ == "__main__":
    main()
