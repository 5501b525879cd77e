from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hymt_local.engine.base import Backend, BackendOpener, Engine
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.engine.scripted import Crash, Hang, ScriptedBackend, open_scripted, reply
from hymt_local.errors import (
    CancelledError,
    EngineLoadError,
    ErrorReport,
    HymtError,
    ModelNotFoundError,
    NotCoveredError,
    error_of,
)
from hymt_local.events import Failed, ModelLoaded, ModelLoading, Origin
from hymt_local.jobs import LocalService
from hymt_local.translator import OpenModel
from tests.services import a_spec, request, scripted_model, scripted_service


def open_model(engine: Engine) -> OpenModel:
    return OpenModel(a_spec(), engine, fingerprint="f" * 64, quantization="none")


def announced(opener: BackendOpener, started: threading.Event) -> BackendOpener:
    """Return an opener that says when it begins."""

    def open_it(on_progress: Callable[[float], bool]) -> Backend:
        started.set()
        return opener(on_progress)

    return open_it


# The cache


def test_the_second_run_of_the_program_needs_no_engine(tmp_path: Path) -> None:
    path = tmp_path / "data" / "memory.sqlite3"
    first, _ = scripted_service(reply("Bonjour"), cache_path=path)
    with first:
        assert first.submit(request("Hello")).result(10).origin is Origin.MODEL
    second, backend = scripted_service(Crash(KeyError("called")), cache_path=path)
    with second:
        last = second.submit(request("Hello")).result(10)
    assert (last.text, last.origin) == ("Bonjour", Origin.CACHE)
    assert (backend.calls.n_loaded, backend.calls.tokenized) == (0, [])
    assert second.warnings == ()


def test_the_database_is_not_made_before_a_job_needs_it(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite3"
    service, _ = scripted_service(reply("Bonjour"), cache_path=path)
    with service:
        service.submit(request("12345")).result(10)
        assert not path.exists()


def unusable_folder(path: Path) -> None:
    path.parent.write_text("a file in the way")


def damaged_file(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database " * 300)


def newer_schema(path: Path) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 999")
    connection.close()


@pytest.mark.parametrize("spoil", [unusable_folder, damaged_file, newer_schema])
def test_a_broken_cache_loses_no_translation_and_is_reported_once(tmp_path: Path, spoil: object) -> None:
    path = tmp_path / "data" / "memory.sqlite3"
    assert callable(spoil)
    spoil(path)
    service, _ = scripted_service(reply("Bonjour"), cache_path=path)
    with service:
        for _ in range(3):
            assert service.submit(request("Hello\nBye")).result(10).text == "Bonjour\nBonjour"
    (warning,) = service.warnings
    assert str(path) in warning
    assert "\n" not in warning


def test_a_disk_that_fills_up_costs_only_the_cache(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite3"
    service, _ = scripted_service(reply("Bonjour"), cache_path=path)
    with service:
        service.submit(request("Hello")).result(10)
        path.with_name(path.name + "-wal").unlink()
        os.truncate(path, 0)
        path.write_bytes(b"overwritten " * 1000)
        assert service.submit(request("Bye")).result(10).text == "Bonjour"
        assert service.submit(request("Hello")).result(10).text == "Bonjour"


# Models


def test_each_model_is_opened_once_whatever_it_is_called() -> None:
    opened: list[str | None] = []

    def opener(ref: str | None) -> OpenModel:
        opened.append(ref)
        return scripted_model(ScriptedBackend(reply("Bonjour")))

    with LocalService(opener, cache_path=None) as service:
        jobs = [service.submit(request("Hello", model=ref)) for ref in (None, "scripted", None, "scripted")]
        assert {job.result(10).text for job in jobs} == {"Bonjour"}
        threads = [thread for thread in threading.enumerate() if thread.name == "hymt-engine-scripted"]
        assert len(threads) == 1
    assert sorted(opened, key=str) == [None, "scripted"]


def test_a_model_that_is_not_found_can_be_asked_for_again() -> None:
    found = False

    def opener(ref: str | None) -> OpenModel:
        if not found:
            raise ModelNotFoundError("no model is installed", hint="install one")
        return scripted_model(ScriptedBackend(reply("Bonjour")))

    with LocalService(opener, cache_path=None) as service:
        with pytest.raises(ModelNotFoundError, match="no model"):
            service.submit(request("Hello")).result(10)
        found = True
        assert service.submit(request("Hello")).result(10).text == "Bonjour"


def test_a_bug_in_the_opener_is_a_last_event_and_not_a_dead_service() -> None:
    answers = iter([KeyError("bug")])

    def opener(ref: str | None) -> OpenModel:
        for error in answers:
            raise error
        return scripted_model(ScriptedBackend(reply("Bonjour")))

    with LocalService(opener, cache_path=None) as service:
        (last,) = list(service.submit(request("Hello")))
        assert isinstance(last, Failed)
        assert last.error.code == "internal"
        assert "KeyError" in last.error.message
        assert service.submit(request("Hello")).result(10).text == "Bonjour"


def test_every_job_that_waits_for_the_load_sees_its_progress() -> None:
    gate, started = threading.Event(), threading.Event()
    opener = open_scripted(ScriptedBackend(reply("Bonjour")), progress=[0.25, 1.0], gate=gate)
    engine = ThreadedEngine(announced(opener, started), name="scripted")
    with LocalService(lambda ref: open_model(engine), cache_path=None) as service:
        first = service.submit(request("Hello"))
        assert started.wait(10)
        gate.set()
        events = list(first)
        fractions = [event.fraction for event in events if isinstance(event, ModelLoading)]
        assert fractions == sorted(fractions)
        assert fractions[-1] == 1.0
        assert {event.model for event in events if isinstance(event, ModelLoading)} == {"scripted:none"}
        assert not any(isinstance(event, ModelLoading) for event in service.submit(request("Bye")))


def test_every_job_that_generates_hears_how_the_model_lies_in_memory() -> None:
    with LocalService(lambda ref: scripted_model(ScriptedBackend(reply("Bonjour"))), cache_path=None) as service:
        for text in ("Hello", "Bye"):  # the second finds it loaded
            loaded = [event for event in service.submit(request(text)) if isinstance(event, ModelLoaded)]
            assert loaded == [ModelLoaded("scripted:none", 4096)]
        assert not any(isinstance(event, ModelLoaded) for event in service.submit(request("123")))


def test_a_failed_load_is_raised_and_tried_again() -> None:
    opener = open_scripted(ScriptedBackend(reply("Bonjour")), load_errors=[EngineLoadError("no memory")])
    engine = ThreadedEngine(opener, name="scripted")
    with LocalService(lambda ref: open_model(engine), cache_path=None) as service:
        with pytest.raises(EngineLoadError, match="no memory"):
            service.submit(request("Hello\nBye")).result(10)
        assert service.submit(request("Hello")).result(10).text == "Bonjour"


def test_a_job_can_be_cancelled_while_the_model_loads() -> None:
    gate, started = threading.Event(), threading.Event()
    opener = open_scripted(ScriptedBackend(reply("Bonjour")), gate=gate)
    engine = ThreadedEngine(announced(opener, started), name="scripted")
    with LocalService(lambda ref: open_model(engine), cache_path=None) as service:
        job = service.submit(request("Hello"))
        assert started.wait(10)
        job.cancel()
        with pytest.raises(CancelledError):
            job.result(0.5)
        gate.set()
        assert service.submit(request("Hello")).result(10).text == "Bonjour"


def test_closing_during_a_load_joins() -> None:
    started = threading.Event()
    opener = open_scripted(ScriptedBackend(), gate=threading.Event())
    engine = ThreadedEngine(announced(opener, started), name="scripted")
    service = LocalService(lambda ref: open_model(engine), cache_path=None)
    job = service.submit(request("Hello"))
    assert started.wait(10)
    service.close()
    assert job.done


# Threads


def test_a_service_that_is_never_used_starts_no_thread() -> None:
    before = threading.active_count()
    service, _ = scripted_service()
    assert threading.active_count() == before
    service.close()


def test_closing_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    service, _ = scripted_service(Hang())
    service.submit(request("Hello"))
    service.close()
    assert set(threading.enumerate()) <= before


# Errors as data


@pytest.mark.parametrize("kind", [NotCoveredError, ModelNotFoundError, EngineLoadError, CancelledError])
def test_a_report_becomes_the_error_it_was(kind: type[HymtError]) -> None:
    error = error_of(kind("what", hint="next").report())
    assert type(error) is kind
    assert (error.message, error.hint) == ("what", "next")


def test_a_report_of_an_unknown_kind_is_still_an_error_of_ours() -> None:
    assert type(error_of(ErrorReport("from the future", "what", "", 4, 500))) is HymtError
