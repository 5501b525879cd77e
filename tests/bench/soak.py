"""Random work for a while, compared with the same work one by one: no leak, no wrong text, nothing lost.

Run `python -m tests.bench.soak --minutes 10 [--process] [--kill-every 20]`. Requests of the embedded demo model arrive
at random, with random priorities and drafts; some leave before they are done. What was answered is compared with the
deterministic engine's answers: they may part only where two tokens are almost equally likely, which is counted. With
`--process` the engine runs in a process of its own, which `--kill-every` kills now and then. The exit status is 1 when
something was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import psutil

from hymt_local.engine.base import (
    Backend,
    BackendOpener,
    FinishReason,
    GenerationDone,
    GenerationRequest,
    TokensGenerated,
)
from hymt_local.engine.host import HostedBackend
from hymt_local.engine.llama import open_llama_backend
from hymt_local.engine.options import TINY_KV_TYPE, LlamaOptions
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.events import Priority
from hymt_local.installed import demo_file
from hymt_local.loading import LlamaOrders
from tests.bench.bench_ties import alone, gap
from tests.bench.demo_requests import demo_requests

MOST_GAP = 0.5
"""In logits: two tokens closer than this are a near tie."""
N_CLIENTS = 40
WARM_UP_SHARE = 0.2
MOST_GROWTH_BYTES = 24 << 20


@dataclass
class Record:
    """What happened."""

    seconds: float = 0.0
    answers: int = 0
    left: int = 0
    """Generations that were given up by their client."""
    tokens: int = 0
    near_ties: int = 0
    largest_gap: float = 0.0
    wrong: int = 0
    """Answers that differ for no good reason, or did not end properly."""
    kills: int = 0
    rss_growth_bytes: int = 0
    """After the first fifth of the time."""
    new_files: int = 0
    errors: list[str] = field(default_factory=list)


@dataclass
class Soak:
    """One run.

    Args:
        engine: Under test.
        requests: What clients ask.
        right: The answers.
        draw: Decides everything.
        record: Filled.
    """

    engine: ThreadedEngine
    requests: list[GenerationRequest]
    right: list[list[int]]
    draw: random.Random
    record: Record
    differing: list[tuple[int, list[int]]] = field(default_factory=list)

    async def client(self, deadline: float) -> None:
        """Ask one request after the other."""
        while time.monotonic() < deadline:
            await asyncio.sleep(self.draw.random() * 0.05)
            index = self.draw.randrange(len(self.requests))
            request = replace(self.requests[index], priority=self.draw.choice(list(Priority)))
            if self.draw.random() < 0.3:
                request = replace(request, draft=self._draft(index))
            n_most = self.draw.choice([None, None, None, 0, 1, 4])
            await self._ask(index, request, n_most)

    def _draft(self, index: int) -> tuple[int, ...]:
        draft = list(self.right[index])
        if draft and self.draw.random() < 0.5:
            draft[self.draw.randrange(len(draft))] = 77
        return tuple(draft)

    async def _ask(self, index: int, request: GenerationRequest, n_most: int | None) -> None:
        ids: list[int] = []
        last: GenerationDone | None = None
        async with aclosing(self.engine.generate(request)) as events:
            async for event in events:
                if isinstance(event, TokensGenerated):
                    ids += event.ids
                elif isinstance(event, GenerationDone):
                    last = event
                if n_most is not None and len(ids) >= n_most and last is None:
                    self.record.left += 1
                    break
        self.record.tokens += len(ids)
        right = self.right[index] if last is not None else self.right[index][: len(ids)]
        if last is not None:
            self.record.answers += 1
            if last.reason is FinishReason.CANCELLED or last.usage.output_tokens != len(ids):
                self.record.wrong += 1
                self.record.errors.append(f"{last} after {len(ids)} tokens")
        if ids != right:
            self.differing.append((index, ids))


async def run(seconds: float, *, path: Path, in_process: bool, kill_every_s: float, seed: int) -> Record:
    """Run clients for a while and judge what they got."""
    options = LlamaOptions(kv_type=TINY_KV_TYPE)
    judge = open_llama_backend(path, replace(options, deterministic=True))(lambda fraction: True)
    requests = list(demo_requests(judge))
    record = Record()
    opened: list[Backend] = []
    engine = ThreadedEngine(_remembering(_opener(path, options, in_process=in_process), opened), "soak")
    await engine.load()
    soak = Soak(engine, requests, alone(judge, requests), random.Random(seed), record)
    started = time.monotonic()
    tasks = [asyncio.ensure_future(soak.client(started + seconds)) for _ in range(N_CLIENTS)]
    if kill_every_s and isinstance(opened[0], HostedBackend):
        tasks.append(asyncio.ensure_future(_kill_now_and_then(opened[0], started + seconds, kill_every_s, record)))
    before = await _state_after(WARM_UP_SHARE * seconds)
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, BaseException):
            record.wrong += 1
            record.errors.append(repr(result))
    record.seconds = time.monotonic() - started
    after = await _state_after(0)
    record.rss_growth_bytes, record.new_files = after[0] - before[0], after[1] - before[1]
    await engine.close()
    for index, ids in soak.differing:
        found_gap = gap(judge, requests[index].prompt, right=soak.right[index], other=ids)
        record.largest_gap = max(record.largest_gap, found_gap)
        record.near_ties += found_gap <= MOST_GAP
        record.wrong += found_gap > MOST_GAP
    judge.close()
    return record


def _opener(path: Path, options: LlamaOptions, *, in_process: bool) -> BackendOpener:
    if not in_process:
        return open_llama_backend(path, options)
    return lambda on_progress: HostedBackend(
        lambda ask_gpus: LlamaOrders(path, options), name="soak", on_progress=on_progress
    )


def _remembering(opener: BackendOpener, opened: list[Backend]) -> BackendOpener:
    def open_it(on_progress: Callable[[float], bool]) -> Backend:
        opened.append(opener(on_progress))
        return opened[-1]

    return open_it


async def _kill_now_and_then(backend: HostedBackend, deadline: float, every_s: float, record: Record) -> None:
    while time.monotonic() + every_s < deadline:
        await asyncio.sleep(every_s)
        pid = backend.pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            record.kills += 1


async def _state_after(seconds: float) -> tuple[int, int]:
    await asyncio.sleep(seconds)
    gc.collect()
    own = psutil.Process()
    n_files = own.num_fds() if hasattr(own, "num_fds") else own.num_handles()
    return own.memory_info().rss, n_files


def main(arguments: list[str] | None = None) -> int:
    """Print what happened; return 1 when something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--process", action="store_true", help="run the engine in a process of its own")
    parser.add_argument("--kill-every", type=float, default=0.0, metavar="S", help="kill that process so often")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    record = asyncio.run(
        run(
            60 * options.minutes,
            path=demo_file(),
            in_process=options.process,
            kill_every_s=options.kill_every,
            seed=options.seed,
        )
    )
    row = asdict(record)
    if options.json:
        sys.stdout.write(json.dumps(row, indent=2) + "\n")
    else:
        sys.stdout.write("".join(f"{name:>18}  {value}\n" for name, value in row.items()))
    return int(record.wrong > 0 or record.new_files > 0 or record.rss_growth_bytes > MOST_GROWTH_BYTES)


if __name__ == "__main__":
    sys.exit(main())
