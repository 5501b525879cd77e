"""What drafts and kept prefixes gain, on one synthetic model, through one backend.

Run `python -m tests.bench.bench_reuse [--json]`. Ratios only, of processor time too: both sides of each run in turn.

A random model does not translate: the answers are dictated, word for word those of `tests.bench.edits`, while all
arithmetic is the model's own. So calls, rows and their times are those of a translator of this geometry.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import get_args

from hymt_local.engine.base import GenerationRequest, TokensGenerated
from hymt_local.engine.llama import LlamaBackend, open_llama_backend
from hymt_local.engine.machine import usable_cores
from hymt_local.engine.options import KvType, LlamaOptions, default_threads
from hymt_local.engine.sampling import Chooser, Logits, checked_argmax
from hymt_local.events import Priority
from tests.bench.bench_batch import MEDIUM
from tests.bench.edits import EDITS, Edit, Kind, ids
from tests.toy_models import ToyModel, write_toy_model

CONTEXT_LENGTH = 3072
N_FIXED = 20
"""Tokens of the instruction before a paragraph."""
N_VOCAB_BYTES = 256
"""Stands for the control token after the source."""
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


class Dictated(Chooser):
    """Chooses what it was told, after the same search for the largest logit as always.

    Args:
        tokens: The answer, its stop token included.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = iter(tokens)

    def choose(self, logits: Logits, *, row: int = -1) -> int:
        """Return the next token."""
        checked_argmax(logits)
        return next(self._tokens)

    def accept(self, tokens: Sequence[int]) -> None:
        """Skip tokens."""
        for _ in tokens:
            next(self._tokens)

    def close(self) -> None:
        """Do nothing."""


def dictated(backend: LlamaBackend, source: str, target: str, *, draft: str = "") -> Timed:
    """Time one translation whose answer is `target`, on the backend's own arithmetic."""
    answer = (*ids(target), min(backend.info.stop_ids))
    batcher = backend._batcher
    assert batcher is not None
    batcher._make_chooser = lambda sampling: Dictated(answer)
    whole = (*prompt(1, n_tokens=N_FIXED), *ids(source), N_VOCAB_BYTES)
    return timed(backend, GenerationRequest(whole, 2 * len(answer), priority=Priority.INTERACTIVE, draft=ids(draft)))


def edit_pair(backend: LlamaBackend, edit: Edit) -> tuple[Timed, Timed]:
    """Translate an edited paragraph from scratch, then as a live edit: after the one before it, with its draft."""
    dictated(backend, "§", "§")  # nothing of the paragraph is known any more
    scratch = dictated(backend, edit.source[1], edit.target[1])
    dictated(backend, "§", "§")
    dictated(backend, edit.source[0], edit.target[0])
    return scratch, dictated(backend, edit.source[1], edit.target[1], draft=edit.target[0])


def measure_edits(path: Path, *, threads: int, kv_type: KvType, n_edits: int) -> list[Gain]:
    """Measure both kinds of edits, each edit a round."""
    options = LlamaOptions(context_length=CONTEXT_LENGTH, threads=threads, prefix_bytes=0, kv_type=kv_type)
    backend = open_llama_backend(path, options)(lambda fraction: True)
    edit_pair(backend, EDITS[0])
    gains = []
    for kind in get_args(Kind):
        pairs = [edit_pair(backend, edit) for edit in EDITS if edit.kind == kind][:n_edits]
        gains.append(summarize(f"word {kind}", pairs, threads=threads))
    backend.close()
    return gains


def measure_prefix(path: Path, folder: Path, *, n_fixed: int, rounds: int, threads: int) -> list[Gain]:
    """Read a prompt whose beginning was saved by another backend, and the same without.

    Returns the time to restore the beginning over the time to read it, and the same of a first token two tokens later.
    """
    fixed = prompt(3, n_tokens=n_fixed)
    requests = [
        GenerationRequest((*fixed, 50 + index % 40, 51), max_tokens=1, n_fixed=n_fixed) for index in range(rounds + 1)
    ]
    keeping = LlamaOptions(context_length=CONTEXT_LENGTH, threads=threads, prefix_dir=folder)
    saver = open_llama_backend(path, keeping)(lambda fraction: True)
    timed(saver, requests[0])
    saver.close()
    firsts: list[tuple[Timed, Timed]] = []
    restores: list[tuple[Timed, Timed]] = []
    for request in requests[1:]:
        plain = open_llama_backend(path, replace(keeping, prefix_dir=None, prefix_bytes=0))(lambda fraction: True)
        kept = open_llama_backend(path, keeping)(lambda fraction: True)
        for backend in (plain, kept):
            timed(backend, GenerationRequest((60, 61, 62), max_tokens=1))
        read, reused = timed(plain, request), timed(kept, request)
        counted = kept.counters.prefixes
        if not counted.hits:
            raise RuntimeError("the prefix was not restored")
        plain.close()
        kept.close()
        firsts.append((read, reused))
        restores.append((_reading(read, reused, counted.restored_s), (counted.restored_s, counted.restored_s, ())))
    return [
        summarize(f"prefix of {n_fixed}: restored instead of read", restores, threads=threads),
        summarize(f"prefix of {n_fixed}: first token, two tokens later", firsts, threads=threads),
    ]


def _reading(read: Timed, reused: Timed, restored_s: float) -> Timed:
    """Return what reading the beginning took: both sides decode the same tokens after it."""
    return read[0] - reused[0] + restored_s, read[1] - reused[1] + restored_s, ()


def main(arguments: list[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--edits", type=int, default=len(EDITS), help="of each kind at most")
    parser.add_argument("--kv-type", default="f16", help="of the edits")
    parser.add_argument("--prefixes", type=int, nargs="*", default=PREFIXES)
    parser.add_argument("--model", type=Path, default=None, help="a GGUF file instead of a synthetic one")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        geometry = replace(MEDIUM, context_length=CONTEXT_LENGTH)
        path = options.model or write_toy_model(Path(folder) / "medium.gguf", ToyModel(geometry))
        threads = options.threads or default_threads(path.stat().st_size, usable_cores())
        gains = measure_edits(path, threads=threads, kv_type=options.kv_type, n_edits=options.edits)
        for n_fixed in options.prefixes:
            prefix_dir = Path(folder) / "prefix"
            gains += measure_prefix(path, prefix_dir, n_fixed=n_fixed, rounds=options.rounds, threads=threads)
    rows = [asdict(gain) for gain in gains]
    if options.json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return
    for row in rows:
        sys.stdout.write("".join(f"{name:>12}  {value}\n" for name, value in row.items()) + "\n")


if __name__ == "__main__":
    main()
