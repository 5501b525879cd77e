"""What every Service promises, whatever is behind it: this process, or a resident one behind HTTP."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

from hymt_local.client import ResidentService
from hymt_local.engine.scripted import Behaviour, Crash, Gated, Hang, Loop, reply
from hymt_local.errors import CancelledError, DecodeError, EmptyInputError, LanguageError
from hymt_local.events import (
    Cancelled,
    Event,
    Failed,
    Finished,
    LastEvent,
    Origin,
    Started,
    TextDelta,
)
from hymt_local.jobs import Service, TranslationJob
from tests.server.serving import server_file, serving
from tests.services import request, scripted_service, settled, streamed


def check_grammar(events: list[Event]) -> None:
    """Started first unless nothing was understood, exactly one last event, every segment settled once."""
    assert [event for event in events if isinstance(event, LastEvent)] == events[-1:]
    if isinstance(events[-1], Finished):
        assert isinstance(events[0], Started)
        assert sorted(done.segment for done in settled(events)) == list(range(events[0].n_segments))


def until_delta(job: TranslationJob) -> None:
    for event in job:
        if isinstance(event, TextDelta):
            return
    raise AssertionError("no text came")


class ServiceContract(ABC):
    @abstractmethod
    def serve(self, *script: Behaviour) -> Service:
        """Return a service whose only model plays the script."""

    @pytest.fixture
    def opened(self) -> Iterator[list[Service]]:
        services: list[Service] = []
        yield services
        for service in services:
            service.close()

    @pytest.fixture
    def hello(self, opened: list[Service]) -> Service:
        opened.append(self.serve(reply("Bonjour")))
        return opened[0]

    def test_plain_code_reads_a_whole_job(self, hello: Service) -> None:
        events = list(hello.submit(request("Hello\n\n42\n")))
        check_grammar(events)
        last = events[-1]
        assert isinstance(last, Finished)
        assert (last.text, last.origin, last.failed) == ("Bonjour\n\n42\n", Origin.MODEL, ())
        assert streamed(events) == "Bonjour"

    async def test_any_loop_reads_a_whole_job(self, hello: Service) -> None:
        events = [event async for event in hello.submit(request("Hello"))]
        check_grammar(events)
        assert isinstance(events[-1], Finished)

    async def test_many_jobs_at_once_keep_their_events_apart(self, hello: Service) -> None:
        async def read(text: str) -> Event:
            events = [event async for event in hello.submit(request(text))]
            check_grammar(events)
            return events[-1]

        texts = [f"Hello\n{number}" for number in range(20)]
        lasts = await asyncio.gather(*map(read, texts))
        assert [last.text for last in lasts if isinstance(last, Finished)] == [
            text.replace("Hello", "Bonjour") for text in texts
        ]

    def test_result_waits_without_reading_events(self, hello: Service) -> None:
        job = hello.submit(request("Hello"))
        assert job.result(timeout_s=10).text == "Bonjour"
        assert job.done
        assert isinstance(list(job)[-1], Finished)

    @pytest.mark.parametrize(
        ("text", "target_lang", "error"),
        [("", "fr", EmptyInputError), ("Hello", "tlh", LanguageError)],
    )
    def test_a_bad_request_is_its_last_event_and_raised_by_result(
        self, hello: Service, text: str, target_lang: str, error: type[Exception]
    ) -> None:
        job = hello.submit(request(text, target_lang))
        (last,) = list(job)
        assert isinstance(last, Failed)
        with pytest.raises(error) as caught:
            job.result()
        assert isinstance(caught.value, (EmptyInputError, LanguageError))
        assert caught.value.report() == last.error

    def test_an_engine_error_ends_the_job_with_its_report(self, opened: list[Service]) -> None:
        opened.append(self.serve(Crash(DecodeError("llama_decode failed", hint="try again"))))
        job = opened[0].submit(request("Hello"))
        check_grammar(list(job))
        with pytest.raises(DecodeError, match="llama_decode failed"):
            job.result()

    @pytest.mark.parametrize("phase", ["prefill", "decode"])
    def test_cancel_ends_the_job_at_once(self, opened: list[Service], phase: str) -> None:
        hang = Hang() if phase == "decode" else Gated(threading.Event())
        opened.append(self.serve(hang))
        job = opened[0].submit(request("Hello"))
        assert hang.started.wait(10)
        job.cancel()
        job.cancel()
        with pytest.raises(CancelledError):
            job.result(timeout_s=0.5)
        events = list(job)
        check_grammar(events)
        assert isinstance(events[-1], Cancelled)

    def test_the_engine_is_free_after_a_cancelled_job(self, opened: list[Service]) -> None:
        hang = Hang()
        opened.append(self.serve(hang, reply("Bonjour")))
        job = opened[0].submit(request("Hello"))
        assert hang.started.wait(10)
        job.cancel()
        assert opened[0].submit(request("Hello again")).result(timeout_s=10).text == "Bonjour"

    def test_cancelling_before_the_start_and_after_the_end_is_fine(self, hello: Service, opened: list[Service]) -> None:
        opened.append(self.serve(Hang()))
        early = opened[-1].submit(request("Hello"))
        early.cancel()
        assert isinstance(list(early)[-1], Cancelled)
        late = hello.submit(request("Hello"))
        late.result(timeout_s=10)
        late.cancel()
        assert isinstance(list(late)[-1], Finished)

    def test_leaving_a_with_block_cancels(self, opened: list[Service]) -> None:
        hang = Hang()
        opened.append(self.serve(hang))
        with opened[0].submit(request("Hello")) as job:
            assert hang.started.wait(10)
        assert isinstance(list(job)[-1], Cancelled)

    async def test_a_cancelled_consumer_cancels_its_job(self, opened: list[Service]) -> None:
        hang = Hang()
        opened.append(self.serve(hang))
        job = opened[0].submit(request("Hello"))

        async def consume() -> AsyncIterator[Event]:
            async for event in job:
                yield event

        async def drain() -> None:
            async for _ in consume():
                pass

        task = asyncio.create_task(drain())
        await asyncio.to_thread(hang.started.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert isinstance([event async for event in job][-1], Cancelled)

    def test_closing_cancels_every_job(self, opened: list[Service]) -> None:
        hang = Hang()
        service = self.serve(hang)
        jobs = [service.submit(request(f"Hello {number}")) for number in range(3)]
        assert hang.started.wait(10)
        service.close()
        service.close()
        assert [type(list(job)[-1]) for job in jobs] == [Cancelled] * 3
        assert isinstance(list(service.submit(request("Hello")))[-1], Cancelled)

    def test_an_endless_answer_is_stopped_and_shown_as_a_failure(self, opened: list[Service]) -> None:
        opened.append(self.serve(Loop("again and ")))
        (last,) = [event for event in opened[0].submit(request("Hello")) if isinstance(event, LastEvent)]
        assert isinstance(last, Failed)
        assert last.error.code == "segment_rejected"

    def test_deltas_come_before_the_end(self, opened: list[Service]) -> None:
        opened.append(self.serve(reply("Bonjour"), Hang()))
        job = opened[0].submit(request("Hello\nBye"))
        until_delta(job)
        assert not job.done
        job.cancel()


class TestResidentService(ServiceContract):
    @pytest.fixture(autouse=True)
    def servers(self) -> Iterator[ExitStack]:
        with ExitStack() as stack:
            self._stack = stack
            yield stack

    def serve(self, *script: Behaviour) -> Service:
        served = self._stack.enter_context(serving(scripted_service(*script)[0]))
        return ResidentService(lambda: server_file(served))


class TestLocalService(ServiceContract):
    def serve(self, *script: Behaviour) -> Service:
        return scripted_service(*script)[0]
