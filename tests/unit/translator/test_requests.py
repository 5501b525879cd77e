"""What a translator asks of its engine, and what it streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

import pytest

from hymt_local.engine.base import (
    FinishReason,
    GenerationDone,
    GenerationEvent,
    GenerationRequest,
    ModelInfo,
    TokensGenerated,
)
from hymt_local.engine.counters import EngineCounters
from hymt_local.engine.scripted import Reply, ScriptedBackend, reply
from hymt_local.events import Priority, PromptProgress, TextDelta, TokenUsage
from hymt_local.translator import SEGMENTS_IN_FLIGHT, OpenModel
from tests.services import a_spec, request, scripted_model, streamed
from tests.translating import events_of, finished


async def test_the_stream_joined_is_the_answer_even_when_characters_are_split() -> None:
    backend = ScriptedBackend(Reply("Ça va très bien 👩‍👩‍👧 你好".encode(), chunk=1))
    events = await events_of(scripted_model(backend), request("I am fine"))
    assert streamed(events) == "Ça va très bien 👩‍👩‍👧 你好"
    assert all("\ufffd" not in event.text for event in events if isinstance(event, TextDelta))
    assert any(isinstance(event, PromptProgress) for event in events)


async def test_outer_whitespace_of_an_answer_is_dropped() -> None:
    last = await finished(scripted_model(ScriptedBackend(reply("\n Bonjour \n"))), request("  Hello\t"))
    assert last.text == "  Bonjour\t"


@pytest.mark.parametrize("priority", Priority)
async def test_the_engine_learns_the_priority_and_gets_the_greedy_default(priority: Priority) -> None:
    backend = ScriptedBackend(reply("Bonjour"))
    await finished(scripted_model(backend), request("Hello", priority=priority))
    (sent,) = backend.calls.requests
    assert sent.priority is priority
    assert (sent.sampling.temperature, sent.sampling.repetition_penalty) == (0.0, 1.05)
    assert not sent.probabilities


async def test_the_stop_tokens_of_the_catalog_are_used_as_far_as_the_file_has_them() -> None:
    backend = ScriptedBackend(reply("Bonjour"), control_tokens={"<|eos|>": 250, "<|other|>": 251})
    await finished(scripted_model(backend, stop_tokens=("<|eos|>", "<|absent|>")), request("Hello"))
    assert backend.calls.requests[0].stop_ids == {250}


class CrowdEngine:
    """An engine that answers nobody before so many wait, and counts them."""

    def __init__(self) -> None:
        self.n_waiting = self.most_waiting = 0
        self._full = asyncio.Event()
        self.info: ModelInfo | None = None

    async def load(self, on_progress: Callable[[float], None] | None = None) -> ModelInfo:
        return ModelInfo("crowd", "none", 256, 4096, "none", "0" * 64)

    async def tokenize(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        return [tuple(text.encode()) for text in texts]

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationEvent, None]:
        self.n_waiting += 1
        self.most_waiting = max(self.most_waiting, self.n_waiting)
        if self.n_waiting == SEGMENTS_IN_FLIGHT:
            self._full.set()
        await self._full.wait()
        self.n_waiting -= 1
        yield TokensGenerated((1,), b"ok")
        yield GenerationDone(FinishReason.STOP, TokenUsage())

    async def counters(self) -> EngineCounters:
        return EngineCounters()

    async def close(self) -> None:
        pass


async def test_many_segments_are_in_flight_together_but_not_all() -> None:
    engine = CrowdEngine()
    wanted = request("\n".join(f"line {number}" for number in range(100)))
    last = await finished(OpenModel(a_spec(), engine), wanted)
    assert last.text == "\n".join(["ok"] * 100)
    assert engine.most_waiting == SEGMENTS_IN_FLIGHT
