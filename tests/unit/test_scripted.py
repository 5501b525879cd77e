import threading

import pytest

from hymt_local.engine.base import (
    FinishReason,
    GenerationDone,
    GenerationEvent,
    GenerationRequest,
    PromptRead,
    TokensGenerated,
)
from hymt_local.engine.cancel import CancelFlag
from hymt_local.engine.scripted import (
    Behaviour,
    Crash,
    Echo,
    Gated,
    Hang,
    Loop,
    Reply,
    ScriptedBackend,
    control_tokens,
    cut,
    empty,
    invalid_utf8,
    open_scripted,
    reply,
)
from hymt_local.engine.utf8 import Utf8Stream
from hymt_local.errors import EngineLoadError, ModelFileError

REQUEST = GenerationRequest(tuple(b"Hello"), 20)


def play(*script: Behaviour, request: GenerationRequest = REQUEST) -> list[GenerationEvent]:
    return list(ScriptedBackend(*script).generate(request, lambda: False))


def data_of(events: list[GenerationEvent]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, TokensGenerated))


@pytest.mark.parametrize(
    ("behaviour", "data", "reason"),
    [
        (reply("Bonjour"), b"Bonjour", FinishReason.STOP),
        (Echo(), b"Hello", FinishReason.STOP),
        (Echo(str.upper), b"HELLO", FinishReason.STOP),
        (empty(), b"", FinishReason.STOP),
        (cut("Bonj"), b"Bonj", FinishReason.LENGTH),
        (Loop("ha "), b"ha ha ha ha ha ha ha", FinishReason.LENGTH),
        (reply("x" * 30), b"x" * 20, FinishReason.LENGTH),
    ],
)
def test_each_behaviour_ends_as_it_says(behaviour: Behaviour, data: bytes, reason: FinishReason) -> None:
    events = play(behaviour)
    assert data_of(events) == data
    assert isinstance(events[-1], GenerationDone)
    assert events[-1].reason is reason


def test_invalid_utf8_is_invalid_and_control_tokens_are_visible() -> None:
    stream = Utf8Stream()
    stream.feed(data_of(play(invalid_utf8())))
    stream.finish()
    assert stream.n_invalid == 2
    assert b"<|extra_0|>" in data_of(play(control_tokens(), request=GenerationRequest((1,), 100)))


def test_a_crash_comes_after_its_text() -> None:
    events = ScriptedBackend(Crash(ValueError("boom"), b"half")).generate(REQUEST, lambda: False)
    assert isinstance(next(events), PromptRead)
    assert next(events) == TokensGenerated(tuple(b"half"), b"half")
    with pytest.raises(ValueError, match="boom"):
        next(events)


def test_the_script_is_played_in_order_and_its_last_behaviour_repeats() -> None:
    backend = ScriptedBackend(reply("one"), reply("two"))
    answers = [data_of(list(backend.generate(REQUEST, lambda: False))) for _ in range(3)]
    assert answers == [b"one", b"two", b"two"]
    assert backend.calls.requests == [REQUEST] * 3


def test_probabilities_are_those_of_the_script() -> None:
    request = GenerationRequest((1,), 9, probabilities=True)
    events = play(Reply(b"ab", probability=0.25), request=request)
    assert events[1] == TokensGenerated((97, 98), b"ab", (0.25, 0.25))


@pytest.mark.parametrize("behaviour", [Hang(), Gated(threading.Event())])
def test_what_waits_ends_when_it_is_cancelled(behaviour: Hang | Gated) -> None:
    flag = CancelFlag()
    events = ScriptedBackend(behaviour).generate(REQUEST, flag)
    next(events)
    flag.cancel()
    last = list(events)[-1]
    assert isinstance(last, GenerationDone)
    assert last.reason is FinishReason.CANCELLED


def test_a_gated_prompt_is_read_in_steps_once_the_gate_is_open() -> None:
    gate = threading.Event()
    gate.set()
    events = play(Gated(gate, reply("ok"), steps=5), request=GenerationRequest(tuple(range(10)), 20))
    assert [event.done for event in events if isinstance(event, PromptRead)] == [2, 4, 6, 8, 10]
    assert data_of(events) == b"ok"


def test_the_opener_fails_as_often_as_it_is_told_and_reports_progress() -> None:
    backend, fractions = ScriptedBackend(), list[float]()
    opener = open_scripted(backend, load_errors=[ModelFileError("gone")], progress=(0.5, 1.0))
    with pytest.raises(ModelFileError):
        opener(lambda fraction: True)
    assert opener(lambda fraction: fractions.append(fraction) or True) is backend  # type: ignore[func-returns-value]
    assert (fractions, backend.calls.n_loaded) == ([0.5, 1.0], 2)


def test_a_gated_load_can_be_given_up() -> None:
    with pytest.raises(EngineLoadError):
        open_scripted(ScriptedBackend(), gate=threading.Event())(lambda fraction: False)
