"""The whole exception tree of hymt-local: what went wrong, with which value, and what to do next.

Every class carries a stable `code` for machines, the process `exit_status` and the `http_status` that the front ends
use. The core raises; only the edges (CLI, TUI, server) render.

    HymtError
    ├── UsageError              2  LanguageError · EmptyInputError · InputEncodingError · ConfigError
    ├── ModelError              3  ModelNotFoundError · ModelFileError · UnsupportedModelError · NotCoveredError
    │                              · DownloadError · ModelTooLargeError · LicenceError
    ├── EngineError             4  EngineUnavailableError · EngineLoadError · EngineMemoryError · EngineStoppedError
    │                              · DecodeError · ContextOverflowError · SegmentRejectedError (1)
    ├── DocumentError           5
    ├── StoreError              6
    ├── ServerError             7  AccessError · ForbiddenError · MisdirectedError · RequestTooLargeError
    │                              · TimeLimitError · BusyError
    └── CancelledError        130
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

EXIT_DONE = 0
EXIT_SEGMENTS_FAILED = 1


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """An error as plain data: what front ends show and what crosses a pipe or a socket."""

    code: str
    message: str
    hint: str
    exit_status: int
    http_status: int

    @property
    def text(self) -> str:
        """Message and hint in one, for readers who have one place for both."""
        return f"{self.message} ({self.hint})" if self.hint else self.message


class HymtError(Exception):
    """Base of every error this program raises on purpose.

    Args:
        message: One line: what happened and the offending value.
        hint: One line: the next step for the user; may be empty.
    """

    code: ClassVar[str] = "internal"
    exit_status: ClassVar[int] = 4
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by value: keyword-only arguments break the default protocol of exceptions."""
        return (_rebuild, (type(self), self.message, self.hint))

    def report(self) -> ErrorReport:
        """Return the error as plain data."""
        return ErrorReport(self.code, self.message, self.hint, self.exit_status, self.http_status)


def _rebuild(kind: type[HymtError], message: str, hint: str) -> HymtError:
    return kind(message, hint=hint)


class UsageError(HymtError):
    """The request itself is wrong."""

    code = "usage"
    exit_status = 2
    http_status = 400


class LanguageError(UsageError):
    """A language tag or name is unknown, or the model does not speak it."""

    code = "language"


class EmptyInputError(UsageError):
    """There is nothing to translate."""

    code = "empty_input"


class InputEncodingError(UsageError):
    """The input is not valid UTF-8; the message names the byte offset."""

    code = "input_encoding"


class ConfigError(UsageError):
    """A setting is unknown or has a value outside its range."""

    code = "config"


class ModelError(HymtError):
    """The model cannot be used."""

    code = "model"
    exit_status = 3
    http_status = 422


class ModelNotFoundError(ModelError):
    """No such model in the catalog, or it is not installed."""

    code = "model_not_found"
    http_status = 404


class ModelFileError(ModelError):
    """The file is missing, truncated, corrupt or not a GGUF at all."""

    code = "model_file"


class UnsupportedModelError(ModelError):
    """A sound GGUF that this program cannot run: other architecture, tensor type, tokenizer or missing template."""

    code = "model_unsupported"


class NotCoveredError(ModelError):
    """The text lies outside the closed domain of a demo model, which would answer it fluently and wrongly."""

    code = "not_covered"


class DownloadError(ModelError):
    """A model file or its description cannot be had: no network, refused access, or an answer that makes no sense."""

    code = "download"
    http_status = 502


class ModelTooLargeError(ModelError):
    """The model needs more memory than this machine can give; loading it would end in swapping or a kill."""

    code = "model_too_large"


class LicenceError(ModelError):
    """The licence of a model has not been accepted yet."""

    code = "licence"
    http_status = 403


class EngineError(HymtError):
    """The inference engine failed."""

    code = "engine"
    exit_status = 4
    http_status = 503


class EngineUnavailableError(EngineError):
    """llama-cpp-python is not installed or cannot be loaded on this machine."""

    code = "engine_unavailable"


class EngineLoadError(EngineError):
    """llama.cpp refused to load the model or to create a context."""

    code = "engine_load"


class EngineMemoryError(EngineLoadError):
    """There was not enough memory for the model, or it was taken away: the system ended the engine's process."""

    code = "engine_memory"


class EngineStoppedError(EngineError):
    """The engine's process crashed, was killed or did not answer any more; it is started again when it is needed."""

    code = "engine_stopped"


class DecodeError(EngineError):
    """A decode call failed in the middle of a generation."""

    code = "decode"


class ContextOverflowError(EngineError):
    """Prompt and answer do not fit the context; raised before anything is decoded, nothing is cut."""

    code = "context_overflow"


class SegmentRejectedError(EngineError):
    """A generation ended, but its output failed the checks (cut off, empty, control tokens, lost placeholders)."""

    code = "segment_rejected"
    exit_status = 1


class DocumentError(HymtError):
    """A document was refused; nothing was written."""

    code = "document"
    exit_status = 5
    http_status = 422


class StoreError(HymtError):
    """A database, cache or configuration file cannot be read or written."""

    code = "store"
    exit_status = 6
    http_status = 507


class ServerError(HymtError):
    """The resident server cannot be reached or cannot start."""

    code = "server"
    exit_status = 7
    http_status = 502


class AccessError(ServerError):
    """A request without a token that the server knows."""

    code = "access"
    http_status = 401


class ForbiddenError(ServerError):
    """A web page or extension that may not talk to this server, or a client that may not do this."""

    code = "forbidden"
    http_status = 403


class MisdirectedError(ServerError):
    """The request names a host that is not this server: a sign of DNS rebinding."""

    code = "misdirected"
    http_status = 421


class RequestTooLargeError(ServerError):
    """A body, text or list beyond the server's limits; nothing was translated."""

    code = "request_too_large"
    http_status = 413


class TimeLimitError(ServerError):
    """A request took longer than its client may have; what was under way for it was cancelled."""

    code = "time_limit"
    http_status = 504


class BusyError(ServerError):
    """The waiting line is full, or the client's limit is reached; the request may be repeated later.

    Args:
        message: What is full.
        hint: The next step.
        retry_after_s: When a repetition has a chance.
    """

    code = "busy"
    http_status = 429

    def __init__(self, message: str, *, hint: str = "", retry_after_s: float = 1.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class CancelledError(HymtError):
    """The user interrupted the work."""

    code = "cancelled"
    exit_status = 130
    http_status = 499


def error_of(report: ErrorReport) -> HymtError:
    """Return a report as the error it was made of, to be raised."""
    kind = _error_kinds(HymtError).get(report.code, HymtError)
    return kind(report.message, hint=report.hint)


def _error_kinds(kind: type[HymtError]) -> dict[str, type[HymtError]]:
    """Return every class of the error tree by its code; of those that share one, the widest."""
    kinds: dict[str, type[HymtError]] = {}
    for narrower in kind.__subclasses__():
        kinds |= _error_kinds(narrower)
    return {**kinds, kind.code: kind}
