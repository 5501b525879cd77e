"""The time that a request of a client with a key may take: each dialect says when it is over, and cancels it."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from hymt_local.client_keys import ClientFile, StoredClient, new_client
from hymt_local.engine.scripted import Gated, Hang, reply
from hymt_local.paths import Paths
from hymt_local.server.limits import ClientLimits, TimeBudget
from tests.server.serving import WAIT_S, serving
from tests.server.streams import streaming
from tests.server.test_native import HELLO, wait_until
from tests.services import scripted_service

CHAT = {"model": "x", "messages": [{"role": "user", "content": "Translate into French: Hello"}]}


@pytest.fixture
def key(paths: Paths) -> str:
    """The key of a client who has a fifth of a second for a request."""
    client, key = new_client(StoredClient(name="guest", key_sha256="", seconds_per_request=0.2))
    ClientFile(paths.clients_file).add(client)
    return key


@pytest.mark.parametrize(
    ("path", "body", "status", "where"),
    [
        ("/v1/translate", HELLO, 504, ("error", "message")),
        ("/v1/translate", {**HELLO, "text": ["Hello", "again"]}, 504, ("error", "message")),
        ("/translate", {"q": "Hello", "source": "en", "target": "fr"}, 504, ("error",)),
        ("/v2/translate", {"text": ["Hello"], "target_lang": "FR"}, 413, ("message",)),
        ("/translate", {"text": "Hello", "source_lang": "EN", "target_lang": "FR"}, 504, ("message",)),
        ("/imme", {"text_list": ["Hello"], "source_lang": "en", "target_lang": "fr"}, 504, ("message",)),
        ("/v1/chat/completions", CHAT, 504, ("error", "message")),
        ("/v1/chat/completions", {**CHAT, "stream": True}, 504, ("error", "message")),
    ],
)
def test_what_takes_too_long_is_told_in_its_dialect_and_cancelled(
    key: str, path: str, body: Any, status: int, where: tuple[str, ...]
) -> None:
    with serving(scripted_service(Hang(), Hang())[0]) as served:
        answer = served.ask("POST", path, body, token=key)
        told = answer.json
        for name in where:
            told = told[name]
        assert (answer.status, "longer than the 0.2 s" in told) == (status, True)
        wait_until(lambda: served.context.flights.n_active == 0)


def test_clients_of_openai_are_told_not_to_try_again(key: str) -> None:
    with serving(scripted_service(Hang())[0]) as served:
        assert served.ask("POST", "/v1/chat/completions", CHAT, token=key).headers["x-should-retry"] == "false"


def test_a_stream_that_has_begun_ends_with_an_error(key: str) -> None:
    hang = Hang()
    with serving(scripted_service(hang)[0]) as served:
        with streaming(served, "/v1/translate", HELLO, token=key) as stream:
            last = list(stream)[-1]
        assert (last.name, last.data["error"]["code"]) == ("error", "time_limit")
        wait_until(lambda: served.context.flights.n_active == 0)


def test_a_chat_whose_text_has_begun_ends_with_an_error(key: str) -> None:
    chat = {**CHAT, "messages": [{"role": "user", "content": "Translate into French:\n\nOne.\nTwo."}], "stream": True}
    with serving(scripted_service(reply("Un."), Hang())[0]) as served:
        *chunks, error, done = served.ask("POST", "/v1/chat/completions", chat, token=key).body.strip().split(b"\n\n")
    said = [choice["delta"].get("content", "") for chunk in chunks for choice in json.loads(chunk[6:])["choices"]]
    assert ("".join(said), done) == ("Un.", b"data: [DONE]")
    assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == "time_limit"


def test_a_detached_job_ends_too(key: str) -> None:
    with serving(scripted_service(Hang())[0]) as served:
        job = served.ask("POST", "/v1/translate", {**HELLO, "detached": True}, token=key).json["id"]
        with streaming(served, f"/v1/jobs/{job}/events", token=key) as stream:
            assert list(stream)[-1].data["error"]["code"] == "time_limit"


def test_others_who_want_the_same_go_on(key: str) -> None:
    gated = Gated(threading.Event(), reply("Bonjour"))
    with serving(scripted_service(gated)[0]) as served, streaming(served, "/v1/translate", HELLO) as owner:
        assert gated.started.wait(WAIT_S)
        assert served.ask("POST", "/v1/translate", HELLO, token=key).status == 504
        gated.gate.set()
        assert list(owner)[-1].data["text"] == "Bonjour"


async def test_another_timeout_is_not_taken_for_the_end_of_the_budget() -> None:
    with pytest.raises(TimeoutError):
        async with TimeBudget.of(ClientLimits(seconds_per_request=60.0)).kept():
            raise TimeoutError
