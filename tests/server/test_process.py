"""The server as a process: one per user, found by its file, and gone in time when it is told to."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hymt_local import __version__
from hymt_local.application import Application, open_application
from hymt_local.background_server import running_server, start_server, stop_server
from hymt_local.errors import ServerError, StoreError, UsageError
from hymt_local.paths import Paths
from hymt_local.process_lock import ProcessLock, is_locked
from hymt_local.server.process import AlreadyRunningError, ServeOptions, check_reach, run_server
from hymt_local.server.running import RunningServer, Tls, bind, bind_first
from hymt_local.server.units import unit_files
from hymt_local.server_call import ask
from hymt_local.server_file import PROTOCOL, ServerFile, find_server, usable_server, write_server_file
from tests.server.test_native import wait_until

REPOSITORY = Path(__file__).parents[2]
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBnDCCAUGgAwIBAgIUUPJ2g51vh5s8yUvH1EaEiP9pMUIwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEzMDIxMzY1MFoYDzIxMjYxMTA2
MjEzNjUwWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAATpZMaT40krhQaI1muPmcJHcriKJ/x40AceST0fN1mZaxfec8jjCfrO
Cx3KK/+M2W2kd+8cJ8mg0EUZG8i4ayquo28wbTAdBgNVHQ4EFgQURMMP0JO24gu7
XTTzTAmkJm8rPxIwHwYDVR0jBBgwFoAURMMP0JO24gu7XTTzTAmkJm8rPxIwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARhwR/AAABgglsb2NhbGhvc3QwCgYIKoZI
zj0EAwIDSQAwRgIhAMU0JdrRcjKHEcgKqiH6Q0fRTl5olx/jAxwse65q4yDtAiEA
w9eAXry83bCQlOGTqCAKXDO8n+4LPo0KB0PFfkl2Bzc=
-----END CERTIFICATE-----
"""
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQga6ohtXCPp42NstO+
Z7hLEADqUJKC89e1OMN5CXn84GuhRANCAATpZMaT40krhQaI1muPmcJHcriKJ/x4
0AceST0fN1mZaxfec8jjCfrOCx3KK/+M2W2kd+8cJ8mg0EUZG8i4ayqu
-----END PRIVATE KEY-----
"""
"""Of this test alone."""
PLAIN = ServeOptions(port=0, loads_model=False)


@contextmanager
def running(app: Application, options: ServeOptions = PLAIN) -> Iterator[tuple[RunningServer, ServerFile]]:
    """Run the server in a thread."""
    ready: list[tuple[RunningServer, ServerFile]] = []
    started = threading.Event()

    def on_ready(server: RunningServer, file: ServerFile) -> None:
        ready.append((server, file))
        started.set()

    thread = threading.Thread(
        target=lambda: run_server(app, options, environ={}, on_ready=on_ready), name="test-process"
    )
    thread.start()
    try:
        assert started.wait(10)
        yield ready[0]
    finally:
        for server, _ in ready:
            server.stop()
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture
def app() -> Application:
    return open_application(os.environ, flags={"model": "echo"})


def test_the_running_server_is_found_by_a_private_file_and_gone_with_it(app: Application) -> None:
    assert find_server(app.paths) is None
    with running(app) as (_, file):
        assert find_server(app.paths) == file
        assert app.paths.server_file.stat().st_mode & 0o777 == 0o600
        assert ask(file, "GET", "/v1/status")["pid"] == os.getpid()
    assert find_server(app.paths) is None
    assert not app.paths.server_file.exists()


def test_a_second_one_says_where_the_first_is(app: Application) -> None:
    with running(app) as (_, file):
        with pytest.raises(AlreadyRunningError, match=f"runs already at {file.url}"):
            run_server(app, PLAIN, environ={}, on_ready=lambda *_: None)
        assert find_server(app.paths) == file


def test_a_file_that_a_killed_server_left_is_not_believed_and_replaced(app: Application) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    stale = ServerFile(pid=dead.pid, protocol=1, version="0", started_at=0, host="127.0.0.1", port=1, token="old")
    write_server_file(app.paths, stale)
    assert find_server(app.paths) is None
    lock = ProcessLock(app.paths.server_lock)
    assert lock.acquire()
    assert find_server(app.paths) is None  # a successor has begun and not written its own
    lock.release()
    with running(app) as (_, file):
        assert find_server(app.paths) == file != stale


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": "x"}', b"\xff"])
def test_a_damaged_file_is_as_good_as_none(app: Application, content: bytes) -> None:
    with running(app):
        app.paths.server_file.write_bytes(content)
        assert find_server(app.paths) is None


FILE = {"pid": 1, "protocol": 1, "version": "0", "started_at": 0, "host": "127.0.0.1", "port": 1, "token": "t"}


@pytest.mark.parametrize(
    "change",
    [
        {"port": 99999}, {"port": 0}, {"port": -1}, {"pid": 0}, {"pid": -1}, {"pid": 2**70}, {"token": "a\r\nX: y"},
        {"token": "✓"}, {"token": ""}, {"host": "a b"}, {"host": "h\r\nX: y"}, {"host": "." * 300}, {"host": "é"},
    ],
)  # fmt: skip
def test_a_file_with_values_that_no_server_writes_is_as_good_as_none(app: Application, change: object) -> None:
    lock = ProcessLock(app.paths.server_lock)
    assert lock.acquire()
    file = app.paths.server_file
    file.write_text(json.dumps({**FILE, "pid": os.getpid()}))
    file.chmod(0o600)
    assert find_server(app.paths) is not None
    file.write_text(json.dumps({**FILE, "pid": os.getpid(), **change}))  # type: ignore[dict-item]
    assert find_server(app.paths) is None
    file.write_text('{"x":' + "[" * 100_000)
    assert find_server(app.paths) is None
    lock.release()


@pytest.mark.parametrize("kind", ["writable", "link", "pipe", "folder"])
def test_a_file_that_another_user_may_have_made_is_not_believed(app: Application, kind: str) -> None:
    with running(app):
        file = app.paths.server_file
        if kind == "writable":
            file.chmod(0o622)
        else:
            real = file.rename(file.with_name("real.json"))
            {"link": lambda: file.symlink_to(real), "pipe": lambda: os.mkfifo(file), "folder": file.mkdir}[kind]()
        assert find_server(app.paths) is None


def test_a_server_of_another_protocol_is_left_alone(app: Application) -> None:
    lock = ProcessLock(app.paths.server_lock)
    assert lock.acquire()
    write_server_file(
        app.paths, ServerFile(pid=1, protocol=99, version="9", started_at=0, host="127.0.0.1", port=1, token="x")
    )
    assert find_server(app.paths) is None
    lock.release()


def test_a_server_of_another_version_is_shown_but_not_used_and_makes_way(app: Application) -> None:
    with running(app) as (server, file):
        write_server_file(app.paths, msgspec.structs.replace(file, version="0.0.1"))
        assert find_server(app.paths) is not None
        assert usable_server(app.paths) is None
        found = find_server(app.paths)
        assert found is not None
        stop_server(app.paths, found)
        assert server.loop.is_closed()


def test_a_port_that_a_stranger_has_is_passed_over() -> None:
    with bind(0) as stranger:
        port = stranger.getsockname()[1]
        with bind_first(port) as ours:
            assert port < ours.getsockname()[1] < port + 20


def test_a_port_asked_for_by_name_is_not_exchanged(app: Application) -> None:
    with bind(0) as stranger:
        options = ServeOptions(port=stranger.getsockname()[1])
        with pytest.raises(ServerError, match="cannot listen on") as refused:
            run_server(app, options, environ={}, on_ready=lambda *_: None)
    assert "--port" in refused.value.hint
    assert not is_locked(app.paths.server_lock)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.2", "example.org", ""])
def test_beyond_this_machine_it_listens_only_with_tls_or_when_told_so(address: str) -> None:
    with pytest.raises(UsageError, match="plain text"):
        check_reach(ServeOptions(listen=address))
    check_reach(ServeOptions(listen=address, tls=Tls(Path("c"), Path("k"))))
    check_reach(ServeOptions(listen=address, allows_plain_text=True))
    check_reach(ServeOptions(listen="127.0.0.1"))


def test_names_and_origins_of_the_settings_are_let_in() -> None:
    flags = {"model": "echo", "server_hosts": "Box.lan, other.lan", "server_origins": "https://wiki.lan/"}
    with running(open_application(os.environ, flags=flags)) as (server, _):
        access = server.context.access
    assert {"box.lan", "other.lan", "localhost"} <= access.hosts
    assert access.origins == {"https://wiki.lan"}


def test_an_idle_server_ends_although_somebody_looks_at_it(app: Application) -> None:
    with running(app, ServeOptions(port=0, loads_model=False, exit_idle_s=0.2)) as (server, file):
        started = time.perf_counter()
        while not server.loop.is_closed():
            try:
                ask(file, "GET", "/health")
            except ServerError:
                break
            assert time.perf_counter() - started < 8


def test_a_lock_is_held_by_one_and_free_after_it(paths: Paths) -> None:
    first, second = ProcessLock(paths.server_lock), ProcessLock(paths.server_lock)
    assert not is_locked(paths.server_lock)
    assert first.acquire()
    assert is_locked(paths.server_lock)
    assert not second.acquire()
    first.release()
    first.release()
    assert second.acquire()
    second.release()


def test_units_start_this_installation(paths: Paths, tmp_path: Path) -> None:
    environ = {"HYMT_HOME": '/srv/a "b" 100%', "PATH": "/bin"}
    listener, service = unit_files("systemd", home=tmp_path, port=4968, environ=environ)
    assert "ListenStream=127.0.0.1:4968" in listener.text
    assert f'ExecStart="{sys.executable}" -m hymt_local serve' in service.text
    assert r'Environment="HYMT_HOME=/srv/a \"b\" 100%%"' in service.text
    assert "PATH" not in service.text
    (agent,) = unit_files("launchd", home=tmp_path, port=4968, environ={"HYMT_HOME": "/a&b"})
    import plistlib

    read = plistlib.loads(agent.text.encode())
    assert read["EnvironmentVariables"] == {"HYMT_HOME": "/a&b"}
    assert read["ProgramArguments"] == [sys.executable, "-m", "hymt_local", "serve"]


def test_a_state_folder_that_cannot_be_written_is_an_error_and_no_lock_stays(app: Application) -> None:
    (app.paths.server_file / "in-the-way").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"server\.json"):
        run_server(app, PLAIN, environ={}, on_ready=lambda *_: None)
    assert not is_locked(app.paths.server_lock)


def test_with_tls_clients_of_this_machine_trust_the_servers_own_certificate(app: Application, tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_text(CERTIFICATE, encoding="utf-8")
    key.write_text(KEY, encoding="utf-8")
    options = ServeOptions(port=0, loads_model=False, tls=Tls(certificate, key))
    with running(app, options) as (_, file):
        assert file.url.startswith("https://")
        assert ask(file, "GET", "/v1/status")["pid"] == os.getpid()
        with pytest.raises(ServerError):
            ask(msgspec.structs.replace(file, certificate=None), "GET", "/v1/status")


# In processes of their own: signals and races


@pytest.fixture
def start(isolated_environment: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a process of this program; what is left of them at the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start_process(*arguments: str, environ: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=REPOSITORY,
            env={**os.environ, **(environ or {})},
        )
        started.append(process)
        return process

    yield start_process
    for process in started:
        process.kill()
        process.communicate()


SERVE = ("-m", "hymt_local", "serve", "-m", "echo", "--json", "--port", "0")


def test_of_two_starters_one_wins_and_the_other_says_so_and_sigterm_ends_it_in_time(
    start: Callable[..., subprocess.Popen[bytes]], paths: Paths
) -> None:
    starters = [start(*SERVE) for _ in range(2)]
    wait_until(lambda: any(starter.poll() is not None for starter in starters), most_s=30)
    (loser,) = [starter for starter in starters if starter.poll() is not None]
    (winner,) = [starter for starter in starters if starter is not loser]
    said = json.loads(loser.communicate(timeout=10)[0])
    assert (loser.returncode, said["error"]["code"]) == (7, "already_running")
    server = find_server(paths)
    assert server is not None
    assert server.pid == winner.pid
    assert winner.stdout is not None
    assert json.loads(winner.stdout.readline())["url"] == server.url
    with socket.create_connection((server.host, server.port)) as idle:  # an open connection does not hold it up
        began = time.perf_counter()
        winner.send_signal(signal.SIGTERM)
        assert winner.wait(10) == 0
        assert time.perf_counter() - began < 3
        assert idle.recv(1) == b""
    assert not paths.server_file.exists()


def test_a_killed_server_leaves_nothing_that_hinders_the_next(
    start: Callable[..., subprocess.Popen[bytes]], paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYMT_MODEL", "echo")
    first = start_server(paths, os.environ)
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: not is_locked(paths.server_lock))
    assert find_server(paths) is None
    second = start_server(paths, os.environ)
    try:
        assert second.pid != first.pid
    finally:
        ask(second, "POST", "/v1/stop")
    wait_until(lambda: not is_locked(paths.server_lock))


def test_many_who_start_it_at_once_start_one_process_and_all_who_stop_it_find_it_stopped(
    isolated_environment: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYMT_MODEL", "echo")
    begun = []
    start_process = subprocess.Popen

    def count(*arguments: Any, **options: Any) -> Any:
        begun.append(arguments)
        return start_process(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", count)
    with ThreadPoolExecutor(8) as pool:
        servers = set(pool.map(lambda _: start_server(paths, os.environ), range(8)))
        assert len(servers) == len(begun) == 1
        list(pool.map(lambda _: stop_server(paths, *servers), range(8)))
    assert running_server(paths) is None


def test_a_server_that_just_starts_or_stops_is_waited_for(app: Application) -> None:
    lock = ProcessLock(app.paths.server_lock)
    assert lock.acquire()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(running_server, app.paths)
        server = ServerFile(
            pid=os.getpid(), protocol=PROTOCOL, version=__version__, started_at=0.0, host="127.0.0.1", port=1, token="t"
        )
        write_server_file(app.paths, server)
        assert found.result(10) == server
        app.paths.server_file.unlink()
        found = pool.submit(running_server, app.paths)
        lock.release()
        assert found.result(10) is None


def test_a_lock_whose_holder_says_nothing_is_an_error(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hymt_local.background_server.START_S", 0.1)
    lock = ProcessLock(app.paths.server_lock)
    assert lock.acquire()
    try:
        with pytest.raises(ServerError, match="cannot be spoken to"):
            running_server(app.paths)
    finally:
        lock.release()
