"""Doubles of what surrounds the terminal UI: a service whose jobs the test writes, a clock that the test winds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hymt_local.errors import ErrorReport
from hymt_local.events import (
    Cancelled,
    Event,
    Finished,
    Origin,
    SegmentDone,
    Started,
    TextDelta,
    TokenUsage,
    TranslationRequest,
)
from hymt_local.jobs import TranslationJob
from hymt_local.segmenter import split_lines

NOT_COVERED = ErrorReport("not_covered", "the demo phrasebook does not cover 'x'", "get a real model", 3, 422)


class FakeService:
    """Keeps every job that was submitted; the test puts the events."""

    warnings: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.jobs: list[TranslationJob] = []
        self.cancelled: list[TranslationJob] = []

    @property
    def requests(self) -> list[TranslationRequest]:
        """What was asked for, in order."""
        return [job.request for job in self.jobs]

    @property
    def job(self) -> TranslationJob:
        """The newest one."""
        return self.jobs[-1]

    def submit(self, request: TranslationRequest) -> TranslationJob:
        self.jobs.append(TranslationJob(request, cancel=self._cancel))
        return self.jobs[-1]

    def close(self) -> None:
        """Nothing to free."""

    def _cancel(self, job: TranslationJob) -> None:
        if not job.done:
            self.cancelled.append(job)
            job.put(Cancelled())


@dataclass
class FakeAlarm:
    """One call that is due."""

    due: float
    callback: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass
class FakeClock:
    """Stands still until `advance`."""

    time: float = 0.0
    alarms: list[FakeAlarm] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> FakeAlarm:
        alarm = FakeAlarm(self.time + delay_s, callback)
        self.alarms.append(alarm)
        return alarm

    @property
    def pending(self) -> list[FakeAlarm]:
        """Alarms that are still to ring."""
        return [alarm for alarm in self.alarms if not alarm.is_cancelled]

    def advance(self, seconds: float) -> None:
        """Let time pass and ring what became due."""
        self.time += seconds
        due = [alarm for alarm in self.pending if alarm.due <= self.time + 1e-9]
        self.alarms = [alarm for alarm in self.pending if alarm not in due]
        for alarm in due:
            alarm.callback()


def started(
    request: TranslationRequest,
    *,
    source_lang: str = "en",
    confidence: float | None = 0.98,
    model: str = "demo",
    kind: str = "demo",
) -> Started:
    """Return the first event of a job, split by lines."""
    segments = split_lines(request.text)
    return Started(
        model=model,
        model_kind=kind,
        source_lang=request.source_lang or source_lang,
        target_lang=request.target_lang,
        detected_confidence=None if request.source_lang else confidence,
        n_segments=len(segments),
        segments=segments,
    )


def finished(
    request: TranslationRequest,
    text: str,
    *,
    origin: Origin = Origin.MODEL,
    usage: TokenUsage | None = None,
    elapsed_s: float = 1.5,
    model: str = "demo",
    failed: tuple[SegmentDone, ...] = (),
) -> Finished:
    """Return the last event of a job that went well."""
    return Finished(
        text=text,
        source_lang=request.source_lang or "en",
        target_lang=request.target_lang,
        model=model,
        signature="test",
        origin=origin,
        usage=usage or TokenUsage(prompt_tokens=30, output_tokens=60, decode_s=1.5),
        elapsed_s=elapsed_s,
        failed=failed,
    )


def answer(job: TranslationJob, text: str, *, origin: Origin = Origin.MODEL) -> None:
    """Put a whole run of one segment: started, streamed by words, finished."""
    events: list[Event] = [started(job.request)]
    events += [TextDelta(0, word) for word in text.splitlines(keepends=True)]
    for event in (*events, finished(job.request, text, origin=origin)):
        job.put(event)
