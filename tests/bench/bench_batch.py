"""Many segments decoded together against one by one, through the whole engine, on one synthetic model.

Run `python -m tests.bench.bench_batch [--json] [--model FILE]`. Ratios only: the runs alternate, and share whatever
else the machine is doing. The segments are like a document's: one fixed beginning, sources of 15 to 59 tokens, answers
of 8 to 80. Answers are cut at their length, so that both sides do the same work.
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
from dataclasses import asdict, dataclass
from pathlib import Path

from gguf import GGMLQuantizationType

from hymt_local.engine.base import FinishReason, GenerationDone, GenerationRequest, TokensGenerated
from hymt_local.engine.llama import open_llama_backend
from hymt_local.engine.machine import usable_cores
from hymt_local.engine.options import SLOTS, LlamaOptions, default_threads
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


_Clocks = tuple[float, float]
"""Seconds of wall and of processor time."""


def _clocks() -> _Clocks:
    return time.perf_counter(), time.process_time()


def _since(started: _Clocks, ended: _Clocks) -> _Clocks:
    return ended[0] - started[0], ended[1] - started[1]


async def measure(path: Path, *, rounds: int, n_segments: int, threads: int, slots: int) -> BatchGain:
    """Run both ways in turn on two engines of one file."""
    common = LlamaOptions(context_length=CONTEXT_LENGTH, threads=threads, slots=slots)
    engine = ThreadedEngine(open_llama_backend(path, common), path.stem)
    alone = ThreadedEngine(
        open_llama_backend(path, LlamaOptions(context_length=CONTEXT_LENGTH, threads=threads, deterministic=True)),
        "alone",
    )
    info = await engine.load()
    work = segments(n_segments=n_segments)
    times: list[tuple[_Clocks, _Clocks]] = []
    for _ in range(rounds):
        started = _clocks()
        expected = await one_by_one(alone, work)
        middle = _clocks()
        found = await together(engine, work)
        ended = _clocks()
        times.append((_since(started, middle), _since(middle, ended)))
        one, many = times[-1]
        sys.stderr.write(f"wall ratio {one[0] / many[0]:.2f}, processor ratio {one[1] / many[1]:.2f}\n")
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
    )


def main(arguments: list[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--segments", type=int, default=N_SEGMENTS)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--slots", type=int, default=SLOTS[0])
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
            )
        )
    row = asdict(gain)
    if options.json:
        sys.stdout.write(json.dumps(row, indent=2) + "\n")
    else:
        sys.stdout.write("".join(f"{name:>22}  {value}\n" for name, value in row.items()))


if __name__ == "__main__":
    main()
