"""One line per request, without a word of its text, in a file that is rotated; an alert when rates are odd."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 1_000_000
N_OLD_FILES = 3
WINDOW_S = 60.0
MAX_REFUSALS = 30
"""Refused tokens, hosts and origins in a minute that are not a slip of the keyboard any more."""
MAX_REQUESTS = 3000
_REFUSALS = frozenset({401, 403, 421})


@dataclass(frozen=True, slots=True)
class RequestLine:
    """What the log keeps of a request: lengths, times and who."""

    client: str
    dialect: str
    method: str
    status: int
    received_bytes: int
    sent_bytes: int
    duration_s: float


class RequestLog:
    """Writes lines and watches their rates. Belongs to the server's loop.

    Args:
        file: Where the lines go; None for nowhere. It is private (0600).
        alert: Called with a line of alert.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, file: Path | None, *, alert: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._handler = None if file is None else _handler(file)
        self._alert = alert
        self._requests = _Rate(MAX_REQUESTS, clock)
        self._refusals = _Rate(MAX_REFUSALS, clock)

    def write(self, line: RequestLine) -> None:
        """Write one line."""
        if self._handler is not None:
            text = (
                f"{_word(line.client)} {line.dialect} {line.method} {line.status} in={line.received_bytes} "
                f"out={line.sent_bytes} {line.duration_s:.3f}s"
            )
            self._handler.emit(logging.LogRecord("hymt.requests", logging.INFO, "", 0, text, None, None))
        if self._requests.is_exceeded():
            self._alert(f"more than {MAX_REQUESTS} requests in a minute")
        if line.status in _REFUSALS and self._refusals.is_exceeded():
            self._alert(f"more than {MAX_REFUSALS} requests refused in a minute: somebody tries to get in")

    def close(self) -> None:
        """Close the file."""
        if self._handler is not None:
            with contextlib.suppress(OSError):  # a full disk once more: what was lost is lost
                self._handler.close()


class _Rate:
    """Counts in a sliding minute; exceeded once, then silent for as long."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._times: deque[float] = deque()
        self._silent_until = float("-inf")

    def is_exceeded(self) -> bool:
        """Count one, and tell whether that was one too many."""
        now = self._clock()
        self._times.append(now)
        while self._times[0] < now - WINDOW_S:
            self._times.popleft()
        if len(self._times) <= self._most or now < self._silent_until:
            return False
        self._silent_until = now + WINDOW_S
        return True


def _word(name: str) -> str:
    """Return a name as one word, which cannot end the line either."""
    return "".join("_" if character.isspace() or not character.isprintable() else character for character in name)


def _handler(file: Path) -> logging.Handler:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    handler = _PrivateFile(file, maxBytes=MAX_BYTES, backupCount=N_OLD_FILES, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    return handler


class _PrivateFile(logging.handlers.RotatingFileHandler):
    def doRollover(self) -> None:
        super().doRollover()
        Path(self.baseFilename).chmod(0o600)

    def handleError(self, record: logging.LogRecord) -> None:
        """Lose the line: a full disk must not stop translations."""
