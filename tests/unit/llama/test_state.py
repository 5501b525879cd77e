"""What a llama backend keeps between calls, and what interrupts them."""

from contextlib import aclosing
from pathlib import Path

import numpy as np
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
from hymt_local.engine.llama import LlamaBackend, open_llama_backend
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.engine.slots import Run
from hymt_local.errors import EngineMemoryError
from tests.llama_backends import LONG_PROMPT, PROMPT, answer, done, logits_after, never, open_toy, play

pytestmark = pytest.mark.llama


def test_the_common_prefix_is_not_read_again_and_changes_nothing(backend: LlamaBackend, toy_path: Path) -> None:
    first = GenerationRequest(LONG_PROMPT, 4)
    second = GenerationRequest((*LONG_PROMPT[:500], *PROMPT), 12)
    play(backend, first)
    events = play(backend, second)
    assert done(events).usage.reused_tokens == 500
    fresh = open_toy(toy_path)
    assert answer(backend, second) == answer(fresh, second)
    fresh.close()


def test_of_a_prompt_read_before_the_last_token_is_read_again(backend: LlamaBackend) -> None:
    play(backend, GenerationRequest(PROMPT, 4))
    events = play(backend, GenerationRequest(PROMPT, 4))
    assert events[0] == PromptRead(len(PROMPT) - 1, len(PROMPT))
    shorter = play(backend, GenerationRequest(PROMPT[:5], 4))
    assert shorter[0] == PromptRead(4, 5)


def test_a_long_prompt_is_read_in_slices(backend: LlamaBackend) -> None:
    events = play(backend, GenerationRequest(LONG_PROMPT, 1))
    assert [event.done for event in events if isinstance(event, PromptRead)] == [0, 256, 512, 700]


def test_a_budget_of_nothing_reads_the_prompt_only(backend: LlamaBackend) -> None:
    events = play(backend, GenerationRequest(PROMPT, 0))
    assert done(events).reason is FinishReason.LENGTH
    assert done(play(backend, GenerationRequest(PROMPT, 2))).usage.reused_tokens == len(PROMPT) - 1


def test_an_allocation_that_fails_while_decoding_is_short_memory(
    backend: LlamaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert backend._context is not None
    with monkeypatch.context() as patch:
        patch.setattr(backend._context._api, "llama_decode", lambda *arguments: -2)
        with pytest.raises(EngineMemoryError, match="no memory to decode"):
            play(backend, GenerationRequest(PROMPT, 4))


def test_a_prompt_is_cancelled_between_its_slices(backend: LlamaBackend) -> None:
    flag = CancelFlag()
    seen: list[GenerationEvent] = []
    for event in backend.generate(GenerationRequest(LONG_PROMPT, 4), flag):
        seen.append(event)
        if event == PromptRead(256, 700):
            flag.cancel()
    assert [event.done for event in seen if isinstance(event, PromptRead)] == [0, 256]
    assert done(seen).reason is FinishReason.CANCELLED
    assert play(backend, GenerationRequest(LONG_PROMPT, 4))[0] == PromptRead(256, 700)


def test_a_decode_call_is_interrupted_and_the_context_stays_right(backend: LlamaBackend) -> None:
    expected = logits_after(backend, LONG_PROMPT[:200])
    context = backend._context
    assert context is not None
    run = Run(3, 0, LONG_PROMPT[:200], 1)
    backend.interrupt()
    assert context.decode([run]) is False
    assert context.n_held(3) == 0
    assert context.decode([run]) is True
    assert np.array_equal(context.logits(199), expected)


def test_an_interrupted_generation_goes_on_as_if_nothing_had_happened(backend: LlamaBackend) -> None:
    request = GenerationRequest(PROMPT, 20)
    expected = answer(backend, request)
    ids: list[int] = []
    for event in backend.generate(request, never):
        backend.interrupt()
        ids += event.ids if isinstance(event, TokensGenerated) else ()
    assert ids == expected


async def test_leaving_while_a_long_prompt_is_read_frees_the_engine_for_the_next(toy_path: Path) -> None:
    engine = ThreadedEngine(open_llama_backend(toy_path), "toy")
    async with aclosing(engine.generate(GenerationRequest(LONG_PROMPT, 300))) as events:
        assert await anext(events) == PromptRead(0, 700)
    last = [event async for event in engine.generate(GenerationRequest(PROMPT, 2))][-1]
    assert isinstance(last, GenerationDone)
    assert last.reason is FinishReason.LENGTH
    await engine.close()
