"""What is known of a run, and how each event changes it. Values only: the status line is a function of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from hymt_local.errors import ErrorReport
from hymt_local.events import (
    Cancelled,
    Event,
    Failed,
    Finished,
    ModelLoaded,
    ModelLoading,
    Origin,
    PromptProgress,
    SegmentDone,
    Started,
    TextDelta,
    TokenUsage,
)


class Phase(StrEnum):
    """Where a run is."""

    IDLE = "idle"
    WAITING = "waiting"
    """Submitted, nothing heard yet."""
    LOADING = "loading"
    READING = "reading"
    """The model reads the prompt."""
    WRITING = "writing"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_active(self) -> bool:
        """True while there is something to cancel."""
        return self in {Phase.WAITING, Phase.LOADING, Phase.READING, Phase.WRITING}


@dataclass(frozen=True, slots=True)
class RunState:
    """A run as of its latest event."""

    phase: Phase = Phase.IDLE
    model: str = ""
    model_kind: str = ""
    source_lang: str = ""
    target_lang: str = ""
    detected_confidence: float | None = None
    loaded_fraction: float = 0.0
    loaded: ModelLoaded | None = None
    """How the model lies in memory; None until it does, and when nothing had to be generated."""
    prompt_done: int = 0
    """Tokens of the prompt being read, of `prompt_total`."""
    prompt_total: int = 0
    n_segments: int = 0
    n_settled: int = 0
    n_cached: int = 0
    n_failed: int = 0
    n_findings: int = 0
    """Segments of which the output checks have something to say, though they were not refused."""
    usage: TokenUsage = field(default_factory=TokenUsage)
    origin: Origin | None = None
    elapsed_s: float = 0.0
    error: ErrorReport | None = None
    """Why the run failed, or why its first failed segment did."""

    def stopped(self, phase: Phase) -> RunState:
        """Return the state after the run was given up: of it, only the model is worth knowing."""
        return RunState(phase=phase, model=self.model, model_kind=self.model_kind)

    @property
    def tokens_per_s(self) -> float | None:
        """Decode speed so far; None before anything was decoded."""
        usage = self.usage
        return usage.output_tokens / usage.decode_s if usage.output_tokens and usage.decode_s > 0 else None


def advance(state: RunState, event: Event) -> RunState:
    """Return the state after one more event of the run."""
    match event:
        case ModelLoading():
            return replace(state, phase=Phase.LOADING, model=event.model, loaded_fraction=event.fraction)
        case ModelLoaded():
            return replace(state, loaded=event)
        case Started():
            return _start(state, event)
        case PromptProgress():
            # A later segment's prompt is read while an earlier one is already being written: that shows nothing new.
            phase = state.phase if state.phase is Phase.WRITING else Phase.READING
            return replace(state, phase=phase, prompt_done=event.done_tokens, prompt_total=event.total_tokens)
        case TextDelta():
            return state if state.phase is Phase.WRITING else replace(state, phase=Phase.WRITING)
        case SegmentDone():
            return _settle(state, event)
        case Finished():
            return _finish(state, event)
        case Failed():
            return replace(state, phase=Phase.FAILED, error=event.error)
        case Cancelled():
            return replace(state, phase=Phase.CANCELLED)


def _start(state: RunState, event: Started) -> RunState:
    return replace(
        state,
        phase=Phase.WAITING,
        model=event.model,
        model_kind=event.model_kind,
        source_lang=event.source_lang,
        target_lang=event.target_lang,
        detected_confidence=event.detected_confidence,
        n_segments=event.n_segments,
    )


def _settle(state: RunState, event: SegmentDone) -> RunState:
    return replace(
        state,
        phase=Phase.WRITING,
        n_settled=state.n_settled + 1,
        n_cached=state.n_cached + (event.origin is Origin.CACHE),
        n_failed=state.n_failed + (event.error is not None),
        n_findings=state.n_findings + (event.error is None and bool(event.findings)),
        usage=state.usage + event.usage,
        error=state.error or event.error,
    )


def _finish(state: RunState, event: Finished) -> RunState:
    first_error = event.failed[0].error if event.failed else None
    return replace(
        state,
        phase=Phase.DONE,
        model=event.model,
        source_lang=event.source_lang,
        target_lang=event.target_lang,
        usage=event.usage,
        origin=event.origin,
        elapsed_s=event.elapsed_s,
        n_failed=len(event.failed),
        error=first_error,
    )
