"""Many generations at once in one llama backend."""

import asyncio
import random
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from hymt_local.engine.base import GenerationDone, GenerationRequest, TokensGenerated
from hymt_local.engine.llama import LlamaBackend, open_llama_backend
from hymt_local.engine.options import LlamaOptions
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.errors import DecodeError
from hymt_local.events import Priority
from tests.llama_backends import PROMPT, answer, mixed_requests, open_toy

pytestmark = pytest.mark.llama


def play_together(backend: LlamaBackend, requests: list[GenerationRequest]) -> list[list[int]]:
    """Open all that have room, refill at every step; return the answers in the order of the requests."""
    answers: list[list[int]] = [[] for _ in requests]
    waiting, running = list(enumerate(requests)), dict[int, int]()
    while waiting or running:
        while waiting and backend.can_open(waiting[0][1]):
            index, wanted = waiting.pop(0)
            running[backend.open(wanted)] = index
        for ticket, event in backend.step():
            if isinstance(event, Exception):
                raise event
            if isinstance(event, TokensGenerated):
                answers[running[ticket]] += event.ids
            elif isinstance(event, GenerationDone):
                del running[ticket]
    return answers


def test_answers_of_a_batch_are_those_of_each_alone_but_for_near_ties(toy_path: Path) -> None:
    """Kernels differ in the last digits with the number of rows: where two logits tie, either may win."""
    requests = mixed_requests(40)
    options = LlamaOptions(kv_type="bf16")
    batched, alone = open_toy(toy_path, options), open_toy(toy_path, replace(options, deterministic=True))
    assert (batched.info.slots, alone.info.slots) == (32, 1)
    expected = [answer(alone, request) for request in requests]
    together = play_together(batched, requests)
    assert [len(ids) for ids in together] == [len(ids) for ids in expected]
    assert sum(ids != right for ids, right in zip(together, expected, strict=True)) <= 1
    batched.close()
    alone.close()


def test_a_context_too_small_for_all_still_serves_all(toy_path: Path) -> None:
    requests = mixed_requests(12)
    alone = open_toy(toy_path, LlamaOptions(deterministic=True))
    expected = [answer(alone, request) for request in requests]
    alone.close()
    small = open_toy(toy_path, LlamaOptions(context_length=128, slots=6))
    context = small._context
    assert context is not None
    small._batcher._decoder = _Fewer(context)  # type: ignore[union-attr]
    together = play_together(small, requests)
    assert sum(ids != right for ids, right in zip(together, expected, strict=True)) <= 1
    small.close()


def test_a_generation_with_nan_fails_alone(toy_path: Path) -> None:
    backend = open_toy(toy_path)
    good, bad = GenerationRequest(PROMPT, 6), GenerationRequest(PROMPT[:9], 6)
    expected = answer(backend, good)
    tickets = [backend.open(good), backend.open(bad)]
    generation = backend._batcher._live[tickets[1]]  # type: ignore[union-attr]
    generation._chooser = _Failing()
    seen: dict[int, list[object]] = {ticket: [] for ticket in tickets}
    while not all(events and isinstance(events[-1], GenerationDone | Exception) for events in seen.values()):
        for ticket, event in backend.step():
            seen[ticket].append(event)
    assert isinstance(seen[tickets[1]][-1], DecodeError)
    ids = [token for event in seen[tickets[0]] if isinstance(event, TokensGenerated) for token in event.ids]
    assert ids == expected
    backend.close()


class _Failing:
    def choose(self, logits: object, *, row: int = -1) -> int:
        raise DecodeError("NaN")

    def close(self) -> None:
        pass


class _Fewer:
    """A decoder that says it has fewer cells than it has."""

    n_cells = 160

    def __init__(self, decoder: object) -> None:
        self._decoder = decoder

    def __getattr__(self, name: str) -> object:
        return getattr(self._decoder, name)


@pytest.mark.parametrize("options", [LlamaOptions(slots=3), LlamaOptions(deterministic=True), LlamaOptions(slots=1)])
def test_slots_are_as_asked_for(toy_path: Path, options: LlamaOptions) -> None:
    backend = open_toy(toy_path, options)
    assert backend.info.slots == options.n_slots
    backend.close()


async def test_a_soak_of_arrivals_and_leavers_gives_nobody_anothers_text(toy_path: Path) -> None:
    alone = open_toy(toy_path, LlamaOptions(deterministic=True))
    requests = mixed_requests(30)
    expected = [answer(alone, wanted) for wanted in requests]
    alone.close()
    engine = ThreadedEngine(open_llama_backend(toy_path), "toy")
    draw = random.Random(5)
    plan = [(draw.choice(list(Priority)), draw.choice([None, None, 1, 3, 9])) for _ in requests]

    async def consume(index: int) -> tuple[list[int], bool]:
        priority, n_most = plan[index]
        ids: list[int] = []
        async with aclosing(engine.generate(replace(requests[index], priority=priority))) as events:
            async for event in events:
                ids += event.ids if isinstance(event, TokensGenerated) else ()
                if n_most is not None and len(ids) >= n_most:
                    return ids, False
        return ids, True

    found = await asyncio.gather(*map(consume, range(len(requests))))
    await engine.close()
    n_different = 0
    for (ids, is_whole), right in zip(found, expected, strict=True):
        assert len(ids) == len(right) or not is_whole
        n_different += ids != right[: len(ids)]
    assert n_different <= 2
