"""What `hymt doctor` says of the resident server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from hymt_local import __version__
from hymt_local.application import open_application
from hymt_local.cli import doctor_server
from hymt_local.cli.doctor_server import check_server
from hymt_local.engine.scripted import reply
from hymt_local.errors import ServerError
from hymt_local.paths import Paths
from hymt_local.process_lock import ProcessLock
from hymt_local.server_file import ServerFile, write_server_file
from tests.server.serving import Served, server_file, serving
from tests.server.test_native import HELLO
from tests.services import scripted_service


@contextmanager
def known(paths: Paths, server: ServerFile) -> Iterator[None]:
    """Let this test's home know a server."""
    lock = ProcessLock(paths.server_lock)
    assert lock.acquire()
    write_server_file(paths, server)
    try:
        yield
    finally:
        paths.server_file.unlink(missing_ok=True)
        lock.release()


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(scripted_service(reply("Bonjour"))[0]) as running:
        yield running


def checked(paths: Paths, **settings: Any) -> Any:
    return check_server(open_application({"HYMT_HOME": str(paths.config_dir.parent)}, flags=settings))


def test_none_is_fine(paths: Paths) -> None:
    check = checked(paths)
    assert (check.status, check.found.startswith("none runs")) == ("ok", True)


def test_one_that_runs_is_named_with_address_version_and_models(paths: Paths, served: Served) -> None:
    with known(paths, server_file(served)):
        check = checked(paths)
        assert (check.status, check.fix) == ("ok", "")
        for told in (
            f"http://127.0.0.1:{served.port}",
            f"version {__version__}",
            "healthy, ready",
            "no model in memory",
        ):
            assert told in check.found
        served.ask("POST", "/v1/translate", HELLO)
        assert "in memory: scripted:none" in checked(paths).found
        assert "resident = off" in checked(paths, resident="off").found


def test_one_of_another_version_is_a_warning(paths: Paths, served: Served) -> None:
    with known(paths, msgspec.structs.replace(server_file(served), version="0.0.1")):
        check = checked(paths)
    assert (check.status, "version 0.0.1" in check.found, "hymt stop" in check.fix) == ("warn", True, True)


def test_one_whose_model_is_not_there_is_a_warning(paths: Paths) -> None:
    with serving(scripted_service()[0], model="Hy-MT2-1.8B:Q4_K_M") as served, known(paths, server_file(served)):
        check = checked(paths)
    assert (check.status, "not ready: model Hy-MT2-1.8B:Q4_K_M is not installed" in check.found) == ("warn", True)


def test_a_lock_without_a_file_is_a_warning(paths: Paths) -> None:
    lock = ProcessLock(paths.server_lock)
    assert lock.acquire()
    try:
        assert checked(paths).status == "warn"
    finally:
        lock.release()


def test_one_that_says_nothing_is_a_failure_soon(paths: Paths, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_server, "SILENCE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        there = msgspec.structs.replace(server_file(served), port=deaf.getsockname()[1])
        with known(paths, there), pytest.raises(ServerError):
            checked(paths)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\n\r\n{}", b"HTTP/1.1 200 OK\r\n\r\nhello", b"SSH-2.0\r\n"])
def test_a_stranger_at_its_address_is_a_failure(paths: Paths, served: Served, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        speaker = threading.Thread(target=speak)
        speaker.start()
        there = msgspec.structs.replace(server_file(served), port=listener.getsockname()[1])
        with known(paths, there), pytest.raises(ServerError):
            checked(paths)
        speaker.join()
