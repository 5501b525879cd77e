"""The engine's own process: it loads one model and does what the program at the other end of its pipes tells it.

Whatever llama.cpp does to this process, the program survives; and when the program is gone, this process ends.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import logging
import os
import queue
import signal
import sys
import threading
from contextlib import suppress
from typing import BinaryIO, NoReturn

from hymt_local.engine.base import Backend, BackendOpener
from hymt_local.engine.pipe import (
    AskCounters,
    AskGpus,
    Called,
    CanOpen,
    Close,
    Command,
    Drop,
    Happened,
    Interrupt,
    Load,
    Logged,
    Open,
    Order,
    Progressed,
    Refused,
    Sender,
    Step,
    Tokenize,
    answer,
    happened,
    read_command,
)
from hymt_local.errors import DecodeError, EngineError, EngineLoadError, EngineMemoryError, HymtError
from hymt_local.offline import NetworkGuard

STACK_BYTES = 64 << 20
"""llama.cpp's tokenizer recurses once per character of a run (std::regex): the default stack overflows."""
_PR_SET_PDEATHSIG = 1

_logger = logging.getLogger(__name__)


def main(parent_pid: int) -> None:
    """Serve the pipes on standard input and output until their end.

    Args:
        parent_pid: The program that started this process.
    """
    commands, sender = _take_pipes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to both; the program decides
    faulthandler.enable()
    _forbid_core_dumps()
    _die_with(parent_pid)
    sys.addaudithook(NetworkGuard())  # translating needs no connection, whatever the settings say
    _EngineProcess(commands, sender).run()


class _EngineProcess:
    """Reads commands on the main thread, obeys them on the engine thread.

    `Interrupt`, and `Tokenize` where the backend can, are obeyed at once, beside a step.
    """

    def __init__(self, commands: BinaryIO, sender: Sender) -> None:
        self._commands = commands
        self._sender = sender
        self._waiting: queue.SimpleQueue[Called] = queue.SimpleQueue()
        self._backend: Backend | None = None

    def run(self) -> None:
        """Serve until the pipe ends; then end the process, whatever its threads do."""
        threading.stack_size(STACK_BYTES)
        threading.Thread(target=self._obey, name="hymt-engine", daemon=True).start()
        while (called := read_command(self._commands)) is not None:
            backend = self._backend
            if isinstance(called.command, Interrupt):
                if backend is not None:
                    backend.interrupt()
            elif isinstance(called.command, Tokenize) and backend is not None and backend.tokenizes_anywhere:
                self._answer(called)
            else:
                self._waiting.put(called)
        os._exit(0)

    def _obey(self) -> None:
        try:
            while True:
                called = self._waiting.get()
                self._answer(called)
                if isinstance(called.command, Close):
                    break
        except OSError:  # nobody reads any more
            os._exit(0)
        except BaseException:
            _logger.exception("the engine's process failed")
            os._exit(1)

    def _answer(self, called: Called) -> None:
        try:
            report = answer(called.number, self._result(called))
        except HymtError as error:
            if isinstance(error, EngineMemoryError) and isinstance(called.command, Step):
                _end_for_memory(error)
            self._sender.send(Refused(called.number, error.report()))
        except Exception as error:
            _logger.exception("the engine failed")
            kind = EngineLoadError if isinstance(called.command, Load) else EngineError
            typed = kind(f"the engine failed: {type(error).__name__}: {error}", hint="run `hymt doctor`")
            self._sender.send(Refused(called.number, typed.report()))
        else:
            self._sender.send(report)

    def _result(self, called: Called) -> object:
        command = called.command
        if isinstance(command, Load):
            return self._load(command, called.number)
        if isinstance(command, AskGpus):
            from hymt_local.engine.machine import query_gpus

            return query_gpus()
        if isinstance(command, Close):
            if self._backend is not None:
                self._backend.close()
            return None
        return _result(command, self._loaded())

    def _load(self, load: Load, number: int) -> object:
        _forward_logs(self._sender, load.log_level)

        def report(fraction: float) -> bool:
            self._sender.send(Progressed(number, fraction))
            return True

        self._backend = None
        self._backend = _opener(load.order)(report)
        return self._backend.info

    def _loaded(self) -> Backend:
        if self._backend is None:
            raise EngineError("no model is loaded")
        return self._backend


def _result(command: Command, backend: Backend) -> object:
    match command:
        case Tokenize(text):
            return backend.tokenize(text)
        case CanOpen(request):
            return backend.can_open(request)
        case Open(request):
            return backend.open(request)
        case Step():
            return [_happened(ticket, event) for ticket, event in backend.step()]
        case Drop(ticket):
            return backend.drop(ticket)
        case AskCounters():
            return backend.counters
    raise EngineError(f"no such command: {command}")


def _happened(ticket: int, event: object) -> Happened:
    if isinstance(event, Exception) and not isinstance(event, HymtError):
        event = DecodeError(f"the engine failed: {type(event).__name__}: {event}", hint="run `hymt doctor`")
    return happened((ticket, event))  # type: ignore[arg-type]


def _opener(order: Order) -> BackendOpener:
    module, _, name = order.factory.partition(":")
    opener: BackendOpener = getattr(importlib.import_module(module), name)(order.arguments)
    return opener


def _end_for_memory(error: EngineMemoryError) -> NoReturn:
    """End as with a failed allocation in C: the program starts a process that needs less, and nothing is lost."""
    os.write(2, f"failed to allocate: {error.message}\n".encode(errors="replace"))
    os._exit(1)


def _take_pipes() -> tuple[BinaryIO, Sender]:
    """Keep the pipes to ourselves: what C prints goes to standard error, and nobody else reads commands."""
    commands = os.fdopen(os.dup(0), "rb")
    reports = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return commands, Sender(reports)


def _forbid_core_dumps() -> None:
    """A crash would write the whole model to the disk."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _die_with(parent_pid: int) -> None:
    """Ask Linux to kill this process with its parent; elsewhere the end of the pipe says that it is gone."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # it was gone before we asked
        os._exit(0)


class _Forwarder(logging.Handler):
    """Sends records to the program, whose log is configured."""

    def __init__(self, sender: Sender) -> None:
        super().__init__()
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):  # of logging nothing may fail
            self._sender.send(Logged(record.levelno, record.name, self.format(record)))


def _forward_logs(sender: Sender, level: int) -> None:
    root = logging.getLogger("hymt_local")
    root.setLevel(level)
    root.propagate = False
    root.handlers = [_Forwarder(sender)]
