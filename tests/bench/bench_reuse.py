"""What drafts and kept prefixes gain, on one synthetic model, through one backend.

Run `python -m tests.bench.bench_reuse [--json]`. Ratios only, of processor time too: both sides of each run in turn.

A random model does not translate, so the edit is simulated from its other end: the prompt is edited as the user would,
and the draft is the new answer with the difference that such an edit makes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hymt_local.engine.base import GenerationRequest, TokensGenerated
from hymt_local.engine.llama import LlamaBackend, open_llama_backend
from hymt_local.engine.machine import usable_cores
from hymt_local.engine.options import TINY_KV_TYPE, KvType, LlamaOptions, default_threads
from hymt_local.events import Priority
from tests.bench.bench_batch import MEDIUM
from tests.toy_models import ToyModel, write_toy_model

CONTEXT_LENGTH = 3072
N_FIXED = 40
N_SOURCE = 80
"""A paragraph of 60 words."""
N_ANSWER = 100
PREFIXES = (20, 512, 2048)


@dataclass(frozen=True)
class Gain:
    """Medians over the rounds."""

    what: str
    threads: int
    rounds: int
    scratch_ms: float
    reused_ms: float
    wall_ratio: float
    """Time with reuse over time from scratch: median of the rounds' own ratios."""
    cpu_ratio: float
    same: bool
    """The text is the same, token by token, in all rounds."""


Timed = tuple[float, float, tuple[int, ...]]
"""Wall seconds, processor seconds, answer."""


def timed(backend: LlamaBackend, request: GenerationRequest) -> Timed:
    """Run one generation alone."""
    ids: list[int] = []
    wall, cpu = time.perf_counter(), time.process_time()
    for event in backend.generate(request, lambda: False):
        if isinstance(event, TokensGenerated):
            ids += event.ids
    return time.perf_counter() - wall, time.process_time() - cpu, tuple(ids)


def summarize(what: str, pairs: Sequence[tuple[Timed, Timed]], *, threads: int) -> Gain:
    """Reduce pairs (from scratch, reused) to medians."""
    return Gain(
        what=what,
        threads=threads,
        rounds=len(pairs),
        scratch_ms=1e3 * statistics.median(scratch[0] for scratch, _ in pairs),
        reused_ms=1e3 * statistics.median(reused[0] for _, reused in pairs),
        wall_ratio=statistics.median(reused[0] / scratch[0] for scratch, reused in pairs),
        cpu_ratio=statistics.median(reused[1] / scratch[1] for scratch, reused in pairs),
        same=all(scratch[2] == reused[2] for scratch, reused in pairs),
    )


def prompt(seed: int, *, n_tokens: int) -> tuple[int, ...]:
    """Return a prompt that no other seed's begins like."""
    return (33 + seed % 90, *(33 + (seed * 7 + index * 31 + index * index) % 90 for index in range(n_tokens - 1)))


def appended(before: tuple[int, ...], answer: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the prompt with a word more before its end, and the draft that lacks the answer's end."""
    return (*before[:-5], 40, 41, *before[-5:]), answer[:-3]


def changed(before: tuple[int, ...], answer: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the prompt with one word changed in its middle, and the draft that differs in its middle."""
    middle, half = len(before) // 2, len(answer) // 2
    return (*before[:middle], 40, 41, *before[middle + 2 :]), (*answer[:half], 40, 41, *answer[half + 2 :])


Edit = Callable[[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]


def edit_pair(backend: LlamaBackend, seed: int, *, edit: Edit) -> tuple[Timed, Timed]:
    """Answer an edited prompt from scratch, then as a live edit: after the prompt before it, with a draft."""
    before = prompt(seed, n_tokens=N_FIXED + N_SOURCE)
    after, _ = edit(before, ())
    request = GenerationRequest(after, N_ANSWER, priority=Priority.INTERACTIVE)
    timed(backend, GenerationRequest(prompt(seed + 1, n_tokens=30), 1, priority=Priority.INTERACTIVE))
    scratch = timed(backend, request)
    timed(backend, GenerationRequest(before, N_ANSWER, priority=Priority.INTERACTIVE))
    _, draft = edit(before, scratch[2])
    return scratch, timed(backend, replace(request, draft=draft))


def measure_edits(path: Path, *, rounds: int, threads: int, kv_type: KvType) -> list[Gain]:
    """Measure both edits."""
    options = LlamaOptions(context_length=CONTEXT_LENGTH, threads=threads, prefix_bytes=0, kv_type=kv_type)
    backend = open_llama_backend(path, options)(lambda fraction: True)
    gains = []
    for what, edit in (("word appended", appended), ("word changed", changed)):
        pairs = [edit_pair(backend, 10 * seed, edit=edit) for seed in range(rounds + 1)][1:]
        gains.append(summarize(what, pairs, threads=threads))
    backend.close()
    return gains


def measure_prefix(path: Path, folder: Path, *, n_fixed: int, rounds: int, threads: int) -> Gain:
    """Read a prompt whose beginning was saved by another backend, and the same without."""
    fixed = prompt(3, n_tokens=n_fixed)
    requests = [
        GenerationRequest((*fixed, 50 + index % 40, 51), max_tokens=1, n_fixed=n_fixed) for index in range(rounds + 1)
    ]
    keeping = LlamaOptions(context_length=CONTEXT_LENGTH, threads=threads, prefix_dir=folder)
    saver = open_llama_backend(path, keeping)(lambda fraction: True)
    timed(saver, requests[0])
    saver.close()
    pairs: list[tuple[Timed, Timed]] = []
    for request in requests[1:]:
        plain = open_llama_backend(path, replace(keeping, prefix_dir=None, prefix_bytes=0))(lambda fraction: True)
        kept = open_llama_backend(path, keeping)(lambda fraction: True)
        for backend in (plain, kept):
            timed(backend, GenerationRequest((60, 61, 62), max_tokens=1))
        pairs.append((timed(plain, request), timed(kept, request)))
        if not kept.counters.prefixes.hits:
            raise RuntimeError("the prefix was not restored")
        plain.close()
        kept.close()
    return summarize(f"prefix of {n_fixed}, with two more tokens", pairs, threads=threads)


def main(arguments: list[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument(
        "--kv-type", default=TINY_KV_TYPE, help="of the edits; a random model is all near ties with f16"
    )
    parser.add_argument("--prefixes", type=int, nargs="*", default=PREFIXES)
    parser.add_argument("--model", type=Path, default=None, help="a GGUF file instead of a synthetic one")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        geometry = replace(MEDIUM, context_length=CONTEXT_LENGTH)
        path = options.model or write_toy_model(Path(folder) / "medium.gguf", ToyModel(geometry))
        threads = options.threads or default_threads(path.stat().st_size, usable_cores())
        gains = measure_edits(path, rounds=options.rounds, threads=threads, kv_type=options.kv_type)
        gains += [
            measure_prefix(path, Path(folder) / "prefix", n_fixed=n_fixed, rounds=options.rounds, threads=threads)
            for n_fixed in options.prefixes
        ]
    rows = [asdict(gain) for gain in gains]
    if options.json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return
    for row in rows:
        sys.stdout.write("".join(f"{name:>12}  {value}\n" for name, value in row.items()) + "\n")


if __name__ == "__main__":
    main()
