"""Events of a download, at most five a second, and the meter that computes rate and remaining time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

EVENT_INTERVAL_S = 0.2
RATE_WINDOW_S = 5.0


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """How far one file has come, and all files of the same call with it."""

    name: str
    phase: Literal["verify", "download"]
    """`verify`: bytes that are here already are being hashed."""
    done_bytes: int
    total_bytes: int
    all_done_bytes: int
    """Of all files: those finished before, and this one's."""
    all_total_bytes: int
    rate_bytes_per_s: float | None
    """Over the last seconds, of this phase; None before there is anything to measure."""
    eta_s: float | None
    """Seconds until all files are here at this rate; of a verification, until it ends."""


@dataclass(frozen=True, slots=True)
class DownloadWaiting:
    """Nothing moves for now; sent once a second."""

    name: str
    reason: str
    remaining_s: float | None
    """None when nobody knows: another process holds the file."""


DownloadEvent = DownloadProgress | DownloadWaiting
ProgressCallback = Callable[[DownloadEvent], None]


def ignore_progress(_event: DownloadEvent) -> None:
    """Take no notice."""


class ProgressMeter:
    """Turns byte counts into events; used by one thread.

    Args:
        callback: Takes the events; what it raises ends the download.
        now: A monotonic clock, seconds.
    """

    def __init__(self, callback: ProgressCallback, *, now: Callable[[], float]) -> None:
        self._callback = callback
        self._now = now
        self._all_total = 0
        self._finished = 0
        self._last_event: float | None = None
        self._name = ""
        self._phase: Literal["verify", "download"] = "download"
        self._total = 0
        self._samples: deque[tuple[float, int]] = deque()

    def expect(self, all_total_bytes: int) -> None:
        """Say how much all files of the call have."""
        self._all_total = all_total_bytes

    def start(self, name: str, *, phase: Literal["verify", "download"], total_bytes: int, done_bytes: int = 0) -> None:
        """Begin a phase of one file; `done_bytes` were there before and do not count as speed."""
        self._name, self._phase, self._total = name, phase, total_bytes
        self._samples.clear()
        self.update(done_bytes)

    def update(self, done_bytes: int) -> None:
        """Take note of bytes done in this phase; sends an event when the last one is old enough."""
        now = self._now()
        if self._samples and done_bytes < self._samples[-1][1]:
            self._samples.clear()  # the server began again at the first byte
        if not self._samples or now > self._samples[-1][0]:
            self._samples.append((now, done_bytes))
        else:
            self._samples[-1] = (now, done_bytes)
        while len(self._samples) > 2 and now - self._samples[1][0] >= RATE_WINDOW_S:
            self._samples.popleft()
        if self._last_event is None or now - self._last_event >= EVENT_INTERVAL_S:
            self._send(now, done_bytes)

    def finish_file(self, size_bytes: int) -> None:
        """Count a file as done; the last file of the call always sends an event."""
        self._finished += size_bytes
        if self._finished >= self._all_total:
            self._callback(self._progress(size_bytes, all_done_bytes=self._finished))

    def waiting(self, name: str, *, reason: str, remaining_s: float | None) -> None:
        """Say that nothing moves."""
        self._callback(DownloadWaiting(name, reason, remaining_s))

    def _send(self, now: float, done_bytes: int) -> None:
        self._last_event = now
        arrived = done_bytes if self._phase == "download" else 0
        self._callback(self._progress(done_bytes, all_done_bytes=self._finished + arrived))

    def _progress(self, done_bytes: int, *, all_done_bytes: int) -> DownloadProgress:
        rate = self._rate()
        downloading = self._phase == "download"
        missing_bytes = self._all_total - all_done_bytes if downloading else self._total - done_bytes
        return DownloadProgress(
            name=self._name,
            phase=self._phase,
            done_bytes=done_bytes,
            total_bytes=self._total,
            all_done_bytes=all_done_bytes,
            all_total_bytes=self._all_total,
            rate_bytes_per_s=rate,
            eta_s=missing_bytes / rate if rate else None,
        )

    def _rate(self) -> float | None:
        if len(self._samples) < 2:
            return None
        (first, start), (last, end) = self._samples[0], self._samples[-1]
        return (end - start) / (last - first)
