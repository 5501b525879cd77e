"""The native interface: answers, streams, jobs, and what the server tells of itself."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from hymt_local.engine.scripted import Behaviour, Crash, Gated, Hang, ScriptedBackend, reply
from hymt_local.errors import DecodeError
from hymt_local.server.flights import EVENTS_AT_ONCE, Flight, Flights
from tests.server.serving import TOKEN, WAIT_S, Served, serving
from tests.server.streams import streaming
from tests.services import scripted_service

HELLO = {"text": "Hello", "source_lang": "en", "target_lang": "fr"}


@contextmanager
def scripted(*script: Behaviour) -> Iterator[tuple[Served, ScriptedBackend]]:
    service, backend = scripted_service(*script)
    with serving(service) as served:
        yield served, backend


@pytest.fixture
def served() -> Iterator[Served]:
    with scripted(reply("Bonjour")) as (running, _):
        yield running


def wait_until(is_so: Callable[[], bool], *, most_s: float = WAIT_S) -> float:
    """Return how long it took."""
    started = time.perf_counter()
    while not is_so():
        assert time.perf_counter() - started < most_s
        time.sleep(0.002)
    return time.perf_counter() - started


def test_one_text_is_answered_as_json_with_its_provenance(served: Served) -> None:
    answer = served.ask("POST", "/v1/translate", {**HELLO, "text": "Hello\n\n42\n", "unknown": 1})
    assert answer.status == 200
    assert answer.json["text"] == "Bonjour\n\n42\n"
    assert (answer.json["source_lang"], answer.json["origin"], answer.json["failed"]) == ("en", "model", [])


def test_a_list_is_answered_in_its_order(shared: Served) -> None:
    texts = ["1", "Hello", "2", "Hello", ""]
    answer = shared.ask("POST", "/v1/translate", {**HELLO, "text": texts[:-1]})
    assert [each["text"] for each in answer.json["translations"]] == ["1", "Bonjour", "2", "Bonjour"]


def test_empty_texts_of_a_list_stay_empty(shared: Served) -> None:
    answer = shared.ask("POST", "/v1/translate", {**HELLO, "text": ["", "Hello", " ", ""]})
    assert [each["text"] for each in answer.json["translations"]] == ["", "Bonjour", " ", ""]
    assert shared.ask("POST", "/v1/translate", {**HELLO, "text": []}).json == {"translations": []}


def test_a_stream_has_the_grammar_of_events(shared: Served) -> None:
    with streaming(shared, "/v1/translate", HELLO) as stream:
        told = list(stream)
    assert [each.id for each in told] == list(range(len(told)))
    names = [each.name for each in told if each.name != "loading"]
    assert (names[0], names[-2:]) == ("started", ["segment", "done"])
    assert "".join(each.data["text"] for each in told if each.name == "token") == "Bonjour"
    assert told[-1].data["text"] == "Bonjour"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({**HELLO, "text": ""}, 400, "empty_input"),
        ({**HELLO, "target_lang": "tlh"}, 400, "language"),
        ({"text": "Hello"}, 400, "usage"),
        ({**HELLO, "text": ["a"], "stream": True}, 400, "usage"),
        (b"{", 400, "usage"),
        (b"[" * 100_000, 400, "usage"),
        (b'{"x":' * 100_000, 400, "usage"),
        (b'{"text": "\xff"}', 400, "input_encoding"),
        (b'{"text": "\\ud800", "target_lang": "fr"}', 400, "usage"),
        ({**HELLO, "text": ["a"] * 3000}, 413, "request_too_large"),
    ],
    ids=range(10),
)
def test_a_bad_request_has_its_status_and_code(shared: Served, body: object, status: int, code: str) -> None:
    answer = shared.ask("POST", "/v1/translate", body, headers={"Content-Type": "application/json"})
    assert (answer.status, answer.json["error"]["code"]) == (status, code)
    assert shared.ask("POST", "/v1/translate", HELLO).status == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_is_an_error_status_and_not_the_source(stream: bool) -> None:
    with scripted(Crash(DecodeError("llama_decode failed"))) as (served, _):
        if not stream:
            answer = served.ask("POST", "/v1/translate", HELLO)
            assert (answer.status, answer.json["error"]["code"]) == (503, "decode")
        else:
            with streaming(served, "/v1/translate", HELLO) as events:
                assert list(events)[-1].data["error"]["code"] == "decode"


def test_only_json_is_taken(shared: Served) -> None:
    answer = shared.ask("POST", "/v1/translate", b"text=Hello", headers={"Content-Type": "text/plain"})
    assert (answer.status, answer.json["error"]["code"]) == (415, "media_type")


def test_a_wrong_method_names_the_right_one(shared: Served) -> None:
    answer = shared.ask("GET", "/v1/translate")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert "POST" in answer.json["error"]["hint"]


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_closed_connection_cancels_its_translation(phase: str, stream: bool) -> None:
    hang = Hang() if phase == "decode" else Gated(threading.Event())
    with scripted(hang, reply("Bonjour")) as (served, _):
        if stream:
            with streaming(served, "/v1/translate", HELLO):
                assert hang.started.wait(WAIT_S)
                assert served.context.flights.n_active == 1
        else:
            with served.connect() as connection:
                connection.sendall(_raw("/v1/translate", HELLO))
                assert hang.started.wait(WAIT_S)
        wait_until(lambda: served.context.flights.n_active == 0)
        assert served.ask("POST", "/v1/translate", HELLO).json["text"] == "Bonjour"


def _raw(path: str, body: object) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json"
    return f"{head}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def test_identical_requests_at_once_are_computed_once() -> None:
    gated = Gated(threading.Event(), reply("Bonjour"))
    with scripted(gated, reply("again")) as (served, backend):
        answers: list[str] = []

        def ask() -> None:
            answers.append(served.ask("POST", "/v1/translate", HELLO).json["text"])

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert gated.started.wait(WAIT_S)
        with streaming(served, "/v1/translate", {**HELLO, "priority": "interactive"}) as stream:
            wait_until(lambda: _followers(served) == 5)
            gated.gate.set()
            assert list(stream)[-1].data["text"] == "Bonjour"
        for thread in threads:
            thread.join(WAIT_S)
        assert answers == ["Bonjour"] * 4
        assert len(backend.calls.requests) == 1


def _followers(served: Served) -> int:
    return sum(flight.n_followers for flight in list(served.context.flights._by_id.values()))


def test_one_of_two_followers_may_leave() -> None:
    gated = Gated(threading.Event(), reply("Bonjour"))
    with scripted(gated) as (served, _), streaming(served, "/v1/translate", HELLO) as stays:
        with streaming(served, "/v1/translate", HELLO):
            assert gated.started.wait(WAIT_S)
            wait_until(lambda: _followers(served) == 2)
        wait_until(lambda: _followers(served) == 1)
        gated.gate.set()
        assert list(stays)[-1].name == "done"


def test_a_detached_job_outlives_its_connection_and_is_resumed_where_it_was_left() -> None:
    gated = Gated(threading.Event(), reply("Bonjour"))
    with scripted(gated) as (served, _):
        with streaming(served, "/v1/translate", {**HELLO, "detached": True}) as stream:
            started = stream.until("started")
            job = f"/v1/jobs/{stream.job_id}"
        assert served.ask("GET", job).json["state"] == "running"
        gated.gate.set()
        with streaming(served, f"{job}/events", last_id=started.id) as resumed:
            told = list(resumed)
        assert (told[0].id, told[-1].name) == (started.id + 1, "done")
        assert served.ask("GET", job).json == {
            "id": job.rpartition("/")[2], "state": "done", "n_events": told[-1].id + 1, "model": "scripted:none",
            "segments_done": 1, "segments": 1,
        }  # fmt: skip


def test_a_job_is_cancelled_by_its_id() -> None:
    hang = Hang()
    with scripted(hang) as (served, _):
        answer = served.ask("POST", "/v1/translate", {**HELLO, "detached": True})
        assert answer.status == 202
        job = f"/v1/jobs/{answer.json['id']}"
        with streaming(served, f"{job}/events") as stream:
            assert hang.started.wait(WAIT_S)
            assert served.ask("DELETE", job).json["state"] == "cancelled"
            assert list(stream)[-1].name == "cancelled"
        assert served.ask("GET", "/v1/jobs/none").status == 404


@pytest.mark.parametrize("target", ["FR", "ZH", "ZH-HANT", "PT-BR"])
@pytest.mark.parametrize("source", ["EN", "", "auto", None])
def test_clients_of_deeplx_find_their_answer_at_the_same_path(served: Served, target: str, source: str | None) -> None:
    body = {"text": "How are you today?", "source_lang": source, "target_lang": target, "tag_handling": ""}
    answer = served.ask("POST", "/v1/translate", body)
    assert (answer.status, answer.json["code"], answer.json["data"]) == (200, 200, "Bonjour")
    assert answer.json["text"] == answer.json["data"]


def test_clients_of_deeplx_never_take_source_text_for_a_translation() -> None:
    with scripted(reply("Bonjour"), *[reply("")] * 20) as (served, _):
        answer = served.ask("POST", "/v1/translate", {**HELLO, "text": "Hello there.\n\nGood evening."})
    assert (answer.status, len(answer.json["failed"])) == (200, 1)
    assert answer.json["code"] >= 400
    assert "data" not in answer.json


def test_languages_detection_and_models(served: Served) -> None:
    languages = served.ask("GET", "/v1/languages").json
    assert (languages["model"], len(languages["languages"])) == ("echo", 38)
    assert served.ask("GET", "/v1/languages?model=nothing").status == 404
    found = served.ask("POST", "/v1/detect", {"text": ["你好", "42", "where is the station"]}).json["detections"]
    assert [each[0]["language"] if each else None for each in found] == ["zh", None, "en"]
    models = served.ask("GET", "/v1/models").json
    assert [item["id"] for item in models["data"] if item["is_default"]] == ["echo"]


def test_ready_says_whether_the_model_is_there() -> None:
    service, _ = scripted_service()
    with serving(service, model="Hy-MT2-7B") as served:
        answer = served.ask("GET", "/ready", token=None)
        assert (answer.status, answer.json["error"]["code"]) == (404, "model_not_found")
        assert served.ask("GET", "/health", token=None).status == 200


def test_metrics_count_and_hold_no_text(served: Served) -> None:
    served.ask("POST", "/v1/translate", HELLO)
    text = served.ask("GET", "/metrics").body.decode()
    assert 'hymt_translations_total{end="done"} 1' in text
    assert 'hymt_http_requests_total{dialect="native",status="200"} 1' in text
    assert "hymt_characters_total 5" in text
    assert "Hello" not in text


async def largest_gulp(flights: Flights, *, n_events: int) -> int:
    """Watch from the loop itself, turn by turn, until so many events are there: the most that came within one turn."""
    seen: dict[str, Flight] = {}
    n_seen = largest = 0
    while n_seen < n_events:
        await asyncio.sleep(0)
        seen |= flights._by_id
        n_now = sum(len(flight.events) for flight in seen.values())
        n_seen, largest = n_now, max(largest, n_now - n_seen)
    return largest


def test_a_long_text_that_needs_no_engine_does_not_hold_up_the_others() -> None:
    numbers = "\n".join(map(str, range(60_000)))
    with scripted(reply("Bonjour")) as (served, _):
        watch = largest_gulp(served.context.flights, n_events=60_000)
        gulp = asyncio.run_coroutine_threadsafe(watch, served.loop)
        with streaming(served, "/v1/translate", {**HELLO, "text": numbers}) as long:
            long.until("segment")
            assert served.ask("POST", "/v1/translate", HELLO).json["text"] == "Bonjour"
            assert list(long)[-1].data["text"] == numbers
        assert gulp.result(WAIT_S) <= 2 * EVENTS_AT_ONCE
