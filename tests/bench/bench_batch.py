"""Many segments decoded together against one by one, through the whole engine, on one synthetic model.

Run `python -m tests.bench.bench_batch [--json] [--model FILE] [--server llama-server]`. Ratios only: the runs
alternate, and share whatever else the machine is doing. The segments are like a document's: one fixed beginning,
sources of 15 to 59 tokens, answers of 8 to 80. Answers are cut at their length, so that all do the same work. One by
one the fixed beginning is read once and kept, as it is in a batch; `--exact` takes the deterministic engine instead,
which reads all of it anew. With `--server` llama.cpp's server does the same with as many slots, its prompt cache on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gguf import GGMLQuantizationType

from hymt_local.cli.bench_peers import complete, running_server
from hymt_local.engine.base import FinishReason, GenerationDone, GenerationRequest, TokensGenerated
from hymt_local.engine.llama import open_llama_backend
from hymt_local.engine.machine import usable_cores
from hymt_local.engine.options import CELLS_PER_SLOT, SLOTS, LlamaOptions, default_threads
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.events import Priority
from tests.toy_models import ToyGeometry, ToyModel, write_toy_model

N_SEGMENTS = 48
N_FIXED = 40
CONTEXT_LENGTH = 1024
MEDIUM = ToyGeometry(
    hidden=768, layers=8, heads=12, kv_heads=4, head_dim=64, feed_forward=2560,
    n_filler_tokens=30_000, tensor_type=GGMLQuantizationType.Q8_0,
)  # fmt: skip
"""A token takes 5 ms or more on one thread."""


@dataclass(frozen=True)
class BatchGain:
    """Medians over the rounds."""

    file: str
    threads: int
    slots: int
    segments: int
    rounds: int
    output_tokens: int
    alone_tokens_per_s: float
    together_tokens_per_s: float
    wall_ratio: float
    """Time one by one over time together: median of the rounds' own ratios."""
    cpu_ratio: float
    """The same of processor time, which other programs disturb less."""
    different: float
    """Share of the answers that are not the same token by token: where two logits tie, kernels decide."""
    interactive_ratio: float
    """First token of an interactive request during the document over its time alone."""
    server_ratio: float
    """Time of llama.cpp's server over time together: median of the rounds' own ratios; 0.0 without one."""


def segments(*, n_segments: int, first_id: int = 33, n_ids: int = 90) -> list[GenerationRequest]:
    """Return the prompts of a document."""
    draw = random.Random(7)
    fixed = tuple(first_id + draw.randrange(n_ids) for _ in range(N_FIXED))
    return [
        GenerationRequest(
            (*fixed, *(first_id + draw.randrange(n_ids) for _ in range(draw.randint(15, 59)))),
            max_tokens=draw.randint(8, 80),
            priority=Priority.DOCUMENT,
        )
        for _ in range(n_segments)
    ]


async def answer(engine: ThreadedEngine, request: GenerationRequest) -> tuple[int, ...]:
    """Return the tokens of one answer."""
    ids: list[int] = []
    async for event in engine.generate(request):
        if isinstance(event, TokensGenerated):
            ids += event.ids
        if isinstance(event, GenerationDone) and event.reason is FinishReason.CANCELLED:
            raise RuntimeError("cancelled")
    return tuple(ids)


async def one_by_one(engine: ThreadedEngine, work: Sequence[GenerationRequest]) -> list[tuple[int, ...]]:
    """Answer the requests one after the other."""
    return [await answer(engine, request) for request in work]


async def together(engine: ThreadedEngine, work: Sequence[GenerationRequest]) -> list[tuple[int, ...]]:
    """Hand all requests over at once."""
    return list(await asyncio.gather(*(answer(engine, request) for request in work)))


async def first_token_s(engine: ThreadedEngine) -> float:
    """Time the first token of an interactive request."""
    request = GenerationRequest(tuple(range(40, 70)), 8, priority=Priority.INTERACTIVE)
    started = time.perf_counter()
    async for event in engine.generate(request):
        if isinstance(event, TokensGenerated):
            return time.perf_counter() - started
    raise RuntimeError("no answer")


async def interactive_beside(engine: ThreadedEngine, work: Sequence[GenerationRequest]) -> float:
    """Return the ratio of first-token times during a document and alone; nothing of the prompt is reused."""
    await answer(engine, GenerationRequest(tuple(range(70, 40, -1)), 2, priority=Priority.INTERACTIVE))
    alone_s = await first_token_s(engine)
    await answer(engine, GenerationRequest(tuple(range(70, 40, -1)), 2, priority=Priority.INTERACTIVE))
    document = asyncio.ensure_future(together(engine, work))
    await asyncio.wait([document], timeout=4 * alone_s)
    ratio = await first_token_s(engine) / alone_s
    await document
    return ratio


def server_work(
    program: str, path: Path, work: Sequence[GenerationRequest], *, threads: int, slots: int
) -> tuple[int, float]:
    """Let llama.cpp's server answer everything, with as many slots; return its output tokens and seconds.

    Its answers are cut where ours are; a model that stops by itself would not do the same work.
    """
    n_cells = slots * CELLS_PER_SLOT
    more = ("-c", str(n_cells), "-t", str(threads), "-np", str(slots), "-fa", "on", "--kv-unified")
    with running_server(program, path, arguments=more) as address, ThreadPoolExecutor(slots) as pool:
        complete(address, work[0].prompt[:N_FIXED], n_tokens=1)
        started = time.perf_counter()
        told = pool.map(lambda one: complete(address, one.prompt, n_tokens=one.max_tokens), work)
        return sum(told), time.perf_counter() - started


_Clocks = tuple[float, float]
"""Seconds of wall and of processor time."""


def _clocks() -> _Clocks:
    return time.perf_counter(), time.process_time()


def _since(started: _Clocks, ended: _Clocks) -> _Clocks:
    return ended[0] - started[0], ended[1] - started[1]


async def measure(
    path: Path, *, rounds: int, n_segments: int, threads: int, slots: int, is_exact: bool = False, server: str = ""
) -> BatchGain:
    """Run all ways in turn on one file."""
    common = LlamaOptions(context_length=CONTEXT_LENGTH, threads=threads, slots=slots)
    engine = ThreadedEngine(open_llama_backend(path, common), path.stem)
    single = replace(common, slots=1, deterministic=is_exact)
    alone = ThreadedEngine(open_llama_backend(path, single), "alone")
    info = await engine.load()
    work = segments(n_segments=n_segments)
    times: list[tuple[_Clocks, _Clocks]] = []
    server_ratios: list[float] = []
    for _ in range(rounds):
        started = _clocks()
        expected = await one_by_one(alone, work)
        middle = _clocks()
        found = await together(engine, work)
        ended = _clocks()
        times.append((_since(started, middle), _since(middle, ended)))
        one, many = times[-1]
        if server:
            n_told, server_s = server_work(server, path, work, threads=threads, slots=slots)
            server_ratios.append(server_s / many[0])
            sys.stderr.write(f"server {server_s:.1f} s for {n_told} tokens\n")
        sys.stderr.write(
            f"{one[0]:.1f} s one by one, {many[0]:.1f} s together: wall {one[0] / many[0]:.2f}, "
            f"processor {one[1] / many[1]:.2f}\n"
        )
    n_tokens = sum(map(len, found))
    ratios = [await interactive_beside(engine, work[: n_segments - 8]) for _ in range(rounds)]
    await alone.close()
    await engine.close()
    return BatchGain(
        file=path.stem,
        threads=threads,
        slots=info.slots,
        segments=n_segments,
        rounds=rounds,
        output_tokens=n_tokens,
        alone_tokens_per_s=n_tokens / statistics.median(alone_s for (alone_s, _), _ in times),
        together_tokens_per_s=n_tokens / statistics.median(together_s for _, (together_s, _) in times),
        wall_ratio=statistics.median(one[0] / many[0] for one, many in times),
        cpu_ratio=statistics.median(one[1] / many[1] for one, many in times),
        different=sum(a != b for a, b in zip(expected, found, strict=True)) / n_segments,
        interactive_ratio=statistics.median(ratios),
        server_ratio=statistics.median(server_ratios or [0.0]),
    )


def main(arguments: list[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--segments", type=int, default=N_SEGMENTS)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--slots", type=int, default=SLOTS[0])
    parser.add_argument("--exact", action="store_true", help="one by one on the deterministic engine")
    parser.add_argument("--server", default="", help="llama-server, to do the same")
    parser.add_argument("--model", type=Path, default=None, help="a GGUF file instead of a synthetic one")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = options.model or write_toy_model(Path(folder) / "medium.gguf", ToyModel(MEDIUM))
        gain = asyncio.run(
            measure(
                path,
                rounds=options.rounds,
                n_segments=options.segments,
                threads=options.threads or default_threads(path.stat().st_size, usable_cores()),
                slots=options.slots,
                is_exact=options.exact,
                server=options.server,
            )
        )
    row = asdict(gain)
    if options.json:
        sys.stdout.write(json.dumps(row, indent=2) + "\n")
    else:
        sys.stdout.write("".join(f"{name:>22}  {value}\n" for name, value in row.items()))


if __name__ == "__main__":
    main()
