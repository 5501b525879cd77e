"""What goes wrong on the wire: each fault has its answer, and the next request finds the server well."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from hymt_local.engine.scripted import Gated, Hang, Reply, reply
from hymt_local.server.limits import ServerLimits
from tests.server.serving import TOKEN, WAIT_S, Served, serving
from tests.server.streams import streaming
from tests.server.test_native import HELLO, wait_until
from tests.services import scripted_service

HEAD = f"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
JSON_HEAD = f"{HEAD}Content-Type: application/json\r\n"
QUICK = ServerLimits(head_s=0.2, body_s=0.2, write_s=0.2, linger_s=0.2, body_bytes=100_000, waiting_requests=2)


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(scripted_service(reply("Bonjour"))[0], limits=QUICK) as running:
        yield running
        assert running.ask("POST", "/v1/translate", HELLO).json["text"] == "Bonjour"


def answer_of(connection: socket.socket) -> bytes:
    """Return everything until the server closes the connection."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def test_a_body_of_200_mb_is_refused_without_reading_it(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(f"{JSON_HEAD}Content-Length: 209715200\r\n\r\n".encode() + b"x" * 1000)
        answer = answer_of(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_too_large"


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/v1/translate", {"error"}),
        ("/translate", {"error", "code", "message"}),
        ("/v2/translate", {"message", "detail"}),
    ],
)
def test_too_many_requests_at_once_are_told_so_in_their_dialect(path: str, shape: set[str]) -> None:
    hang = Hang()
    with (
        serving(scripted_service(hang)[0], limits=ServerLimits(connections=1)) as served,
        streaming(served, "/v1/translate", HELLO),
    ):
        assert hang.started.wait(WAIT_S)
        answer = served.ask("POST", path, {"text": "Hello"})
        assert (answer.status, answer.headers["retry-after"], set(answer.json)) == (429, "2", shape)


def test_more_connections_than_that_are_closed() -> None:
    with serving(scripted_service(reply("Bonjour"))[0], limits=ServerLimits(connections=1)) as served:
        first, second = served.connect(), served.connect()
        wait_until(lambda: refused(served))
        first.close()
        second.close()
        wait_until(lambda: not refused(served))


def refused(served: Served) -> bool:
    try:
        return served.ask("GET", "/health").status != 200
    except OSError:
        return True


def test_a_chunked_body_is_refused_where_it_becomes_too_long(served: Served) -> None:
    chunk = b"2710\r\n" + b" " * 10_000 + b"\r\n"
    with served.connect() as connection:
        connection.sendall(f"{JSON_HEAD}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk * 11)
        assert answer_of(connection).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(("token", "n_bytes", "status"), [(TOKEN, 5_000_000, 413), ("wrong", 90_000, 401)])
def test_who_sends_all_of_a_body_that_is_refused_reads_why(
    served: Served, token: str, n_bytes: int, status: int
) -> None:
    assert served.ask("POST", "/v1/translate", b" " * n_bytes, token=token).status == status


def test_a_body_without_end_is_not_read_for_ever() -> None:
    limits = ServerLimits(body_bytes=1000, linger_bytes=100_000)
    with serving(scripted_service()[0], limits=limits) as served, served.connect() as connection:
        connection.sendall(f"{JSON_HEAD}Content-Length: 209715200\r\n\r\n".encode())
        assert _sent_before_closed(connection) < 100_000_000


def _sent_before_closed(connection: socket.socket) -> int:
    n_sent = 0
    try:
        while n_sent < 200_000_000:
            n_sent += connection.send(b" " * 100_000)
    except OSError:
        pass
    return n_sent


@pytest.mark.parametrize("length", ["-1", "1e3", "٣"])
def test_a_length_that_is_none_is_refused(served: Served, length: str) -> None:
    with served.connect() as connection:
        connection.sendall(f"{JSON_HEAD}Content-Length: {length}\r\n\r\n".encode())
        assert answer_of(connection).startswith(b"HTTP/1.1 400 ")


def test_a_head_that_does_not_end_is_cut_off(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(HEAD.encode())
        assert answer_of(connection) == b""


def test_a_head_that_trickles_gains_no_time(served: Served) -> None:
    started = time.perf_counter()
    with served.connect() as connection:
        connection.settimeout(0.05)
        while not _is_closed_after(connection, b"X"):
            assert time.perf_counter() - started < WAIT_S


def _is_closed_after(connection: socket.socket, data: bytes) -> bool:
    try:
        connection.sendall(data)
        return not connection.recv(1)
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_body_that_does_not_come_is_refused(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(f"{JSON_HEAD}Content-Length: 100\r\n\r\n{{".encode())
        answer = answer_of(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"did not come in time" in answer


def test_garbage_instead_of_http_is_refused(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n")
        assert answer_of(connection).startswith(b"HTTP/1.1 400 ")


def test_a_connection_is_used_for_several_requests(served: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=WAIT_S)
    for _ in range(3):
        connection.request("GET", "/health")
        assert connection.getresponse().read().startswith(b'{"status":"ok"')
    connection.close()


def test_requests_sent_at_once_are_answered_in_order(served: Served) -> None:
    with served.connect() as connection:
        health = "GET /health HTTP/1.1\r\nHost: localhost\r\n"
        connection.sendall(f"{health}\r\nGET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answers = answer_of(connection)
    assert re.findall(rb"HTTP/1\.1 (\d+)", answers) == [b"200", b"421"]


def test_a_reader_that_takes_nothing_is_dropped_and_its_translation_cancelled() -> None:
    answer = Reply(b"word " * 400_000, chunk=50_000)
    service, _ = scripted_service(answer, context_length=10_000_000)
    with serving(service, limits=QUICK) as served, served.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = json.dumps({**HELLO, "text": "Hello " * 15_000, "stream": True}).encode()
        connection.sendall(f"{JSON_HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_until(lambda: served.context.flights.n_active == 1)
        wait_until(lambda: not served.on_loop(lambda: served.context.flights.n_active))


def test_a_full_waiting_line_answers_429_with_a_time_to_come_back() -> None:
    gate = threading.Event()
    service, _ = scripted_service(Gated(gate, reply("Bonjour")))
    with serving(service, limits=QUICK) as served:
        assert served.ask("POST", "/v1/translate", {**HELLO, "text": "one", "detached": True}).status == 202
        with streaming(served, "/v1/translate", {**HELLO, "text": "two", "detached": True}) as stream:
            stream.until("started")
        refused = served.ask("POST", "/v1/translate", {**HELLO, "text": "three"})
        assert (refused.status, refused.json["error"]["code"]) == (429, "busy")
        assert int(refused.headers["retry-after"]) >= 1
        gate.set()
        wait_until(lambda: not served.context.flights.n_active)
        assert served.ask("POST", "/v1/translate", {**HELLO, "text": "three"}).status == 200


def test_stopping_with_open_streams_takes_less_than_three_seconds_and_ends_them() -> None:
    hang = Hang()
    with serving(scripted_service(hang)[0]) as served, streaming(served, "/v1/translate", HELLO) as stream:
        assert hang.started.wait(WAIT_S)
        started = time.perf_counter()
        served.stop()
        assert list(stream)[-1].name == "cancelled"
        wait_until(served.loop.is_closed)
        assert time.perf_counter() - started < 3.0


def test_strangers_among_the_requests_do_not_disturb_the_others(served: Served) -> None:
    def stranger(number: int) -> None:
        served.ask("POST", "/v1/translate", {**HELLO, "text": str(number)}, token="x" * number)

    threads = [threading.Thread(target=stranger, args=[number]) for number in range(1, 20)]
    for thread in threads:
        thread.start()
    texts = [f"{number}\nHello" for number in range(20)]
    answers = served.ask("POST", "/v1/translate", {**HELLO, "text": texts}).json["translations"]
    for thread in threads:
        thread.join(WAIT_S)
    assert [answer["text"] for answer in answers] == [text.replace("Hello", "Bonjour") for text in texts]


def test_bodies_of_all_requests_together_have_a_limit_and_give_their_room_back() -> None:
    limits = ServerLimits(held_bytes=150_000, linger_s=0.2)
    head = JSON_HEAD.replace("/v1/translate", "/v2/translate").replace(f"Authorization: Bearer {TOKEN}\r\n", "")
    with serving(scripted_service(reply("Bonjour"))[0], limits=limits) as served:

        def status_of_large() -> int:
            return served.ask("POST", "/v1/translate", {**HELLO, "text": "Hello" + " " * 100_000}).status

        with served.connect() as first:
            first.sendall(f"{head}Content-Length: 200000\r\n\r\n".encode() + b" " * 100_000)  # anybody may, so far
            wait_until(lambda: status_of_large() == 429)
        wait_until(lambda: status_of_large() == 200)
        assert [status_of_large() for _ in range(3)] == [200] * 3
