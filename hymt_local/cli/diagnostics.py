"""Owns stderr and the log file: errors, notes, progress bars. Never writes to stdout, and never fails."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TextIO

from hymt_local.errors import ErrorReport, HymtError
from hymt_local.sanitize import sanitize

if TYPE_CHECKING:
    from pathlib import Path

BAR_CELLS = 24
MAX_LOG_BYTES = 1_000_000
"""Of the log file; a larger one becomes the old one, of which there is one."""


def print_error(report: ErrorReport) -> None:
    """Print one line for what happened and one for the next step."""
    _print_line(f"error: {report.message}")
    if report.hint:
        _print_line(f"hint: {report.hint}")


def print_note(text: str) -> None:
    """Print one line of talk."""
    _print_line(f"note: {text}")


def end_echoed_line() -> None:
    """End the line on which a terminal shows ^C."""
    if sys.stderr.isatty():
        _write("\n")


def _print_line(text: str) -> None:
    _write(sanitize(text).replace("\n", " ") + "\n")


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):  # a full or closed stderr must not turn a finished translation into a failure
        abandon(sys.stderr)


def abandon(stream: TextIO) -> None:
    """Point a standard stream at nothing after it failed: its buffer would fail once more at exit, with status 120."""
    with contextlib.suppress(OSError, ValueError):  # in a test it may have no descriptor
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)


class ProgressLine:
    """One self-erasing line on stderr; silent when stderr is not a terminal that can erase."""

    def __init__(self) -> None:
        self._is_shown = False
        self._is_active = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def is_active(self) -> bool:
        """Tell whether stderr is a terminal that can erase."""
        return self._is_active

    def show(self, label: str, fraction: float) -> None:
        """Draw the bar; `fraction` is 0.0 to 1.0. The cursor must be at the start of a line."""
        if not self._is_active:
            return
        fraction = min(max(fraction, 0.0), 1.0)
        filled = round(fraction * BAR_CELLS)
        bar = "━" * filled + "╌" * (BAR_CELLS - filled)
        _write(f"\r\x1b[2K{sanitize(label)} {bar} {fraction:4.0%}")
        self._is_shown = True

    def clear(self) -> None:
        """Erase the line if one was drawn."""
        if self._is_shown:
            _write("\r\x1b[2K")
            self._is_shown = False


class LogFile(logging.Handler):
    """Appends to the private log file of the environment, opened when the first record comes.

    A large file makes way for a new one, whichever of several processes finds it so. A record that cannot be written is
    dropped: a read-only state folder must not disturb a translation.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        self._environ = environ
        self._stream: TextIO | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, safe to show on a terminal."""
        with contextlib.suppress(OSError, ValueError, HymtError):
            self._stream = self._stream or self._open()
            self._stream.write(sanitize(self.format(record)) + "\n")
            self._stream.flush()
            if self._stream.tell() > MAX_LOG_BYTES:
                self._renew()

    def close(self) -> None:
        """Close the file if it was opened."""
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.close()
        super().close()

    def _renew(self) -> None:
        """Put the file aside, unless another process has done so; the next record opens a new one."""
        assert self._stream is not None
        stream, self._stream = self._stream, None
        with stream:
            path = self._path()
            if os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                path.replace(path.with_name(f"{path.name}.1"))

    def _path(self) -> Path:
        from hymt_local.paths import Paths

        return Paths.from_environment(self._environ).log_file

    def _open(self) -> TextIO:
        path = self._path()
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)  # never wait for a pipe's reader
        return os.fdopen(os.open(path, flags, 0o600), "a", encoding="utf-8")


@contextlib.contextmanager
def logging_to_file(environ: Mapping[str, str]) -> Iterator[None]:
    """Send log records to the log file instead of stderr while the context is open.

    Of other packages only warnings and errors are kept: what they log in detail may hold source text.
    """
    handler = LogFile(environ)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
