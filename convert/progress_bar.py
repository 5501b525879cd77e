"""Progress on a terminal: one line per step with amount, rate and remaining time. Elsewhere nothing is printed.

rich is imported when the first line is drawn.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

if TYPE_CHECKING:
    from hymt_convert.conversion import Progress
    from hymt_local.download import DownloadEvent


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
        self._steps: dict[str, Any] = {}

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
        if not self._stream.isatty():
            return
        if self._bar is None:
            self._bar = _open_bar(self._stream, self._now)
            self._bar.start()
        if step not in self._steps:
            # What was there before must not count as fast work.
            self._steps[step] = self._bar.add_task(step, total=total, completed=resumed, unit=unit)
        self._bar.update(self._steps[step], completed=done)


def describe_amount(done: float, total: float, *, unit: str, speed: float | None) -> str:
    """Return how much is done and how fast that goes, such as `4.2/15.0 GB 310 MB/s`."""
    if unit != "bytes":
        return f"{done:.0f}/{total:.0f} {unit}"
    rate = f" {speed / 1e6:.0f} MB/s" if speed else ""
    return f"{done / 1e9:.1f}/{total / 1e9:.1f} GB{rate}"


def _open_bar(stream: TextIO, now: Callable[[], float]) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    class Amount(ProgressColumn):
        def render(self, task: Any) -> Text:
            text = describe_amount(task.completed, task.total or 0, unit=task.fields["unit"], speed=task.speed)
            return Text(text)

    columns = (TextColumn("{task.description}"), BarColumn(), Amount(), TimeRemainingColumn())
    return Bar(*columns, console=Console(file=stream), get_time=now)
