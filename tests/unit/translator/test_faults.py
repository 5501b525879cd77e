"""What can go wrong with an answer or a model, and what is left of the text then."""

from __future__ import annotations

import pytest

from hymt_local.engine.scripted import (
    Crash,
    Loop,
    Reply,
    ScriptedBackend,
    control_tokens,
    cut,
    empty,
    invalid_utf8,
    reply,
)
from hymt_local.errors import DecodeError, EngineLoadError, ModelFileError
from hymt_local.events import Failed, Finished, Origin, SamplingParams
from tests.services import request, scripted_model, streamed
from tests.translating import events_of, failed_code, finished


async def test_f_5_an_answer_that_was_cut_off_is_a_visible_failure_and_the_source_is_kept() -> None:
    backend = ScriptedBackend(cut("Bonj"), reply("Au revoir"), cut("Bonj"))
    events = await events_of(scripted_model(backend), request("Hello\nGoodbye"))
    last = events[-1]
    assert isinstance(last, Finished)
    assert last.text == "Hello\nAu revoir"
    (done,) = last.failed
    assert (done.source, done.target, done.origin) == ("Hello", "Hello", Origin.SOURCE)
    assert done.error is not None
    assert done.error.code == "segment_rejected"
    assert "cut off" in done.error.message
    temperatures = [sent.sampling.temperature for sent in backend.calls.requests]
    assert temperatures == [0.0, 0.0, 0.7], "the same request would be cut off again"


@pytest.mark.parametrize(
    "bad",
    [empty(), invalid_utf8(), control_tokens(), Loop("again and "), reply("Bon\n\njour"), reply("Bonjour %s")],
    ids=["empty", "invalid UTF-8", "control tokens", "loop", "lines", "placeholder"],
)
async def test_a_faulty_answer_is_tried_once_more_in_another_way(bad: Reply | Loop) -> None:
    backend = ScriptedBackend(bad, reply("Bonjour"))
    events = await events_of(scripted_model(backend), request("Hello"))
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.text, last.failed) == ("Bonjour", ())
    first, second = backend.calls.requests
    assert first.sampling.temperature == 0.0
    penalty = 1.15 if isinstance(bad, Loop) else 1.05
    assert second.sampling == SamplingParams(0.7, top_k=20, top_p=0.6, repetition_penalty=penalty, seed=1)
    assert "Bonjour" not in streamed(events).removesuffix("Bonjour %s"), "the second attempt is not streamed"


async def test_f_14_two_faulty_answers_keep_the_source() -> None:
    backend = ScriptedBackend(empty())
    assert await failed_code(backend, request("Hello")) == "segment_rejected"
    assert len(backend.calls.requests) == 2


async def test_f_4_f_12_a_loop_is_stopped_long_before_the_budget() -> None:
    backend = ScriptedBackend(Loop("again and "))
    events = await events_of(scripted_model(backend), request("Hello " * 20))
    assert isinstance(events[-1], Failed)
    assert len(streamed(events)) < backend.calls.requests[0].max_tokens / 4


async def test_an_engine_error_in_one_segment_fails_only_that_one() -> None:
    backend = ScriptedBackend(Crash(DecodeError("llama_decode failed"), b"Bon"), reply("Au revoir"))
    last = await finished(scripted_model(backend), request("Hello\nGoodbye"))
    assert last.text == "Hello\nAu revoir"
    assert [done.error.code for done in last.failed if done.error] == ["decode"]


async def test_any_exception_of_the_engine_is_a_typed_failure() -> None:
    assert await failed_code(ScriptedBackend(Crash(KeyError("surprise"))), request("Hello")) == "decode"
    assert await failed_code(ScriptedBackend(tokenize_error=KeyError("surprise")), request("Hello")) == "engine"


@pytest.mark.parametrize("error", [ModelFileError("truncated"), EngineLoadError("no memory")])
async def test_a_model_that_cannot_be_loaded_fails_the_job(error: ModelFileError | EngineLoadError) -> None:
    backend = ScriptedBackend(Crash(error))
    last = (await events_of(scripted_model(backend), request("Hello\nGoodbye")))[-1]
    assert last == Failed(error.report())


@pytest.mark.parametrize(("found", "expected"), [(3, "model_unsupported"), (127960, None)])
async def test_a_file_with_the_vocabulary_of_another_model_is_refused(found: int, expected: str | None) -> None:
    backend = ScriptedBackend(reply("Bonjour"), control_tokens={"<|eos|>": found})
    model = scripted_model(backend, control_ids={"<|eos|>": 127960, "<|not in this file|>": 5})
    last = (await events_of(model, request("Hello")))[-1]
    assert (last.error.code if isinstance(last, Failed) else None) == expected
