"""Owns stderr and the exit status: errors, notes, progress bars and the log file. Never writes to stdout."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from hymt_local.errors import ErrorReport
from hymt_local.sanitize import sanitize

BAR_CELLS = 24


def print_error(report: ErrorReport) -> None:
    """Print one line for what happened and one for the next step."""
    _print_line(f"error: {report.message}")
    if report.hint:
        _print_line(f"hint: {report.hint}")


def print_note(text: str) -> None:
    """Print one line of talk."""
    _print_line(f"note: {text}")


def _print_line(text: str) -> None:
    line = sanitize(text).replace("\n", " ")
    # A closed or full stderr must not turn a finished translation into a crash.
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


class ProgressLine:
    """One self-erasing line on stderr; silent when stderr is not a terminal."""

    def __init__(self) -> None:
        self._shown = False
        self._active = sys.stderr.isatty()

    def show(self, label: str, fraction: float) -> None:
        """Draw the bar; `fraction` is 0.0 to 1.0."""
        if not self._active:
            return
        filled = round(min(max(fraction, 0.0), 1.0) * BAR_CELLS)
        bar = "━" * filled + "╌" * (BAR_CELLS - filled)
        sys.stderr.write(f"\r\x1b[2K{sanitize(label)} {bar} {fraction:4.0%}")
        sys.stderr.flush()
        self._shown = True

    def clear(self) -> None:
        """Erase the line if one was drawn."""
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._shown = False


class PrivateFileHandler(logging.FileHandler):
    """A log file that only its owner can read, created when the first record is written."""

    def _open(self):  # type: ignore[no-untyped-def]  # the type of the stream is private to logging
        Path(self.baseFilename).parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return os.fdopen(descriptor, self.mode, encoding=self.encoding)

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop a record that cannot be written: a read-only state folder must not disturb a translation."""


@contextlib.contextmanager
def log_to_file(path: Path, level: str) -> Iterator[None]:
    """Send the records of this package to the log file while the context is open."""
    logger = logging.getLogger("hymt_local")
    handler = PrivateFileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
