"""What passes between a program and its engine process: frames of MessagePack with a length in front.

Commands go one way, each with a number; whatever answers one carries the same number. No object is ever built from its
name: a frame can hold nothing but the values below.
"""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass
from typing import IO, Any

import msgspec

from hymt_local.engine.base import GenerationDone, GenerationRequest, ModelInfo, Outcome, PromptRead, TokensGenerated
from hymt_local.engine.counters import EngineCounters
from hymt_local.engine.fit import GpuFacts
from hymt_local.errors import ErrorReport, HymtError, error_of

_LENGTH = struct.Struct("<I")
_MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Order:
    """What an engine process is to load."""

    factory: str
    """`module:function`; called with `arguments`, it returns a `BackendOpener`."""
    arguments: bytes = b""


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Its class is told by its name."""


class Load(_Message, frozen=True):
    """Returns ModelInfo, with `Progressed` before it."""

    order: Order
    log_level: int


class AskGpus(_Message, frozen=True):
    """Returns a tuple of GpuFacts."""


class Tokenize(_Message, frozen=True):
    """Returns a tuple of ids."""

    text: str


class CanOpen(_Message, frozen=True):
    """Returns a bool."""

    request: GenerationRequest


class Open(_Message, frozen=True):
    """Returns a ticket, an int."""

    request: GenerationRequest


class Step(_Message, frozen=True):
    """Returns a list of `Happened`."""


class Drop(_Message, frozen=True):
    """Returns GenerationDone."""

    ticket: int


class AskCounters(_Message, frozen=True):
    """Returns EngineCounters."""


class Interrupt(_Message, frozen=True):
    """Is not answered."""


class Close(_Message, frozen=True):
    """Returns None; the process ends."""


Command = Load | AskGpus | Tokenize | CanOpen | Open | Step | Drop | AskCounters | Interrupt | Close


class Happened(msgspec.Struct, frozen=True, array_like=True):
    """An `Outcome` on the wire: one of the last four is set."""

    ticket: int
    read: PromptRead | None = None
    tokens: TokensGenerated | None = None
    done: GenerationDone | None = None
    error: ErrorReport | None = None

    def outcome(self) -> Outcome:
        """Return it as backends give it."""
        if self.error is not None:
            return self.ticket, error_of(self.error)
        event = self.read or self.tokens or self.done
        assert event is not None
        return self.ticket, event


class Called(msgspec.Struct, frozen=True, array_like=True):
    """A command and its number."""

    number: int
    command: Command


class Answered(_Message, frozen=True):
    """The result of a command."""

    number: int
    result: msgspec.Raw


class Refused(_Message, frozen=True):
    """The error of a command."""

    number: int
    error: ErrorReport


class Progressed(_Message, frozen=True):
    """How much of a model is loaded, 0.0 to 1.0."""

    number: int
    fraction: float


class Logged(_Message, frozen=True):
    """A line for the log."""

    level: int
    logger: str
    text: str


Report = Answered | Refused | Progressed | Logged

_encoder = msgspec.msgpack.Encoder()
_commands = msgspec.msgpack.Decoder(Called)
_reports = msgspec.msgpack.Decoder(Report)
_RESULTS: dict[type, Any] = {
    Load: ModelInfo,
    AskGpus: tuple[GpuFacts, ...],
    Tokenize: tuple[int, ...],
    CanOpen: bool,
    Open: int,
    Step: list[Happened],
    Drop: GenerationDone,
    AskCounters: EngineCounters,
    Close: None,
}
_results = {kind: msgspec.msgpack.Decoder(result) for kind, result in _RESULTS.items()}


class Sender:
    """Writes frames; any thread.

    Args:
        stream: Unbuffered or not: each frame is flushed.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, message: Called | Report) -> None:
        """Write one frame.

        Raises:
            OSError: the other side is gone.
        """
        payload = _encoder.encode(message)
        with self._lock:
            self._stream.write(_LENGTH.pack(len(payload)) + payload)
            self._stream.flush()

    def close(self) -> None:
        """Close the stream; the other side reads its end."""
        with self._lock:
            self._stream.close()


def read_command(stream: IO[bytes]) -> Called | None:
    """Return the next command, None at the end."""
    payload = _read(stream)
    return None if payload is None else _commands.decode(payload)


def read_report(stream: IO[bytes]) -> Report | None:
    """Return the next report, None at the end, or where the other side sends what is no frame."""
    payload = _read(stream)
    try:
        return None if payload is None else _reports.decode(payload)
    except msgspec.MsgspecError:
        return None


def answer(number: int, result: object) -> Answered:
    """Return the report of a command's result."""
    return Answered(number, msgspec.Raw(_encoder.encode(result)))


def result_of(command: Command, report: Answered) -> Any:
    """Return the result of a command in its own type."""
    return _results[type(command)].decode(report.result)


def happened(outcome: Outcome) -> Happened:
    """Return an outcome for the wire; its error has a type already."""
    ticket, event = outcome
    if isinstance(event, HymtError):
        return Happened(ticket, error=event.report())
    if isinstance(event, PromptRead):
        return Happened(ticket, read=event)
    if isinstance(event, TokensGenerated):
        return Happened(ticket, tokens=event)
    assert isinstance(event, GenerationDone)
    return Happened(ticket, done=event)


def _read(stream: IO[bytes]) -> bytes | None:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > _MOST_BYTES:
        return None
    payload = stream.read(length)
    return payload if len(payload) == length else None
