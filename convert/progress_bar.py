"""Progress on a terminal: one line per step with amount, rate and remaining time.

Elsewhere, as in a log file, it is a line a minute, so that a short conversion prints nothing.

rich is imported when the first line is drawn.
"""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from hymt_local.sanitize import sanitize

if TYPE_CHECKING:
    from hymt_convert.progress import Progress
    from hymt_local.download import DownloadEvent

LINE_S = 60.0
"""Time between two lines where there is no terminal."""


@dataclass(slots=True)
class _Step:
    """A step since its first report: some reports are minutes apart, too rare for a rate of the last moments."""

    started: float
    first_done: int
    told: float
    task: Any = None

    def speed(self, done: float, now: float) -> float | None:
        """Return units per second, None while that cannot be told."""
        elapsed = now - self.started
        return (done - self.first_done) / elapsed if elapsed > 0 and done > self.first_done else None


class ProgressBar:
    """Use it as a context manager; its methods are the callbacks of the steps.

    Args:
        stream: Where to draw; standard error when None.
        now: A monotonic clock, seconds.
    """

    def __init__(self, stream: TextIO | None = None, *, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._now = now
        self._bar: Any = None
        self._steps: dict[str, _Step] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, progress: Progress) -> None:
        """Draw a step of the conversion."""
        self._draw(progress.step, progress.done, progress.total, unit=progress.unit, resumed=progress.resumed)

    def show_download(self, event: DownloadEvent) -> None:
        """Draw a download."""
        from hymt_local.download import DownloadProgress

        if isinstance(event, DownloadProgress):
            self._draw("downloading", event.all_done_bytes, event.all_total_bytes, unit="bytes")

    def show_hashing(self, done: int, total: int) -> None:
        """Draw the reading of a finished file."""
        self._draw(f"hashing {total / 1e9:.1f} GB", done, total, unit="bytes")

    def _draw(self, step: str, done: int, total: int, *, unit: str, resumed: int = 0) -> None:
        now = self._now()
        # What was there before must not count as fast work.
        known = self._steps.setdefault(step, _Step(now, resumed or done, now))
        speed = known.speed(done, now)
        text, left = describe_amount(done, total, unit=unit, speed=speed), describe_left(total - done, speed)
        if self._stream.isatty():
            self._update(step, known, done, total, text=text, left=left)
        elif now - known.told >= LINE_S:
            known.told = now
            print(f"{sanitize(step)}: {text}, {left} left", file=self._stream, flush=True)

    def _update(self, step: str, known: _Step, done: int, total: int, *, text: str, left: str) -> None:
        if self._bar is None:
            self._bar = _open_bar(self._stream)
            self._bar.start()
        if known.task is None:
            known.task = self._bar.add_task(sanitize(step), total=total, amount="", left="")
        self._bar.update(known.task, completed=done, total=total, amount=text, left=left)


def describe_amount(done: float, total: float, *, unit: str, speed: float | None) -> str:
    """Return how much is done and how fast that goes, such as `4.2/15.0 GB 310 MB/s`."""
    if unit != "bytes":
        return f"{done:.0f}/{total:.0f} {unit}"
    rate = f" {speed / 1e6:.0f} MB/s" if speed else ""
    return f"{done / 1e9:.1f}/{total / 1e9:.1f} GB{rate}"


def describe_left(amount: float, speed: float | None) -> str:
    """Return the time that an amount takes, such as `0:04:10`."""
    return str(datetime.timedelta(seconds=round(amount / speed))) if speed else "-:--:--"


def _open_bar(stream: TextIO) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    names = ("{task.description}", "{task.fields[amount]}", "{task.fields[left]}")
    step, amount, left = (TextColumn(name, markup=False) for name in names)
    return Bar(step, BarColumn(), amount, left, console=Console(file=stream))
