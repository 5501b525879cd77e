"""How long a model stays in memory, and that it is given back and loaded again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from hymt_local.application import open_application
from hymt_local.engine.scripted import Hang, ScriptedBackend, reply
from hymt_local.jobs import LocalService
from tests.server.serving import WAIT_S, Served, serving
from tests.server.streams import streaming
from tests.server.test_native import HELLO, wait_until
from tests.services import request, scripted_model, scripted_service


def reloadable(backend: ScriptedBackend) -> LocalService:
    """Return a service that makes a new engine each time its model is opened."""
    return LocalService(lambda ref: scripted_model(backend), cache_path=None)


@pytest.fixture
def backend() -> ScriptedBackend:
    return ScriptedBackend(reply("Bonjour"))


@pytest.fixture
def served(backend: ScriptedBackend) -> Iterator[Served]:
    with serving(reloadable(backend), settings={"idle_unload_s": 3600}) as running:
        yield running


def loaded(served: Served) -> list[str]:
    return [model["name"] for model in served.ask("GET", "/v1/status").json["models"]]


def test_an_unused_model_is_unloaded_after_its_time_and_loaded_again(backend: ScriptedBackend) -> None:
    with serving(reloadable(backend), settings={"idle_unload_s": 0}) as served:
        assert served.ask("POST", "/v1/translate", HELLO).status == 200
        wait_until(lambda: backend.calls.n_closed == 1)
        wait_until(lambda: loaded(served) == [])
        with streaming(served, "/v1/translate", {**HELLO, "text": "Hello again"}) as stream:
            names = [told.name for told in stream]
        assert names[-1] == "done"
        assert backend.calls.n_loaded == 2


def test_a_used_model_stays_for_the_time_of_the_settings(served: Served) -> None:
    served.ask("POST", "/v1/translate", HELLO)
    (model,) = served.ask("GET", "/v1/status").json["models"]
    assert 3500 < model["unloads_in_s"] <= 3600


def test_a_request_says_how_long_its_model_stays() -> None:
    app = open_application(os.environ, flags={"model": "echo"})
    with serving(LocalService(app.open_model, cache_path=None)) as served:

        def stay(keep_alive_s: float) -> Any:
            body = {**HELLO, "text": f"keep for {keep_alive_s}", "keep_alive_s": keep_alive_s}
            assert served.ask("POST", "/v1/translate", body).status == 200
            return served.ask("GET", "/v1/status").json["models"]

        assert stay(-1) == [{"name": "echo", "is_used": False, "unloads_in_s": None}]
        (model,) = stay(60)
        assert 50 < model["unloads_in_s"] <= 60
        stay(0)
        wait_until(lambda: loaded(served) == [])


def test_looking_at_the_server_neither_loads_nor_keeps_a_model(backend: ScriptedBackend, served: Served) -> None:
    for path in ("/health", "/ready", "/metrics", "/v1/models", "/v1/languages", "/v1/status"):
        assert served.ask("GET", path).status == 200
    assert backend.calls.n_loaded == 0
    served.ask("POST", "/v1/translate", HELLO)
    before = served.ask("GET", "/v1/status").json["models"][0]["unloads_in_s"]
    assert served.ask("GET", "/v1/status").json["models"][0]["unloads_in_s"] < before


def test_unload_frees_what_nobody_uses(backend: ScriptedBackend, served: Served) -> None:
    assert served.ask("POST", "/v1/unload", {}).json == {"unloaded": []}
    served.ask("POST", "/v1/translate", HELLO)
    assert served.ask("POST", "/v1/unload", {"model": "other"}).json == {"unloaded": []}
    assert served.ask("POST", "/v1/unload", {"model": "scripted:none"}).json == {"unloaded": ["scripted:none"]}
    assert backend.calls.n_closed == 1
    assert loaded(served) == []


def test_a_model_in_use_is_not_unloaded() -> None:
    hang = Hang()
    with serving(scripted_service(hang)[0]) as served, streaming(served, "/v1/translate", HELLO):
        assert hang.started.wait(WAIT_S)
        assert served.ask("POST", "/v1/unload", {}).json == {"unloaded": []}
        (model,) = served.ask("GET", "/v1/status").json["models"]
        assert (model["is_used"], model["unloads_in_s"]) == (True, None)


def test_jobs_that_come_while_a_model_is_unloaded_get_a_new_one(backend: ScriptedBackend) -> None:
    service = reloadable(backend)
    try:
        assert service.load() == "scripted:none"
        for number in range(50):
            job = service.submit(request(f"Hello {number}"))
            service.unload()
            assert job.result(timeout_s=WAIT_S).text == "Bonjour"
    finally:
        service.close()


def test_unloading_a_service_that_did_nothing_or_is_closed_is_fine(backend: ScriptedBackend) -> None:
    service = reloadable(backend)
    assert service.unload() == ()
    service.close()
    assert service.unload() == ()


def test_what_made_room_for_another_model_is_not_shown_any_more(backend: ScriptedBackend) -> None:
    service = reloadable(backend)
    with serving(service) as served:
        served.ask("POST", "/v1/translate", HELLO)
        assert loaded(served) == ["scripted:none"]
        service.when_freed(("scripted:none",))
        wait_until(lambda: loaded(served) == [])
