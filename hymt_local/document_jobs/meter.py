"""How fast a document moves, and how long the rest will take."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from hymt_local.document_jobs.events import DocumentProgress, UnitSettled
from hymt_local.document_jobs.work import DocumentWork
from hymt_local.events import Origin

EVENT_INTERVAL_S = 0.2
WINDOW_S = 60.0
"""Long enough to even out units of different length, short enough to notice that the machine has become busy."""
_LEAST_MEASURE_S = 1.0


class ProgressMeter:
    """Turns settled units into progress; used by one thread.

    Only what the model does counts as speed: the cache is done in no time, and at no predictable place.

    Args:
        work: The document.
        now: A monotonic clock, seconds.
    """

    def __init__(self, work: DocumentWork, *, now: Callable[[], float]) -> None:
        self._work = work
        self._now = now
        self._sent_at: float | None = None
        self._idle_until = now()
        self._started_at: float | None = None
        self._characters = 0
        self._samples: deque[tuple[float, int]] = deque()

    def note_idle(self) -> None:
        """Note that the model has done nothing for the document so far: reading it is not its speed."""
        self._idle_until = self._now()

    def settled(self, unit: UnitSettled) -> DocumentProgress | None:
        """Count a unit; returns progress when the last one is old enough."""
        now = self._now()
        if unit.origin is Origin.MODEL or unit.error is not None:
            self._count(len(unit.source))
        elif self._started_at is None:
            self._idle_until = now
        if self._sent_at is not None and now - self._sent_at < EVENT_INTERVAL_S:
            return None
        self._sent_at = now
        self._sample(now)
        return self.progress()

    def progress(self, *, loading: float | None = None) -> DocumentProgress:
        """Return how far it is."""
        work = self._work
        rate = self._rate()
        return DocumentProgress(
            done_units=work.n_done,
            n_units=len(work.units),
            done_characters=work.done_characters,
            characters=work.characters,
            rate=rate,
            eta_s=(work.characters - work.done_characters) / rate if rate else None,
            loading=loading,
        )

    @property
    def overall_rate(self) -> float | None:
        """Characters per second of everything that the model did; None when it did too little to tell."""
        if self._started_at is None or (elapsed_s := self._now() - self._started_at) < _LEAST_MEASURE_S:
            return None
        return self._characters / elapsed_s or None

    def _count(self, n_characters: int) -> None:
        if self._started_at is None:
            self._started_at = self._idle_until
            self._samples.append((self._started_at, 0))
        self._characters += n_characters

    def _sample(self, now: float) -> None:
        if self._started_at is None:
            return
        self._samples.append((now, self._characters))
        while len(self._samples) > 2 and now - self._samples[1][0] >= WINDOW_S:
            self._samples.popleft()

    def _rate(self) -> float | None:
        if len(self._samples) < 2:
            return None
        (first, start), (last, end) = self._samples[0], self._samples[-1]
        return (end - start) / (last - first) if last - first >= _LEAST_MEASURE_S else None
