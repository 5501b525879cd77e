"""Who is let in: host, origin, token, size and rate of a request, before any route sees it."""

from __future__ import annotations

import pytest

from tests.server.serving import TOKEN, Served


def test_health_needs_no_token_and_says_who_answers(shared: Served) -> None:
    answer = shared.ask("GET", "/health", token=None)
    assert (answer.status, answer.json["server"]) == (200, "hymt-local")


@pytest.mark.parametrize("token", [None, "", "x" * 43, "ü"])
def test_without_the_right_token_nothing_is_told(shared: Served, token: str | None) -> None:
    headers = {} if token is None else {"Authorization": f"Bearer {token}".encode().decode("latin-1")}
    answer = shared.ask("GET", "/nothing", token=None, headers=headers)
    assert (answer.status, answer.json["error"]["code"]) == (401, "access")
    assert shared.ask("GET", "/nothing").status == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:4968", "127.0.0.1.nip.io", "", "[::2]", "[bad"])
def test_a_foreign_host_is_refused_before_the_token_is_looked_at(shared: Served, host: str) -> None:
    answer = shared.ask("GET", "/health", headers={"Host": host})
    assert (answer.status, answer.json["error"]["code"]) == (421, "misdirected")


@pytest.mark.parametrize(
    "host",
    ["evil@localhost", "localhost/evil", "localhost#evil", "localhost?x", "local\thost", "localhost:x", "localhost..",
     "localhost evil", "localhost,evil", "localhost:123456", "[localhost]", "localhost\\evil"],
)  # fmt: skip
def test_what_only_contains_a_known_host_is_none(shared: Served, host: str) -> None:
    assert shared.ask("GET", "/health", headers={"Host": host}).status == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:99", "[::1]:4968", "localhost."])
def test_this_machine_has_several_names(shared: Served, host: str) -> None:
    assert shared.ask("GET", "/health", headers={"Host": host}).status == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "chrome-extension://abc"])
def test_a_foreign_origin_is_refused_with_and_without_preflight(shared: Served, origin: str) -> None:
    answer = shared.ask("POST", "/v1/translate", {"text": "Hello"}, headers={"Origin": origin})
    assert (answer.status, answer.json["error"]["code"]) == (403, "forbidden")
    preflight = shared.ask(
        "OPTIONS",
        "/v1/translate",
        token=None,
        headers={"Origin": origin, "Access-Control-Request-Method": "POST"},
    )
    assert preflight.status == 403
    assert not [name for name in preflight.headers if name.startswith("access-control")]


def test_the_own_page_is_allowed_and_its_preflight_answered(shared: Served) -> None:
    origin = f"http://127.0.0.1:{shared.port}"
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Private-Network": "true",
    }
    preflight = shared.ask("OPTIONS", "/v1/translate", token=None, headers=headers)
    assert preflight.status == 204
    assert preflight.headers["access-control-allow-origin"] == origin
    assert preflight.headers["access-control-allow-private-network"] == "true"
    assert shared.ask("GET", "/health", headers={"Origin": origin}).headers["access-control-allow-origin"] == origin


def raw(served: Served, text: str) -> bytes:
    with served.connect() as connection:
        connection.sendall(text.encode())
        answer = b""
        while received := connection.recv(65_536):
            answer += received
    return answer


def test_a_second_origin_does_not_come_in_behind_the_first(shared: Served) -> None:
    own = f"http://localhost:{shared.port}"
    head = f"GET /v1/models HTTP/1.1\r\nHost: localhost:{shared.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
    for origins, status in (([own], b"200"), ([own, "http://evil.example"], b"403"), ([own, own], b"403")):
        lines = "".join(f"Origin: {origin}\r\n" for origin in origins)
        assert raw(shared, f"{head}{lines}Connection: close\r\n\r\n").split(b" ")[1] == status


def test_nothing_is_smuggled_in_behind_a_body_of_two_lengths(shared: Served) -> None:
    head = f"POST /v1/detect HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    lengths = "Content-Type: application/json\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = raw(shared, f"{head}{lengths}0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
