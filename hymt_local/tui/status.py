"""The status area: one line of state, one of advice. A pure function makes its text."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from hymt_local.events import Origin
from hymt_local.language import get_language
from hymt_local.sanitize import sanitize
from hymt_local.tui.run_state import Phase, RunState

DEMO_BANNER = "Demo phrasebook: a real model translates anything: hymt models list"

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
class StatusText:
    """What the status area shows."""

    state: Content
    """One line, cut at the edge unless it says what went wrong."""
    advice: Content
    model: Content
    is_error: bool = False


def status_of(state: RunState, *, elapsed_s: float, model: str, model_kind: str, idle: str) -> StatusText:
    """Return the text for the current run.

    Args:
        state: The run as of its latest event.
        elapsed_s: Seconds since the run was submitted; shown while it is active.
        model: The reference of the model that is chosen.
        model_kind: Its kind; `demo` shows the banner.
        idle: What to say when nothing has run yet.
    """
    return StatusText(
        state=_state_text(state, elapsed_s=elapsed_s, idle=idle),
        advice=_advice_text(state, is_demo=(state.model_kind or model_kind) == "demo"),
        is_error=state.phase is Phase.FAILED,
        model=Content.styled(_model_label(state.model or model, state.model_kind or model_kind), _MUTED),
    )


def _model_label(model: str, kind: str) -> str:
    return sanitize(model if kind in {"translation", "", model} else f"{model} · {kind}")


def notice_text(notice: Notice) -> Content:
    """Return a notice as the state line."""
    return Content.styled(sanitize(notice.text), "$text-warning" if notice.is_warning else "$foreground")


def _state_text(state: RunState, *, elapsed_s: float, idle: str) -> Content:
    match state.phase:
        case Phase.IDLE:
            return Content.styled(idle, _MUTED)
        case Phase.WAITING:
            return _joined("Starting", _seconds(elapsed_s))
        case Phase.LOADING:
            percent = f"{state.loaded_fraction:.0%}"
            return _with_bar(f"Loading {sanitize(state.model)}", fraction=state.loaded_fraction, after=percent)
        case Phase.READING:
            fraction = state.prompt_done / state.prompt_total if state.prompt_total else 0.0
            count = f"{state.prompt_done} of {state.prompt_total} tokens"
            return _with_bar("Reading", fraction=fraction, after=count)
        case Phase.WRITING:
            return _joined("Translating", _segments(state), _speed(state), _seconds(elapsed_s), "Esc cancels")
        case Phase.DONE:
            return _done_text(state)
        case Phase.FAILED:
            return Content.styled(sanitize(state.error.message if state.error else "failed"), "$text-error")
        case Phase.CANCELLED:
            return Content.styled("Cancelled", _MUTED)


def _done_text(state: RunState) -> Content:
    if state.origin is Origin.CACHE:
        return Content.assemble(("From the cache", "$text-success"), (_SEPARATOR + _seconds(state.elapsed_s), _MUTED))
    if state.origin is Origin.SOURCE and not state.n_failed:
        return Content.styled(_untouched_text(state), _MUTED)
    cached = f"{state.n_cached} of {state.n_segments} from the cache" if state.n_cached else ""
    tokens = f"{state.usage.output_tokens} tokens" if state.usage.output_tokens else ""
    return _joined(f"Translated in {_seconds(state.elapsed_s)}", tokens, _speed(state), cached)


def _untouched_text(state: RunState) -> str:
    if state.source_lang == state.target_lang:
        return f"The text is in {get_language(state.target_lang).english} already: F2 chooses another language"
    return "There are no words to translate"


def _advice_text(state: RunState, *, is_demo: bool) -> Content:
    if state.phase is Phase.DONE and state.n_failed and state.error:
        count = f"{state.n_failed} of {state.n_segments} segments stay source text: "
        return Content.styled(count + sanitize(state.error.message), "$text-warning")
    if state.phase is Phase.FAILED and state.error and state.error.hint:
        return Content.styled(sanitize(state.error.hint), _MUTED)
    return Content.styled(DEMO_BANNER, f"{_MUTED} italic") if is_demo else Content()


def _joined(first: str, *rest: str) -> Content:
    after = "".join(_SEPARATOR + part for part in rest if part)
    return Content.assemble((first, "$foreground"), (after, _MUTED))


def _with_bar(before: str, *, fraction: float, after: str) -> Content:
    filled = round(min(max(fraction, 0.0), 1.0) * _BAR_CELLS)
    return Content.assemble(
        (before + "  ", "$foreground"),
        ("━" * filled, "$primary"),
        ("─" * (_BAR_CELLS - filled), _MUTED),  # thinner too, for terminals without colours
        ("  " + after, _MUTED),
    )


def _segments(state: RunState) -> str:
    return f"{state.n_settled} of {state.n_segments} segments" if state.n_segments > 1 else ""


def _speed(state: RunState) -> str:
    return f"{state.tokens_per_s:.0f} tokens/s" if state.tokens_per_s else ""


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 0.1 else f"{seconds:.1f} s"


class StatusArea(Vertical):
    """The lines between the panes and the footer. They keep their height, so that no message moves the text."""

    def compose(self) -> ComposeResult:
        """Lay out the state and the model beside it, the advice below."""
        with Horizontal(id="status-line"):
            yield Static(id="status-state", markup=False)
            yield Static(id="status-model", markup=False)
        yield Static(id="status-advice", markup=False)

    def show(self, text: StatusText) -> None:
        """Show a run."""
        self._show_state(text.state, is_wrapped=text.is_error)
        self.query_one("#status-model", Static).update(text.model)
        self.query_one("#status-advice", Static).update(text.advice)

    def show_notice(self, notice: Notice) -> None:
        """Show a notice in place of the run's state; the advice line takes its hint if it has one."""
        self._show_state(notice_text(notice), is_wrapped=notice.is_warning)
        if notice.hint:
            self.query_one("#status-advice", Static).update(Content.styled(sanitize(notice.hint), _MUTED))

    def _show_state(self, text: Content, *, is_wrapped: bool) -> None:
        line = self.query_one("#status-state", Static)
        line.set_class(is_wrapped, "-wrapped")
        line.update(text)
