"""The status area: a line of state, one of advice, the model and its figures. Pure functions make its text."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from hymt_local.events import Origin
from hymt_local.language import get_language
from hymt_local.sanitize import sanitize
from hymt_local.tui.language_bar import language_name
from hymt_local.tui.machine_facts import device_label, size_text
from hymt_local.tui.run_state import Phase, RunState
from hymt_local.tui.wording import Wording

_MUTED = "$foreground-muted"
_BAR_CELLS = 24
_SEPARATOR = " · "


@dataclass(frozen=True, slots=True)
class Notice:
    """A message of the program itself, about something other than a run."""

    text: str
    hint: str = ""
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of the model beside its runs."""

    ref: str
    kind: str
    """`demo` shows the banner."""
    device: str = ""
    """Where its layers go on this machine by plan; empty before the machine was looked at."""
    rss_bytes: int = 0
    """Main memory of this program, resident server and all; 0 before it was looked at."""


@dataclass(frozen=True, slots=True)
class StatusText:
    """What the status area shows."""

    state: Content
    """One line, cut at the edge unless it says what went wrong."""
    advice: Content
    model: Content
    details: Content
    is_error: bool = False


def status_of(
    state: RunState, *, elapsed_s: float, model: ModelFacts, idle: str, banner: Content, wording: Wording
) -> StatusText:
    """Return the text for the current run.

    Args:
        state: The run as of its latest event.
        elapsed_s: Seconds since the run was submitted; shown while it is active.
        model: The model that is chosen; the run's own name wins once it is known.
        idle: What to say when nothing has run yet.
        banner: Stands below the state while nothing else is to be said there; the demo has one of its own.
        wording: The language to say it in.
    """
    kind = state.model_kind or model.kind
    return StatusText(
        state=_StateText(state, wording, elapsed_s=elapsed_s).text(idle),
        advice=_advice_text(state, wording) or banner or _demo_banner(wording, kind),
        is_error=state.phase is Phase.FAILED,
        model=Content.styled(_model_label(state.model or model.ref, kind, wording), _MUTED),
        details=Content.styled(_details(state, model, wording), _MUTED),
    )


def _model_label(model: str, kind: str, wording: Wording) -> str:
    return sanitize(model if kind in {"translation", "", model} else model + _SEPARATOR + wording(f"kind.{kind}"))


def _details(state: RunState, model: ModelFacts, wording: Wording) -> str:
    """Return speeds of reading and writing, reuse, device and memory, as far as they are known."""
    usage = state.usage
    read = usage.prompt_tokens - usage.reused_tokens
    parts = [
        wording("status.prefill", speed=f"{read / usage.prompt_s:.0f}") if read and usage.prompt_s > 0 else "",
        wording("status.decode", speed=f"{state.tokens_per_s:.0f}") if state.tokens_per_s else "",
        wording("status.reuse", share=f"{usage.reused_tokens / usage.prompt_tokens:.0%}")
        if usage.reused_tokens
        else "",
        device_label(state.loaded, model.device),
        wording("status.memory", size=size_text(model.rss_bytes)) if model.rss_bytes else "",
    ]
    return _SEPARATOR.join(part for part in parts if part)


def notice_text(notice: Notice) -> Content:
    """Return a notice as the state line."""
    return Content.styled(sanitize(notice.text), "$text-warning" if notice.is_warning else "$foreground")


@dataclass(frozen=True, slots=True)
class _StateText:
    """Says where a run is."""

    run: RunState
    wording: Wording
    elapsed_s: float

    def text(self, idle: str) -> Content:
        run, wording = self.run, self.wording
        match run.phase:
            case Phase.IDLE:
                return Content.styled(idle, _MUTED)
            case Phase.WAITING:
                return _joined(wording("status.starting"), seconds_text(self.elapsed_s))
            case Phase.LOADING:
                percent = f"{run.loaded_fraction:.0%}"
                label = wording("status.loading", model=sanitize(run.model))
                return bar_text(label, fraction=run.loaded_fraction, after=percent)
            case Phase.READING:
                fraction = run.prompt_done / run.prompt_total if run.prompt_total else 0.0
                count = wording("status.tokens_of", done=run.prompt_done, total=run.prompt_total)
                return bar_text(wording("status.reading"), fraction=fraction, after=count)
            case Phase.WRITING:
                rest = (self._segments(), self._speed(), seconds_text(self.elapsed_s), wording("status.esc_cancels"))
                return _joined(wording("status.translating"), *rest)
            case Phase.DONE:
                return self._done()
            case Phase.FAILED:
                return Content.styled(sanitize(run.error.message if run.error else "?"), "$text-error")
            case Phase.CANCELLED:
                return Content.styled(wording("status.cancelled"), _MUTED)

    def _done(self) -> Content:
        run, wording = self.run, self.wording
        if run.origin is Origin.CACHE:
            took = (_SEPARATOR + seconds_text(run.elapsed_s), _MUTED)
            return Content.assemble((wording("status.from_cache"), "$text-success"), took)
        if run.origin is Origin.SOURCE and not run.n_failed:
            return Content.styled(self._untouched(), _MUTED)
        cached = wording("status.some_cached", count=run.n_cached, total=run.n_segments) if run.n_cached else ""
        tokens = wording("status.tokens", count=run.usage.output_tokens) if run.usage.output_tokens else ""
        return _joined(wording("status.translated", time=seconds_text(run.elapsed_s)), cached, self._speed(), tokens)

    def _untouched(self) -> str:
        if self.run.source_lang == self.run.target_lang:
            return self.wording(
                "status.same_language", language=language_name(get_language(self.run.target_lang), self.wording)
            )
        return self.wording("status.no_words")

    def _segments(self) -> str:
        run = self.run
        is_one = run.n_segments <= 1
        return "" if is_one else self.wording("status.segments", done=run.n_settled, total=run.n_segments)

    def _speed(self) -> str:
        speed = self.run.tokens_per_s
        return self.wording("status.speed", speed=f"{speed:.0f}") if speed else ""


def _advice_text(state: RunState, wording: Wording) -> Content:
    if state.phase is Phase.DONE and state.n_failed and state.error:
        count = wording("status.some_failed", count=state.n_failed, total=state.n_segments)
        return Content.styled(f"{count}: {sanitize(state.error.message)}", "$text-warning")
    if state.phase is Phase.FAILED and state.error and state.error.hint:
        return Content.styled(sanitize(state.error.hint), _MUTED)
    if state.phase is Phase.DONE and state.n_findings:
        return Content.styled(
            wording("status.some_findings", count=state.n_findings, total=state.n_segments), "$text-warning"
        )
    return Content()


def _demo_banner(wording: Wording, kind: str) -> Content:
    return Content.styled(wording("status.demo_banner"), f"{_MUTED} italic") if kind == "demo" else Content()


def _joined(first: str, *rest: str) -> Content:
    after = "".join(_SEPARATOR + part for part in rest if part)
    return Content.assemble((first, "$foreground"), (after, _MUTED))


def bar_text(before: str, *, fraction: float, after: str) -> Content:
    """Return a line with a progress bar in it."""
    filled = round(min(max(fraction, 0.0), 1.0) * _BAR_CELLS)
    return Content.assemble(
        (before + "  ", "$foreground"),
        ("━" * filled, "$primary"),
        ("─" * (_BAR_CELLS - filled), _MUTED),  # thinner too, for terminals without colours
        ("  " + after, _MUTED),
    )


def seconds_text(seconds: float) -> str:
    """Return a short duration."""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.1 else f"{seconds:.1f} s"


class StatusArea(Vertical):
    """The lines between the panes and the footer. They keep their height, so that no message moves the text."""

    def compose(self) -> ComposeResult:
        """Lay out the state and the model beside it, advice and figures below."""
        with Horizontal(classes="status-row"):
            yield Static(id="status-state", markup=False)
            yield Static(id="status-model", markup=False)
        with Horizontal(classes="status-row"):
            yield Static(id="status-advice", markup=False)
            yield Static(id="status-details", markup=False)

    def show(self, text: StatusText) -> None:
        """Show a run."""
        self.show_state(text.state, is_wrapped=text.is_error)
        self.set_class(text.is_error, "-telling")
        _put(self.query_one("#status-model", Static), text.model)
        self.show_advice(text.advice)
        self.show_details(text.details)

    def show_notice(self, notice: Notice) -> None:
        """Show a notice in place of the run's state; the advice line takes its hint if it has one."""
        self.show_state(notice_text(notice), is_wrapped=notice.is_warning)
        self.add_class("-telling")
        if notice.hint:
            self.show_advice(Content.styled(sanitize(notice.hint), _MUTED))

    def show_advice(self, advice: Content) -> None:
        """Show what can be done, or what is to be known, below the state."""
        _put(self.query_one("#status-advice", Static), advice)

    def show_details(self, details: Content) -> None:
        """Show the figures of the model."""
        _put(self.query_one("#status-details", Static), details)

    def show_state(self, text: Content, *, is_wrapped: bool = False) -> None:
        """Show what is going on; what went wrong may take several rows (`is_wrapped`)."""
        line = self.query_one("#status-state", Static)
        line.set_class(is_wrapped, "-wrapped")
        _put(line, text)


def _put(line: Static, content: Content) -> None:
    """Change a line that says something else; an update lays out the whole screen again."""
    shown = line.content
    if not (isinstance(shown, Content) and shown.is_same(content)):
        line.update(content)
