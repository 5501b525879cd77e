"""Bytes that no well-meant client sends: one answer or none, no traceback in the log, and the next client is served."""

from __future__ import annotations

import json
import logging
import random
import re
import socket
from collections.abc import Iterator

import pytest

from hymt_local.engine.scripted import Hang, reply
from hymt_local.server.limits import ServerLimits
from tests.server.serving import TOKEN, WAIT_S, Served, serving
from tests.server.test_faults import answer_of
from tests.server.test_native import HELLO, wait_until
from tests.services import scripted_service

HOST = "Host: localhost\r\n"
CLOSING = f"{HOST}Authorization: Bearer {TOKEN}\r\nConnection: close\r\n"
JSON = f"{CLOSING}Content-Type: application/json\r\n"
TEXT = json.dumps(HELLO).encode()
SECOND = f"GET /v1/models HTTP/1.1\r\n{CLOSING}\r\n".encode()


def head(first: str, lines: str = CLOSING) -> bytes:
    return f"{first} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")


def post(body: bytes, *, lines: str = JSON) -> bytes:
    return head("POST /v1/translate", f"{lines}Content-Length: {len(body)}\r\n") + body


def chunked(*chunks: bytes, lines: str = JSON) -> bytes:
    return head("POST /v1/translate", f"{lines}Transfer-Encoding: chunked\r\n") + b"".join(chunks)


def with_field(value: bytes) -> bytes:
    return TEXT[:-1] + b', "x": ' + value + b"}"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    limits = ServerLimits(head_s=1.0, body_s=1.0, linger_s=0.2)
    with serving(scripted_service(reply("Bonjour"))[0], limits=limits) as running:
        yield running


@pytest.fixture(autouse=True)
def quiet(served: Served, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever came, the log has no traceback and the next request its answer."""
    with caplog.at_level(logging.WARNING):
        yield
        assert served.ask("POST", "/v1/translate", HELLO).json["text"] == "Bonjour"
    assert [
        record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info
    ] == []


def statuses(served: Served, data: bytes) -> list[int]:
    with served.connect() as connection:
        try:
            connection.sendall(data)
            answer = answer_of(connection)
        except OSError:  # the server has closed before it read all
            return []
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


LENGTHS = {
    "two": "Content-Length: 0\r\nContent-Length: 60\r\n",
    "sign": "Content-Length: +5\r\n",
    "space": "Content-Length : 60\r\n",
    "digits of another script": "Content-Length: \xb2\r\n",
    "beyond every integer": f"Content-Length: {'9' * 5000}\r\n",
    "length and chunks": "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
    "another coding": "Transfer-Encoding: gzip, chunked\r\n",
    "a coding that only looks like it": "Transfer-Encoding: xchunked\r\n",
    "coding with a space": "Transfer-Encoding : chunked\r\n",
    "codings": "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    "line in a line": "X: a\r\n Content-Length: 60\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n",
}


@pytest.mark.parametrize("lines", LENGTHS.values(), ids=LENGTHS)
def test_a_request_of_doubtful_length_is_refused_and_nothing_behind_it_is_read(served: Served, lines: str) -> None:
    smuggled = b"0\r\n\r\n" + SECOND
    assert statuses(
        served, head("POST /v1/translate", JSON.replace("Connection: close\r\n", "") + lines) + smuggled
    ) == [400]


CHUNKS = {
    "negative": b"-5\r\nhello\r\n0\r\n\r\n",
    "no number": b"zz\r\nhello\r\n0\r\n\r\n",
    "endless number": b"f" * 5000 + b"\r\nhello\r\n0\r\n\r\n",
    "too short": b"5\r\nhelloXX0\r\n\r\n",
    "endless remark": b"5;" + b"a" * 200_000 + b"\r\nhello\r\n0\r\n\r\n",
    "nothing but zeros": b"0" * 5000 + b"\r\n\r\n",
}


@pytest.mark.parametrize(
    "lines", [JSON, HOST, JSON.replace("application/json", "text/plain")], ids=["", "nobody", "odd"]
)
@pytest.mark.parametrize("chunk", CHUNKS.values(), ids=CHUNKS)
def test_chunks_that_make_no_sense_are_refused_once(served: Served, chunk: bytes, lines: str) -> None:
    found = statuses(served, chunked(chunk, lines=lines))
    assert found in ([400], [401], [415], [])  # whichever was seen first: the chunk, or the head


def test_chunks_that_break_behind_the_head_of_the_answer_end_the_connection(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(chunked(lines=HOST))  # nobody's: refused at its head
        assert connection.recv(20).startswith(b"HTTP/1.1 401 ")
        connection.sendall(b"zz\r\n")
        assert b"HTTP/1.1" not in answer_of(connection)


def test_small_chunks_and_what_follows_the_last_one_are_fine(served: Served) -> None:
    single = b"".join(b"1;x=y\r\n%c\r\n" % byte for byte in TEXT)
    assert statuses(served, chunked(single, b"0\r\nHost: evil.example\r\nAuthorization: none\r\n\r\n")) == [200]


HEADS = {
    "flood of lines": (head("GET /health", CLOSING + "X: y\r\n" * 50_000), [400]),
    "endless line": (head("GET /health", f"{CLOSING}X: {'a' * 1_000_000}\r\n"), [400]),
    "endless address": (head(f"GET /{'a' * 1_000_000}"), [400]),
    "many slashes": (head(f"GET /{'/' * 50_000}"), [200]),
    "zero byte": (head("GET /health", f"{CLOSING}X: a\0b\r\n"), [400]),
    "bytes in the address": (head("GET /v1/jobs/\xe9"), [400]),
    "address that is no text": (head("GET /v1/jobs/%ff%fe%zz"), [404]),
    "two hosts": (head("GET /v1/models", f"Host: evil.example\r\n{CLOSING}"), [400]),
    "host in two lines": (head("GET /health", "Host: localhost\r\n evil\r\nConnection: close\r\n"), [421]),
    "no host": (head("GET /v1/models", CLOSING.replace(HOST, "")), [400]),
    "another host in the address": (head("GET http://evil.example/v1/models"), [404]),
    "proxy": (head("CONNECT evil.example:443"), [404]),
    "no protocol": (b"GET /\r\n\r\n", [400]),
    "another protocol": (b"GET / HTTP/3.7\r\n\r\n", [421]),
    "made-up method": (head("BREW /v1/translate"), [405]),
    "endless method": (head(f"{'A' * 5000} /v1/translate"), [405]),
    "websocket": (head("GET /v1/models", f"{CLOSING.replace('close', 'Upgrade, close')}Upgrade: websocket\r\n"), [200]),
    "http/2": (head("GET /v1/models", f"{CLOSING.replace('close', 'Upgrade, close')}Upgrade: h2c\r\n"), [200]),
    "two tokens": (head("GET /v1/models", f"Authorization: Bearer wrong\r\n{CLOSING}"), [401]),
    "token that is no text": (head("GET /v1/models", CLOSING.replace(TOKEN, "\xff")), [401]),
    "event from the far future": (head("GET /v1/jobs/a/events", f"{CLOSING}Last-Event-ID: {'9' * 5000}\r\n"), [404]),
    "out of the folder": (head("GET /page/../../running.py"), [404]),
    "out of the folder, encoded": (head("GET /page/%2e%2e/%2e%2e/running.py"), [404]),
    "range": (head("GET /page/page.js", f"{CLOSING}Range: bytes={'0-1,' * 10_000}9-\r\n"), [200]),
    "empty lines": (b"\r\n" * 1000, [400]),
    "noise": (random.Random(8).randbytes(4000) + b"\r\n\r\n", [400]),
}  # fmt: skip


@pytest.mark.parametrize(("data", "expected"), HEADS.values(), ids=HEADS)
def test_odd_heads_get_one_answer(served: Served, data: bytes, expected: list[int]) -> None:
    assert statuses(served, data) in (expected, [])


BODIES = {
    "half a character": (b'{"text":"\xff","target_lang":"fr"}', 400),
    "utf-16": (TEXT.decode().encode("utf-16"), 400),
    "byte order mark": (b"\xef\xbb\xbf" + TEXT, 200),
    "deep list": (with_field(b"[" * 100_000 + b"]" * 100_000), 400),
    "deep object": (with_field(b'{"a":' * 100_000 + b"1" + b"}" * 100_000), 400),
    "deep and cut off": (with_field(b"[" * 100_000)[:-1], 400),
    "number of 100,000 digits": (TEXT[:-1] + b', "keep_alive_s": ' + b"9" * 100_000 + b"}", 400),
    "number beyond a float": (TEXT[:-1] + b', "keep_alive_s": 1e999999}', 400),
    "not a number": (TEXT[:-1] + b', "keep_alive_s": NaN}', 400),
    "names twice: the last counts": (b'{"target_lang": "xx", "text": 1, ' + TEXT[1:], 400),
    "first half of a pair": (b'{"text":"\\ud800 a","source_lang":"en","target_lang":"fr"}', 400),
    "pair turned round": (b'{"text":"\\udc00\\ud800","source_lang":"en","target_lang":"fr"}', 400),
    "nothing": (b"", 400),
    "null": (b"null", 400),
    "something behind": (TEXT + b"{}", 400),
}


@pytest.mark.parametrize(("body", "status"), BODIES.values(), ids=BODIES)
def test_odd_json_is_taken_or_refused(served: Served, body: bytes, status: int) -> None:
    assert statuses(served, post(body)) == [status]


FORMS = {
    "no boundary": ("multipart/form-data", b"--x\r\n\r\n"),
    "endless boundary": (f"multipart/form-data; boundary={'a' * 5000}", b"--x\r\n\r\n"),
    "many fields": (
        "multipart/form-data; boundary=x",
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' * 5000 + b"--x--\r\n",
    ),
    "endless name": (
        "multipart/form-data; boundary=x",
        b'--x\r\nContent-Disposition: form-data; name="' + b"a" * 500_000 + b'"\r\n\r\n1\r\n--x--\r\n',
    ),
    "no end": ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\nhello'),
    "unknown charset": (
        "multipart/form-data; boundary=x; charset=klingon",
        b"--x\r\nContent-Disposition: form-data; name=file; filename*=klingon''a.txt\r\n\r\nhello\r\n--x--\r\n",
    ),
}


@pytest.mark.parametrize(("media_type", "body"), FORMS.values(), ids=FORMS)
def test_forms_that_are_none_are_refused(served: Served, media_type: str, body: bytes) -> None:
    lines = f"{CLOSING}Content-Type: {media_type}\r\nContent-Length: {len(body)}\r\n"
    assert statuses(served, head("POST /v1/documents", lines) + body) == [400]


def test_noise_behind_a_request_under_way_does_not_reach_its_answer(served: Served) -> None:
    lines = JSON.replace("Connection: close\r\n", "")
    assert statuses(served, post(TEXT, lines=lines) + b"\0\1\2 noise\r\n\r\n") == [200, 400]


def test_requests_in_a_row_are_answered_in_a_row(served: Served) -> None:
    many = b"".join(post(TEXT, lines=JSON.replace("Connection: close\r\n", "")) for _ in range(50))
    assert statuses(served, many + SECOND) == [200] * 51


def test_a_client_that_closes_its_half_frees_the_engine() -> None:
    hang = Hang()
    with serving(scripted_service(hang)[0]) as served, served.connect() as connection:
        connection.sendall(post(TEXT))
        assert hang.started.wait(WAIT_S)
        connection.shutdown(socket.SHUT_WR)
        wait_until(lambda: not served.context.flights.n_active)
