"""One engine process, seen from the program that started it: calls with a watchdog, and what its end means."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hymt_local.engine.pipe import (
    Answered,
    AskGpus,
    Called,
    Close,
    Command,
    Interrupt,
    Load,
    Logged,
    Progressed,
    Refused,
    Report,
    Sender,
    read_report,
    result_of,
)
from hymt_local.errors import EngineError, EngineMemoryError, EngineStoppedError, EngineUnavailableError, error_of

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from hymt_local.engine.child import main; main(int(sys.argv[2]))"
)
_SLICE_S = 0.5
"""Of waiting. A program that was stopped (Ctrl-Z, a shut lid) finds one slice gone when it goes on, not all."""
_END_S = 5.0
_SHOWN_LINES = 20
_KERNEL_COUNTERS = Path("/proc/vmstat")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for an engine process, in seconds."""

    load_s: float = 300.0
    """For any sign of life while it starts and loads: a cold disk is slow."""
    answer_s: float = 120.0
    """The same while it decodes: a step of 256 tokens takes a slow laptop half a minute."""
    restart_s: float = 0.5
    """After the second crash in a row; doubled with each further one."""
    longest_restart_s: float = 30.0


class ProcessGoneError(Exception):
    """The process has ended.

    Args:
        error: Says why, for users.
        was_killed: Somebody outside ended it: nothing that it did was the reason.
    """

    def __init__(self, error: EngineError, *, was_killed: bool = False) -> None:
        super().__init__(error.message)
        self.error = error
        self.was_killed = was_killed


class EngineProcess:
    """Starts a process and talks to it. `call` may be used from several threads at once.

    Linux ends the process when the thread that started it ends: start it from one that stays.

    Args:
        name: Of the model, for errors.
        patience: How long to wait.

    Raises:
        EngineUnavailableError: no process can be started here.
    """

    def __init__(self, name: str, *, patience: Patience) -> None:
        self._name = name
        self._patience = patience
        self._n_oom_kills = count_oom_kills()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - read when the process has ended
        try:
            self._process = _spawn(self._stderr)
        except EngineError:
            self._stderr.close()
            raise
        self._lines: tuple[str, ...] = ()
        assert self._process.stdin is not None
        self._sender = Sender(self._process.stdin)
        self._numbers = itertools.count(1)
        self._changed = threading.Lock()
        self._calls: dict[int, queue.SimpleQueue[Report | None]] = {}
        self._is_gone = False
        self._hung_s = 0.0
        self._reader = threading.Thread(target=self._read, name=f"hymt-engine-pipe-{name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def call(self, command: Command, *, on_progress: Callable[[float], bool] | None = None) -> Any:
        """Send a command and return its result.

        Args:
            command: What to do.
            on_progress: Called between two signs of life, with the progress of loading; the process is killed when it
                returns False.

        Raises:
            ProcessGoneError: the process has ended or was ended because it hung or was given up.
            HymtError: the command was refused.
        """
        number, reports = self._begin()
        try:
            self._send(Called(number, command))
            return self._await(command, reports, on_progress)
        finally:
            with self._changed:
                self._calls.pop(number, None)

    def interrupt(self) -> None:
        """Cut the step under way short."""
        with contextlib.suppress(ProcessGoneError):
            self._send(Called(0, Interrupt()))

    def close(self) -> None:
        """Let the process free its model and end; closing twice is fine."""
        if not self._is_gone:
            with contextlib.suppress(ProcessGoneError, EngineError):
                self.call(Close())
        self._end()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._end()

    # Talking

    def _begin(self) -> tuple[int, queue.SimpleQueue[Report | None]]:
        number, reports = next(self._numbers), queue.SimpleQueue[Report | None]()
        with self._changed:
            if self._is_gone:
                reports.put(None)
            self._calls[number] = reports
        return number, reports

    def _send(self, called: Called) -> None:
        try:
            self._sender.send(called)
        except (OSError, ValueError) as error:  # ValueError: the pipe was closed here
            raise self._gone() from error

    def _await(
        self,
        command: Command,
        reports: queue.SimpleQueue[Report | None],
        on_progress: Callable[[float], bool] | None,
    ) -> Any:
        is_loading = isinstance(command, Load | AskGpus)
        patience_s = self._patience.load_s if is_loading else self._patience.answer_s
        waited_s, fraction = 0.0, 0.0
        while True:
            try:
                report = reports.get(timeout=min(_SLICE_S, patience_s))
            except queue.Empty:
                waited_s += min(_SLICE_S, patience_s)
                if waited_s >= patience_s:
                    self._hung_s = patience_s
                    self.kill()
            else:
                waited_s = 0.0
                if report is None:
                    raise self._gone()
                if isinstance(report, Answered):
                    return result_of(command, report)
                if isinstance(report, Refused):
                    raise error_of(report.error)
                fraction = report.fraction if isinstance(report, Progressed) else fraction
            if on_progress is not None and not on_progress(fraction):
                self.kill()

    def _read(self) -> None:
        """Hand out what comes, until the end."""
        assert self._process.stdout is not None
        while (report := read_report(self._process.stdout)) is not None:
            if isinstance(report, Logged):
                logging.getLogger(report.logger).log(report.level, "%s", report.text)
                continue
            with self._changed:
                reports = self._calls.get(report.number)
            if reports is not None:
                reports.put(report)
        with self._changed:
            self._is_gone = True
            calls = list(self._calls.values())
        for reports in calls:
            reports.put(None)

    # Its end

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self._sender.close()
        try:
            self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._reader is not threading.current_thread():
            self._reader.join(timeout=_END_S)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()
        self._last_lines()

    def _gone(self) -> ProcessGoneError:
        error = self._why_it_ended()
        is_kill = any(_is_signal(self._process.returncode, name) for name in ("SIGKILL", "SIGTERM", "SIGHUP"))
        return ProcessGoneError(error, was_killed=is_kill and not self._hung_s and type(error) is EngineStoppedError)

    def _why_it_ended(self) -> EngineError:
        self._end()
        lines = self._last_lines()
        if self._hung_s:
            return EngineStoppedError(
                f"the engine of {self._name} did not answer for {self._hung_s:.0f} s and was ended",
                hint="close programs that use much memory or processor time",
            )
        is_oom = count_oom_kills() > self._n_oom_kills or not _KERNEL_COUNTERS.exists()
        return end_error(self._name, self._process.returncode, last_lines=lines, is_oom=is_oom)

    def _last_lines(self) -> tuple[str, ...]:
        with self._changed:
            if not self._stderr.closed:
                self._stderr.seek(0)
                lines = self._stderr.read().decode("utf-8", errors="replace").splitlines()
                self._lines = tuple(line for line in lines if line.strip())[-_SHOWN_LINES:]
                self._stderr.close()
                for line in self._lines:
                    _logger.warning("engine process of %s: %s", self._name, line)
            return self._lines


def end_error(name: str, status: int, *, last_lines: tuple[str, ...], is_oom: bool) -> EngineError:
    """Return what the end of an engine process means.

    Args:
        name: Of the model.
        status: Negative signal, or exit status, as `Popen.returncode`.
        last_lines: Of what it printed.
        is_oom: Whether the system ended some process for its memory meanwhile, or would not tell.
    """
    complaint = next((line.strip() for line in last_lines if "GGML_ASSERT" in line or "GGML_ABORT" in line), "")
    if not complaint:
        complaint = next((line.strip() for line in reversed(last_lines) if "error" in line.casefold()), "")
    if _is_signal(status, "SIGKILL") and is_oom:
        return EngineMemoryError(
            f"the system ended the engine of {name}: memory ran out",
            hint="close other programs, or take a smaller model: `hymt models fit`",
        )
    if any(words in line.casefold() for line in last_lines for words in ("out of memory", "failed to allocate")):
        return EngineMemoryError(f"the engine of {name} got no more memory", hint="close other programs")
    what, hint = _meaning(status)
    return EngineStoppedError(f"the engine of {name} {what}" + (f": {complaint}" if complaint else ""), hint=hint)


def count_oom_kills() -> int:
    """Return how many processes Linux has ended for want of memory since it was started; 0 elsewhere."""
    with contextlib.suppress(OSError, ValueError):
        for line in _KERNEL_COUNTERS.read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


_VERIFY = "check the file: `hymt models verify`"
_MEANINGS = {
    "SIGSEGV": ("crashed (segmentation fault)", _VERIFY),
    "SIGBUS": ("lost its model file while reading it", "the file was changed or its disk is gone; " + _VERIFY),
    "SIGABRT": ("gave up", _VERIFY),
    "SIGILL": ("met an instruction that this processor does not have", "run `hymt doctor`"),
    "SIGKILL": ("was killed", "it is started again when it is needed"),
}


def _meaning(status: int) -> tuple[str, str]:
    for name, meaning in _MEANINGS.items():
        if _is_signal(status, name):
            return meaning
    if status < 0:
        return f"was ended by signal {-status}", "it is started again when it is needed"
    return f"ended by itself (status {status})", "run `hymt doctor`"


def _is_signal(status: int, name: str) -> bool:
    return status < 0 and status == -getattr(signal, name, 0)


def _spawn(stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start an interpreter of its own, never a fork: llama.cpp's threads would not be there."""
    arguments = [sys.executable, "-P", "-c", _PROGRAM, json.dumps(sys.path), str(os.getpid())]
    try:
        return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)
    except OSError as error:
        raise EngineUnavailableError(
            f"cannot start a process for the engine: {error.strerror or error}",
            hint="`hymt config set engine_process inline` does without",
        ) from error
