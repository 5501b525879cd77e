"""What every backend promises, checked on each of them: one class, inherited per backend."""

import asyncio
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hymt_local.engine.base import (
    Backend,
    FinishReason,
    GenerationDone,
    GenerationEvent,
    GenerationRequest,
    PromptRead,
    TokensGenerated,
)
from hymt_local.engine.cancel import CancelFlag
from hymt_local.engine.echo import open_echo, open_pseudo
from hymt_local.engine.host import FixedOrder, HostedBackend
from hymt_local.engine.pipe import Order
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.engine.scripted import Echo, ScriptedBackend
from hymt_local.errors import ContextOverflowError
from tests.toy_models import write_toy_model

TEXT = "The train leaves at noon, mind the gap; 火车中午出发。"


def never() -> bool:
    return False


def play(
    backend: Backend, request: GenerationRequest, is_cancelled: Callable[[], bool] = never
) -> list[GenerationEvent]:
    return list(backend.generate(request, is_cancelled))


def tokens_of(events: list[GenerationEvent]) -> list[int]:
    return [token for event in events if isinstance(event, TokensGenerated) for token in event.ids]


def done_of(events: list[GenerationEvent]) -> GenerationDone:
    assert isinstance(events[-1], GenerationDone)
    return events[-1]


class BackendContract(ABC):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[Backend]:
        backend = self.open_backend(tmp_path)
        yield backend
        backend.close()

    @abstractmethod
    def open_backend(self, folder: Path) -> Backend: ...

    def request(self, backend: Backend, text: str = TEXT, max_tokens: int = 100) -> GenerationRequest:
        return GenerationRequest(backend.tokenize(text), max_tokens)

    def test_it_says_what_it_is(self, backend: Backend) -> None:
        info = backend.info
        assert info.name
        assert info.architecture
        assert info.vocab_size > 0
        assert info.context_length > 0
        assert len(info.file_sha256) == 64
        assert all(0 <= token < info.vocab_size for token in (*info.stop_ids, *info.control_tokens.values()))
        assert pickle.loads(pickle.dumps(info)) == info

    @pytest.mark.parametrize("text", ["", "a", TEXT, "a\0b", "\ud800", "x" * 3000, "👩‍👩‍👧" * 50, "\n" * 700])
    def test_any_text_becomes_ids_of_the_vocabulary(self, backend: Backend, text: str) -> None:
        ids = backend.tokenize(text)
        assert bool(ids) == bool(text)
        assert all(0 <= token < backend.info.vocab_size for token in ids)

    def test_events_come_in_order_and_end_exactly_once(self, backend: Backend) -> None:
        events = play(backend, self.request(backend))
        kinds = [type(event) for event in events]
        n_prompt_events = kinds.count(PromptRead)
        assert kinds[:n_prompt_events] == [PromptRead] * n_prompt_events
        assert kinds[n_prompt_events:-1] == [TokensGenerated] * (len(kinds) - n_prompt_events - 1)
        assert kinds[-1] is GenerationDone

    def test_reading_the_prompt_is_reported_to_its_end(self, backend: Backend) -> None:
        request = self.request(backend, TEXT * 5)
        done = [event.done for event in play(backend, request) if isinstance(event, PromptRead)]
        assert done == sorted(done)
        assert done[-1] == len(request.prompt)

    def test_usage_counts_what_was_handed_out(self, backend: Backend) -> None:
        request = self.request(backend)
        events = play(backend, request)
        usage = done_of(events).usage
        assert usage.prompt_tokens == len(request.prompt)
        assert usage.output_tokens == len(tokens_of(events))
        assert usage.reused_tokens <= usage.prompt_tokens

    def test_the_same_request_gets_the_same_answer(self, backend: Backend) -> None:
        request = self.request(backend, max_tokens=12)
        assert tokens_of(play(backend, request)) == tokens_of(play(backend, request))

    @pytest.mark.parametrize("max_tokens", [0, 1, 7])
    def test_the_token_budget_is_kept_and_running_out_is_said(self, backend: Backend, max_tokens: int) -> None:
        events = play(backend, self.request(backend, max_tokens=max_tokens))
        assert len(tokens_of(events)) <= max_tokens
        assert done_of(events).reason is FinishReason.LENGTH

    def test_a_generation_cancelled_from_the_start_hands_out_nothing(self, backend: Backend) -> None:
        flag = CancelFlag()
        flag.cancel()
        events = play(backend, self.request(backend), flag)
        assert done_of(events).reason is FinishReason.CANCELLED
        assert tokens_of(events) == []

    @pytest.mark.parametrize("as_flag", [True, False])
    def test_a_generation_cancelled_between_tokens_stops(self, backend: Backend, as_flag: bool) -> None:
        flag = CancelFlag()
        seen: list[GenerationEvent] = []
        for event in backend.generate(self.request(backend), flag if as_flag else lambda: flag()):
            seen.append(event)
            if isinstance(event, TokensGenerated):
                flag.cancel()
        assert done_of(seen).reason is FinishReason.CANCELLED
        assert sum(isinstance(event, TokensGenerated) for event in seen) == 1

    def test_it_stays_usable_after_an_abandoned_generation(self, backend: Backend) -> None:
        request = self.request(backend, max_tokens=12)
        expected = tokens_of(play(backend, request))
        abandoned = iter(backend.generate(self.request(backend, "something else"), never))
        while not isinstance(next(abandoned), TokensGenerated):
            pass
        del abandoned
        assert tokens_of(play(backend, request)) == expected

    def test_what_cannot_fit_the_context_is_refused_with_numbers_before_anything_runs(self, backend: Backend) -> None:
        n_context = backend.info.context_length
        request = self.request(backend, "abc", max_tokens=n_context)
        with pytest.raises(ContextOverflowError, match=f"up to {n_context} answer tokens exceed the context"):
            play(backend, request)
        assert done_of(play(backend, self.request(backend, "abc", max_tokens=3))).usage.prompt_tokens > 0

    def test_probabilities_come_when_asked_for_and_only_then(self, backend: Backend) -> None:
        prompt = backend.tokenize(TEXT)
        asked = play(backend, GenerationRequest(prompt, 8, probabilities=True))
        unasked = play(backend, GenerationRequest(prompt, 8))
        for event in asked:
            if isinstance(event, TokensGenerated):
                assert len(event.probabilities) == len(event.ids)
                assert all(0 <= probability <= 1 for probability in event.probabilities)
        assert all(event.probabilities == () for event in unasked if isinstance(event, TokensGenerated))

    def test_every_event_crosses_a_pipe_unchanged(self, backend: Backend) -> None:
        request = self.request(backend, max_tokens=5)
        events = play(backend, request)
        assert pickle.loads(pickle.dumps((request, events))) == (request, events)

    @pytest.mark.parametrize("n_answered", [1, 5, 11])
    def test_an_answer_goes_on_where_another_engine_stopped(self, backend: Backend, n_answered: int) -> None:
        request = self.request(backend, max_tokens=12)
        expected = tokens_of(play(backend, request))
        resumed = play(backend, replace(request, answered=tuple(expected[:n_answered])))
        assert tokens_of(resumed) == expected[n_answered:]
        assert done_of(resumed).usage.output_tokens == len(expected)

    def test_closing_twice_is_fine(self, backend: Backend) -> None:
        backend.close()
        backend.close()

    async def test_behind_an_engine_it_answers_as_it_does_alone(self, backend: Backend, tmp_path: Path) -> None:
        request = self.request(backend, max_tokens=12)
        expected = tokens_of(play(backend, request))
        engine = ThreadedEngine(lambda on_progress: self.open_backend(tmp_path), "contract")
        assert await engine.tokenize([TEXT]) == [request.prompt]
        answers = await asyncio.gather(*(self.collect(engine, request) for _ in range(3)))
        await engine.close()
        assert answers == [expected] * 3

    async def collect(self, engine: ThreadedEngine, request: GenerationRequest) -> list[int]:
        return tokens_of([event async for event in engine.generate(request)])


class TestEchoBackend(BackendContract):
    def open_backend(self, folder: Path) -> Backend:
        return open_echo()(lambda fraction: True)


class TestPseudoBackend(BackendContract):
    def open_backend(self, folder: Path) -> Backend:
        return open_pseudo()(lambda fraction: True)


class TestScriptedBackend(BackendContract):
    def open_backend(self, folder: Path) -> Backend:
        return ScriptedBackend(Echo())


class TestHostedBackend(BackendContract):
    def open_backend(self, folder: Path) -> Backend:
        order = FixedOrder(Order("tests.engine_children:open_fragile"))
        return HostedBackend(lambda ask_gpus: order, name="fragile", on_progress=lambda fraction: True)


@pytest.mark.llama
class TestLlamaBackend(BackendContract):
    def open_backend(self, folder: Path) -> Backend:
        from hymt_local.engine.llama import open_llama_backend

        path = folder / "toy.gguf"
        return open_llama_backend(path if path.exists() else write_toy_model(path))(lambda fraction: True)
