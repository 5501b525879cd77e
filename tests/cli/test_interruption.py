"""Ctrl-C and SIGTERM: at every moment the command ends soon, says so in one line, and leaves no engine behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from hymt_local.cli import interruption

REPOSITORY = Path(__file__).parents[2]
START = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(process_environ: Mapping[str, str]) -> Iterator[START]:
    """Start `python -m MODULE ARGUMENTS` and leave it running; killed at the end if it still runs."""
    running: list[subprocess.Popen[bytes]] = []

    def start_process(*arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(process_environ),
            cwd=REPOSITORY,
        )
        running.append(process)
        return process

    # A shell's background job ignores SIGINT, and so do its children unless it handles the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield start_process
    signal.signal(signal.SIGINT, before)
    for process in running:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes, list[str]]:
    """Wait for the end; returns the status, stdout and the lines of stderr."""
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err.decode().splitlines()


def wait_for_line(process: subprocess.Popen[bytes], start: str) -> None:
    assert process.stderr is not None
    assert process.stderr.readline().decode().startswith(start)


def test_interrupted_while_it_generates_it_stops_the_engine_and_says_so(start: START) -> None:
    process = start("tests.cli.odd_engines", "hang", "hello")
    wait_for_line(process, "generating")
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, b"", ["error: interrupted", "closed 1"])


def test_interrupted_with_json_the_error_is_json(start: START) -> None:
    process = start("tests.cli.odd_engines", "hang", "hello", "--json")
    wait_for_line(process, "generating")
    process.send_signal(signal.SIGINT)
    status, out, err = ended(process)
    assert (status, err) == (130, ["closed 1"])
    assert b'"code": "cancelled"' in out


def test_a_second_interrupt_leaves_an_engine_that_hangs_at_once(start: START) -> None:
    process = start("tests.cli.odd_engines", "deaf", "hello")
    wait_for_line(process, "generating")
    process.send_signal(signal.SIGINT)
    wait_for_line(process, "note: waiting for the engine to stop; Ctrl-C again")
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, b"", ["error: interrupted, without waiting for the engine"])


def test_interrupted_while_it_reads_a_pipe_that_never_ends(start: START) -> None:
    process = start("hymt_local", "-m", "echo", "-f", "en", "-t", "fr")
    assert process.stdin is not None
    for _ in range(40):  # more than a pipe holds: once it is all written, the command is reading
        process.stdin.write(b"a line of text\n" * 300)
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"error: interrupted\n")


def test_terminated_while_it_generates_it_dies_of_it_silently(start: START) -> None:
    process = start("tests.cli.odd_engines", "hang", "hello")
    wait_for_line(process, "generating")
    process.terminate()
    assert ended(process) == (-signal.SIGTERM, b"", [])


class HangingService:
    """Closes when told to."""

    def __init__(self) -> None:
        self.may_close = threading.Event()

    def close(self) -> None:
        self.may_close.wait()


def test_an_engine_that_hangs_is_waited_for_only_so_long(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def leave(status: int) -> None:
        service.may_close.set()
        left.append(status)

    service, left = HangingService(), list[int]()
    monkeypatch.setattr(interruption, "PATIENCE_S", 0.01)
    monkeypatch.setattr(interruption, "GRACE_S", 0.01)
    monkeypatch.setattr(interruption, "os", SimpleNamespace(_exit=leave, write=os.write))
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interruption.closing(service):  # type: ignore[arg-type]
        raise KeyboardInterrupt
    assert left == [130]
    assert signal.getsignal(signal.SIGINT) == before
    assert capfd.readouterr().err.splitlines() == [
        "note: waiting for the engine to stop; Ctrl-C again leaves at once",
        "error: interrupted, without waiting for the engine",
    ]


def test_whatever_else_ends_the_work_closes_the_service() -> None:
    service = HangingService()
    service.may_close.set()
    closed: list[bool] = []
    service.close = lambda: closed.append(True)  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError), interruption.closing(service):  # type: ignore[arg-type]
        raise ZeroDivisionError
    with interruption.closing(service):  # type: ignore[arg-type]
        pass
    assert closed == [True, True]
