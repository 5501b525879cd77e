"""The client's side: what it makes of a server that is not there, dies, or speaks nonsense."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.application import open_application
from hymt_local.client import ResidentService, _encoded
from hymt_local.engine.scripted import reply
from hymt_local.errors import AccessError, BusyError, ErrorReport, InputEncodingError, ServerError
from hymt_local.event_stream import decode_events, encode_event
from hymt_local.events import (
    Cancelled,
    Event,
    Failed,
    Finished,
    ModelLoaded,
    ModelLoading,
    Origin,
    Pivot,
    Priority,
    PromptProgress,
    SamplingParams,
    SegmentDone,
    Started,
    TextDelta,
    TokenUsage,
    TranslationRequest,
)
from hymt_local.jobs import LocalService
from hymt_local.process_lock import ProcessLock
from hymt_local.segment import (
    Finding,
    Guidance,
    ProtectedSpan,
    Segment,
    Severity,
    Span,
    Term,
    TokenGroup,
    TokenKind,
    UnitText,
)
from hymt_local.server.bodies import TranslateBody
from hymt_local.server.limits import ServerLimits
from hymt_local.server_call import ask
from hymt_local.server_file import PROTOCOL, ServerFile, write_server_file
from tests.server.serving import TOKEN, WAIT_S, server_file, serving
from tests.services import request, scripted_service

STARTED = Started("echo", "test", "en", "fr", None, 1, (Segment(0, "Hello"),))
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@contextmanager
def stranger(*answers: bytes) -> Iterator[ServerFile]:
    """Something that listens, reads a request, answers with the next of these bytes, and closes; the last stays."""
    rest = deque(answers)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(rest.popleft() if len(rest) > 1 else rest[0])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield ServerFile(
            pid=1, protocol=PROTOCOL, version="0", started_at=0, host="127.0.0.1",
            port=listener.getsockname()[1], token=TOKEN,
        )  # fmt: skip
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(WAIT_S)


@pytest.fixture
def local() -> Iterator[Callable[[], LocalService]]:
    service, _ = scripted_service(reply("in process"))
    yield lambda: service
    service.close()


def test_a_server_that_dies_in_the_middle_of_a_stream_is_a_clear_error(local: Callable[[], LocalService]) -> None:
    with stranger(STREAM_HEAD + chunk(encode_event(0, STARTED))) as server:
        service = ResidentService(lambda: server, fall_back=local)
        events = list(service.submit(request("Hello")))
        service.close()
    assert events[0] == STARTED
    assert isinstance(events[-1], Failed)
    assert (events[-1].error.code, "went away" in events[-1].error.message) == ("server", True)


BUSY_BODY = b'{"error":{"code":"busy","message":"64 requests are under way or waiting","hint":""}}'
BUSY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: %d\r\nContent-Length: %d\r\n\r\n" + BUSY_BODY
FINISHED = Finished("", "en", "fr", "echo", "s", Origin.MODEL, TokenUsage(), 0.1, ())


def busy(retry_after_s: int) -> bytes:
    return BUSY % (retry_after_s, len(BUSY_BODY))


def a_document() -> TranslationRequest:
    return request("", units=(UnitText("Hello"),))


def test_a_document_waits_while_the_server_is_busy() -> None:
    served = STREAM_HEAD + chunk(encode_event(0, STARTED) + encode_event(1, FINISHED)) + chunk(b"")
    with stranger(busy(0), busy(0), served) as server:
        service = ResidentService(lambda: server)
        assert list(service.submit(a_document())) == [STARTED, FINISHED]
        service.close()


def test_a_document_does_not_wait_for_ever_and_a_text_not_at_all() -> None:
    with stranger(busy(0)) as server:
        service = ResidentService(lambda: server, patience_s=0.15)
        with pytest.raises(BusyError, match="64 requests"):
            service.submit(a_document()).result(WAIT_S)
        service.close()
    with stranger(busy(9)) as server:
        service = ResidentService(lambda: server)
        with pytest.raises(BusyError):
            service.submit(request("Hello")).result(1.0)
        service.close()


def test_waiting_for_a_busy_server_can_be_cancelled() -> None:
    with stranger(busy(1_000_000)) as server:
        service = ResidentService(lambda: server)
        job = service.submit(a_document())
        remote = service._running[job]
        job.cancel()
        assert list(job) == [Cancelled()]
        assert remote.wait_for_cancel(0)
        service.close()
        deadline = time.monotonic() + WAIT_S
        while service._running:
            assert time.monotonic() < deadline
            time.sleep(0.005)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 2", STREAM_HEAD, STREAM_HEAD + b"5\r\nev"])
def test_before_the_first_event_this_process_takes_over(local: Callable[[], LocalService], answer: bytes) -> None:
    with stranger(answer) as server:
        service = ResidentService(lambda: server, fall_back=local)
        assert service.submit(request("Hello")).result(WAIT_S).text == "in process"
        service.close()


def test_without_anything_to_fall_back_on_it_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    server = ServerFile(pid=1, protocol=PROTOCOL, version="0", started_at=0, host="127.0.0.1", port=port, token="x")
    for find in (lambda: server, lambda: None):
        service = ResidentService(find)
        with pytest.raises(ServerError):
            service.submit(request("Hello")).result(WAIT_S)
        service.close()


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\n\r\nhello", b"HTTP/1.1 500 X\r\n\r\n<html>"])
def test_whoever_else_answers_is_not_mistaken_for_the_server(answer: bytes) -> None:
    with stranger(answer) as server:
        with pytest.raises(ServerError, match="makes no sense"):
            ask(server, "GET", "/v1/status")
        service = ResidentService(lambda: server)
        with pytest.raises(ServerError):
            service.submit(request("Hello")).result(WAIT_S)
        service.close()


def test_a_server_that_cannot_be_started_is_a_warning_when_this_process_takes_over(
    local: Callable[[], LocalService],
) -> None:
    def find() -> ServerFile:
        raise ServerError("the server did not start")

    service = ResidentService(find, fall_back=local)
    assert service.submit(request("Hello")).result(WAIT_S).text == "in process"
    assert service.warnings == ("the server did not start",)
    service.close()


def test_closing_does_not_wait_for_a_server_that_starts() -> None:
    may_start = threading.Event()
    service = ResidentService(lambda: may_start.wait(WAIT_S) and None)  # type: ignore[arg-type, return-value]
    job = service.submit(request("Hello"))
    started = time.perf_counter()
    service.close()
    assert isinstance(list(job)[-1], Cancelled)
    assert time.perf_counter() - started < 1.0
    may_start.set()


def test_errors_of_the_server_keep_their_class() -> None:
    service, _ = scripted_service()
    with serving(service, limits=ServerLimits(waiting_requests=1)) as served:
        with pytest.raises(AccessError, match="not valid"):
            ResidentService(lambda: server_file(served, token="wrong")).submit(request("Hello")).result(WAIT_S)
        served.fill_line()
        with pytest.raises(BusyError):
            ResidentService(lambda: server_file(served)).submit(request("Hello")).result(WAIT_S)
        with pytest.raises(InputEncodingError):
            ResidentService(lambda: server_file(served)).submit(request("\udc80")).result(WAIT_S)


def test_a_server_that_came_back_is_found_again(local: Callable[[], LocalService]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    dead = ServerFile(pid=1, protocol=PROTOCOL, version="0", started_at=0, host="127.0.0.1", port=port, token="x")
    with serving(scripted_service(reply("resident"))[0]) as served:
        found = iter([dead, server_file(served)])
        service = ResidentService(lambda: next(found))
        with pytest.raises(ServerError, match="went away"):
            service.submit(request("Hello")).result(WAIT_S)
        assert service.submit(request("Hello")).result(WAIT_S).text == "resident"
        service.close()


EVENTS: tuple[Event, ...] = (
    ModelLoading("demo", 0.5),
    ModelLoaded("demo", 4096, n_gpu_layers=20, n_layers=33, gpu="A card", is_reduced=True),
    STARTED,
    PromptProgress(0, 3, 7),
    TextDelta(0, "a\nb\u2028\r\x00 \U0001f1eb"),
    SegmentDone(
        0, "Hello", "Bonjour", Origin.MODEL, TokenUsage(1, 2, 3, 0.1, 0.2),
        ErrorReport("decode", "m", "h", 4, 503), (Finding("empty", Severity.ERROR, "m", Span(0, 1)),),
    ),
    Finished("x", "en", "fr", "demo", "s", Origin.CACHE, TokenUsage(), 0.1, (SegmentDone(0, "a", "a", Origin.SOURCE),)),
    Failed(ErrorReport("decode", "m", "h", 4, 503)),
    Cancelled(),
)  # fmt: skip


def test_every_kind_of_event_crosses_the_stream_unchanged() -> None:
    data = b"".join(encode_event(index, event) for index, event in enumerate(EVENTS))
    assert tuple(decode_events(data.splitlines(keepends=True))) == EVENTS
    assert tuple(decode_events((data + b": ping\n\nevent: newer\ndata: 1\n\n").split(b"\n"))) == EVENTS


@given(st.text(), st.integers(0, 1000))
def test_any_text_crosses_the_stream(text: str, segment: int) -> None:
    event = TextDelta(segment, text)
    assert list(decode_events(encode_event(7, event).split(b"\n"))) == [event]


# Who chooses


def test_a_running_server_is_used_and_one_is_not_started_by_the_way(isolated_environment: object) -> None:
    app = open_application(os.environ, flags={"model": "echo"})
    with app.open_service() as service:  # type: ignore[attr-defined]
        assert isinstance(service, LocalService)
    with serving(scripted_service(reply("resident"))[0]) as served:
        lock = ProcessLock(app.paths.server_lock)
        assert lock.acquire()
        write_server_file(app.paths, server_file(served))
        resident = app.open_service()
        assert isinstance(resident, ResidentService)
        assert resident.submit(request("Hello")).result(WAIT_S).text == "resident"
        resident.close()
        for flags in ({"resident": "off"}, {"threads": 1}):
            own = open_application(os.environ, flags={"model": "echo", **flags}).open_service(starts_resident=True)
            assert isinstance(own, LocalService)
            own.close()
        lock.release()
    after = app.open_service()
    assert isinstance(after, LocalService)
    after.close()


def test_every_field_of_a_request_crosses_to_the_server() -> None:
    wanted = TranslationRequest(
        text="Hello\n\u2028",
        target_lang="fr",
        source_lang="en",
        model="demo",
        priority=Priority.INTERACTIVE,
        sampling=SamplingParams(temperature=0.5, top_k=3, top_p=0.25, repetition_penalty=1.5, seed=7),
        use_cache=False,
        protect=("Acme",),
        draft="Bonjour\n",
        pivot=Pivot.ZH,
        isolate=True,
        keeps_translated=False,
        guidance=Guidance((Term("cat", "chat"),), "A film.", "formal"),
        units=(
            UnitText("a {x}", (ProtectedSpan(Span(2, 5), TokenKind.OPEN, 3),), frozenset({TokenGroup.NONE}), ("b",)),
        ),
    )
    assert wanted.sampling is not None
    for value in (wanted, wanted.sampling):
        for each in msgspec.structs.fields(value):
            default = each.default if each.default is not msgspec.NODEFAULT else None
            assert getattr(value, each.name) != default, f"{each.name} is not tried"
    body = msgspec.json.decode(_encoded(wanted), type=TranslateBody)
    assert body.requests() == [wanted]
    assert body.stream


def test_units_of_a_document_cross_to_the_server() -> None:
    seen = []
    with serving(scripted_service(reply("Bonjour"))[0]) as served:
        flights = served.context.flights
        start = flights._start
        flights._start = lambda wanted, **more: (seen.append(wanted), start(wanted, **more))[1]  # type: ignore[method-assign, func-returns-value]
        wanted = request("", units=(UnitText("Hello {x}", context=("Title",)),))
        job = ResidentService(lambda: server_file(served)).submit(wanted)
        list(job)
    assert seen == [wanted]
