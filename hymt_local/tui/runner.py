"""One translation at a time: submits a job, reads its events, and tells a screen what changed, not too often.

A run is a Textual worker on the screen's own loop. Cancelling the worker cancels the job, and what a cancelled run
still has to say is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from textual.screen import Screen

from hymt_local.events import Event, Finished, SegmentDone, Started, TextDelta, TranslationRequest
from hymt_local.tui.clock import Alarm
from hymt_local.tui.environment import Environment
from hymt_local.tui.run_state import Phase, RunState, advance
from hymt_local.tui.transcript import Transcript

WORKER_GROUP = "translate"

FLUSH_S = 0.05
"""Streamed text is shown at most this often: 20 repaints a second look continuous and cost half of one per token."""
REMOTE_FLUSH_S = 0.1


@dataclass(slots=True)
class Run:
    """One translation being shown."""

    request: TranslationRequest
    started_at: float
    state: RunState = field(default_factory=lambda: RunState(phase=Phase.WAITING))
    transcript: Transcript = field(default_factory=Transcript)
    finished: Finished | None = None
    """The result, once it has come."""


class RunView(Protocol):
    """Who is told about a run."""

    def run_started(self, event: Started) -> None:
        """Languages and model are settled."""

    def run_grew(self, run: Run) -> None:
        """There is more text or progress than when it was told last."""

    def run_ended(self, run: Run) -> None:
        """The last event came; the run is over."""


class Runner:
    """Holds the current run.

    Args:
        screen: Owns the worker; its loop runs everything here.
        view: Is told what changes; usually the same screen.
        environment: Gives service, clock and the distance to the terminal.
    """

    def __init__(self, screen: Screen[None], *, view: RunView, environment: Environment) -> None:
        self._screen = screen
        self._view = view
        self._service = environment.service
        self._clock = environment.clock
        self._flush_s = REMOTE_FLUSH_S if environment.terminal.is_remote else FLUSH_S
        self._flush_alarm: Alarm | None = None
        self.run: Run | None = None
        """The run in flight."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run in flight was submitted."""
        return self._clock.now() - self.run.started_at if self.run else 0.0

    def start(self, request: TranslationRequest) -> None:
        """Start a run, in place of the one in flight."""
        self.stop()
        self.run = Run(request, self._clock.now())
        # Not a coroutine: a worker that is cancelled before it starts would leave it unawaited.
        work = partial(self._follow, self.run)
        self._screen.run_worker(
            work,  # type: ignore[arg-type]  # mypy 2.4 does not solve the type variable of the union it may be
            group=WORKER_GROUP,
            exclusive=True,
            exit_on_error=False,
        )

    def stop(self) -> Run | None:
        """Cancel the run in flight and return it; what it has shown stays."""
        run = self._forget_run()
        if run is not None:
            self._screen.workers.cancel_group(self._screen, WORKER_GROUP)
        return run

    def _forget_run(self) -> Run | None:
        run, self.run = self.run, None
        if self._flush_alarm is not None:
            self._flush_alarm.cancel()
            self._flush_alarm = None
        return run

    async def _follow(self, run: Run) -> None:
        """Read the events of one job until its end; being cancelled cancels the job."""
        job = self._service.submit(run.request)
        try:
            async for event in job:
                if run is not self.run:
                    return
                self._receive(run, event)
        finally:
            job.cancel()

    def _receive(self, run: Run, event: Event) -> None:
        run.state = advance(run.state, event)
        match event:
            case TextDelta():
                run.transcript.add(event)
            case SegmentDone():
                run.transcript.settle(event)
            case Started():
                run.transcript.start(event)
                self._view.run_started(event)
            case Finished():
                run.transcript.finish(event)
                run.finished = event
        if run.state.phase.is_active:
            self._flush_soon(run)
        else:
            self._forget_run()
            self._view.run_ended(run)

    def _flush_soon(self, run: Run) -> None:
        if self._flush_alarm is None:
            self._flush_alarm = self._clock.call_later(self._flush_s, lambda: self._flush(run))

    def _flush(self, run: Run) -> None:
        self._flush_alarm = None
        if run is self.run:
            self._view.run_grew(run)
