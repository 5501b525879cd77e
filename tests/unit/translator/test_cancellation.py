"""Leaving a translation before its end."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from hymt_local.engine.base import FinishReason
from hymt_local.engine.scripted import Hang, Reply, ScriptedBackend, reply
from hymt_local.translator import Translator
from tests.services import request, scripted_model
from tests.translating import failed_code


async def test_closing_the_events_cancels_what_the_engine_does() -> None:
    hang = Hang()
    backend = ScriptedBackend(hang, reply("Bonjour"))
    model = scripted_model(backend)
    translator = Translator(model)
    async with aclosing(translator.run(request("Hello\nGoodbye\nThanks"))) as events:
        await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.to_thread(hang.started.wait, 10)
        await waiting
    assert [event async for event in translator.run(request("Hello"))][-1]
    assert len(backend.calls.requests) == 2, "the segments that waited were withdrawn"
    await model.engine.close()


async def test_an_engine_that_closes_meanwhile_fails_the_segment() -> None:
    backend = ScriptedBackend(Reply(b"Bon", FinishReason.CANCELLED))
    assert await failed_code(backend, request("Hello")) == "decode"
