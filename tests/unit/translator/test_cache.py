"""What a translator remembers, and what it takes from its memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hymt_local.engine.scripted import (
    Crash,
    Echo,
    Reply,
    ScriptedBackend,
    control_tokens,
    cut,
    empty,
    invalid_utf8,
    reply,
)
from hymt_local.errors import DecodeError
from hymt_local.events import Finished, Origin, SamplingParams, TokenUsage, TranslationRequest
from tests.services import request, scripted_model, settled
from tests.translating import MemoryStore, events_of


async def test_the_second_time_comes_from_the_cache_without_loading_the_model() -> None:
    cache = MemoryStore()
    await events_of(scripted_model(ScriptedBackend(reply("Bonjour"))), request("Hello\n7"), cache=cache)
    backend = ScriptedBackend(Crash(DecodeError("called")))
    events = await events_of(scripted_model(backend), request(" Hello\n8\nHello"), cache=cache)
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.text, last.origin, last.usage) == (" Bonjour\n8\nBonjour", Origin.CACHE, TokenUsage())
    assert backend.calls.n_loaded == 0


@pytest.mark.parametrize(
    ("wanted", "changes"),
    [
        (request("Hello", "de"), {}),
        (request("Hello", sampling=SamplingParams(temperature=0.7)), {}),
        (request("Hello"), {"fingerprint": "e" * 64}),
        (request("Hello", use_cache=False), {}),
    ],
    ids=["language", "sampling", "model file", "not wanted"],
)
async def test_other_circumstances_miss_the_cache(wanted: TranslationRequest, changes: Mapping[str, Any]) -> None:
    cache = MemoryStore()
    await events_of(scripted_model(ScriptedBackend(reply("Bonjour"))), request("Hello"), cache=cache)
    backend = ScriptedBackend(reply("Neu"))
    events = await events_of(scripted_model(backend, **changes), wanted, cache=cache)
    assert [done.origin for done in settled(events)] == [Origin.MODEL]


@pytest.mark.parametrize(
    "script",
    [
        [cut("Bonj")],
        [empty()],
        [invalid_utf8()],
        [control_tokens()],
        [Crash(DecodeError("x"), b"Bon")],
        [empty(), reply("Ok")],
    ],
    ids=["cut off", "empty", "invalid", "control tokens", "crash", "second attempt"],
)
async def test_only_verified_first_answers_are_remembered(script: list[Reply | Crash]) -> None:
    cache = MemoryStore()
    await events_of(scripted_model(ScriptedBackend(*script)), request("Hello"), cache=cache)
    assert cache.phrases == {}


async def test_nothing_is_remembered_when_the_cache_is_not_wanted() -> None:
    cache = MemoryStore()
    backend = ScriptedBackend(reply("Bonjour"))
    await events_of(scripted_model(backend), request("Hello", use_cache=False), cache=cache)
    assert cache.phrases == {}


async def test_a_long_segment_is_remembered_whole() -> None:
    cache = MemoryStore()
    text = "Some words. " * 20
    model = scripted_model(ScriptedBackend(Echo(str.upper)), max_segment_tokens=64)
    await events_of(model, request(text), cache=cache)
    backend = ScriptedBackend()
    events = await events_of(scripted_model(backend, max_segment_tokens=64), request(text), cache=cache)
    assert settled(events)[0].origin is Origin.CACHE
    assert backend.calls.n_loaded == 0


async def test_an_edit_of_a_person_wins_over_the_cache_and_the_model() -> None:
    store = MemoryStore()
    store.edits["en", "fr", "Hello"] = "Salut"
    events = await events_of(scripted_model(ScriptedBackend()), request("Hello\n8"), cache=store)
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.text, last.origin) == ("Salut\n8", Origin.CACHE)
    fresh = request("Hello", use_cache=False)
    events = await events_of(scripted_model(ScriptedBackend(reply("Bonjour"))), fresh, cache=store)
    assert settled(events)[0].target == "Bonjour"
