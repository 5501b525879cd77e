"""How long a cancelled generation goes on, at random points of reading and writing, and what the process costs.

Run `python -m tests.bench.bench_cancel --model FILE [--rounds 40] [--json]`. The engine runs in a process of its own;
the latency is from leaving the iteration until nothing is computed any more and the engine takes the next order. After
each, the answer to a known prompt must be what it was. Decoding through the process is compared with decoding in this
one, in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path

from hymt_local.engine.base import GenerationRequest, TokensGenerated
from hymt_local.engine.host import open_hosted
from hymt_local.engine.llama import open_llama_backend
from hymt_local.engine.machine import usable_cores
from hymt_local.engine.options import LlamaOptions, default_threads
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.loading import LlamaOrders

PROMPT = tuple(33 + (index * 31 + index * index) % 90 for index in range(512))
SHORT = tuple(range(60, 72))


@dataclass(frozen=True)
class Cancelling:
    """Latencies in milliseconds."""

    file: str
    threads: int
    rounds: int
    reading_median_ms: float
    reading_p95_ms: float
    reading_worst_ms: float
    writing_median_ms: float
    writing_p95_ms: float
    writing_worst_ms: float
    wrong: int
    """Answers after a cancel that were not what they had been before."""
    process_ratio: float
    """Speed of decoding in a process of its own over that in this one: median of the rounds' own."""


async def measure(path: Path, *, rounds: int, threads: int, seed: int = 3) -> Cancelling:
    """Cancel at random points."""
    draw = random.Random(seed)
    options = LlamaOptions(context_length=2048, threads=threads, prefix_bytes=0)
    engine = ThreadedEngine(open_hosted(lambda ask_gpus: LlamaOrders(path, options), name=path.stem), "hosted")
    await engine.load()
    expected = [await _answer(engine), await _answer(engine)]  # the prompt read at once, and found read but for its end
    reading_s = await _reading_time(engine)
    token_s = await _decode_s(engine)
    reading, writing, wrong = list[float](), list[float](), 0
    for turn in range(rounds):
        is_reading = turn % 2 == 0
        delay_s = draw.random() * (reading_s if is_reading else token_s)
        latency_s = await _cancel(engine, turn, delay_s=delay_s, n_tokens=0 if is_reading else draw.randint(1, 6))
        (reading if is_reading else writing).append(latency_s)
        wrong += await _answer(engine) not in expected
    inline = ThreadedEngine(open_llama_backend(path, options), "inline")
    ratios = [await _decode_s(inline) / await _decode_s(engine) for _ in range(6)][1:]
    await engine.close()
    await inline.close()
    return Cancelling(
        file=path.stem,
        threads=threads,
        rounds=rounds,
        reading_median_ms=1e3 * statistics.median(reading),
        reading_p95_ms=1e3 * statistics.quantiles(reading, n=20)[-1],
        reading_worst_ms=1e3 * max(reading),
        writing_median_ms=1e3 * statistics.median(writing),
        writing_p95_ms=1e3 * statistics.quantiles(writing, n=20)[-1],
        writing_worst_ms=1e3 * max(writing),
        wrong=wrong,
        process_ratio=statistics.median(ratios),
    )


async def _cancel(engine: ThreadedEngine, turn: int, *, delay_s: float, n_tokens: int) -> float:
    """Leave a generation after a time, or some time after some tokens; return how long until the engine is idle."""
    prompt = (33 + turn % 90, *PROMPT[1:]) if not n_tokens else (33 + turn % 90, *SHORT)
    leaving = 0.0
    async with aclosing(engine.generate(GenerationRequest(prompt, 64))) as events:
        await anext(events)
        n_seen = 0
        while n_seen < n_tokens:
            n_seen += isinstance(await anext(events), TokensGenerated)
        await asyncio.sleep(delay_s)
        leaving = time.perf_counter()
    await engine.counters()  # answered between two steps: by then none is under way
    return time.perf_counter() - leaving


async def _answer(engine: ThreadedEngine) -> list[int]:
    ids: list[int] = []
    async for event in engine.generate(GenerationRequest(SHORT, 3)):
        ids += event.ids if isinstance(event, TokensGenerated) else ()
    return ids


async def _reading_time(engine: ThreadedEngine) -> float:
    started = time.perf_counter()
    async for _ in engine.generate(GenerationRequest((32, *PROMPT[1:]), 0)):
        pass
    return time.perf_counter() - started


async def _decode_s(engine: ThreadedEngine) -> float:
    n_seen, first = 0, 0.0
    async for event in engine.generate(GenerationRequest(SHORT, 33)):
        if isinstance(event, TokensGenerated):
            n_seen += len(event.ids)
            first = first or time.perf_counter()
    return (time.perf_counter() - first) / max(1, n_seen - 1)


def main(arguments: list[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    threads = options.threads or default_threads(options.model.stat().st_size, usable_cores())
    row = asdict(asyncio.run(measure(options.model, rounds=options.rounds, threads=threads)))
    if options.json:
        sys.stdout.write(json.dumps(row, indent=2) + "\n")
    else:
        sys.stdout.write("".join(f"{name:>20}  {value}\n" for name, value in row.items()))


if __name__ == "__main__":
    main()
