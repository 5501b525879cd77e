"""The translate view: two panes, what is typed on one side streams translated into the other."""

from __future__ import annotations

from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, TextArea
from textual.worker import Worker, WorkerState

from hymt_local.events import (
    Origin,
    Priority,
    SamplingParams,
    Started,
    TranslationRequest,
)
from hymt_local.sanitize import sanitize
from hymt_local.tui.choices import ModelChoice
from hymt_local.tui.clipboard import CopyReport, copy_text
from hymt_local.tui.clock import Alarm
from hymt_local.tui.environment import Environment
from hymt_local.tui.keymap import TRANSLATE_COMMANDS, bindings
from hymt_local.tui.language_bar import LanguageBar, Pressable, Side
from hymt_local.tui.live import LivePause, is_live_text
from hymt_local.tui.panes import SourceArea, TargetArea
from hymt_local.tui.picker import LanguagePicked, LanguagePicker, ModelPicker
from hymt_local.tui.run_state import Phase, RunState
from hymt_local.tui.runner import WORKER_GROUP, Run, Runner
from hymt_local.tui.status import Notice, StatusArea, status_of

_TICK_S = 0.5

SPACING_MARK_LANGUAGES = frozenset({"my", "km", "hi", "mr", "bn", "te", "gu"})
"""Languages whose rows are displaced where the terminal measures spacing marks in another way than we do."""


class TranslateScreen(Screen[None]):
    """Owns the languages, the model and the current run; only its handlers touch the widgets."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(TRANSLATE_COMMANDS)]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012
    AUTO_FOCUS = "#source"

    class PauseOver(Message):
        """Typing has paused for long enough."""

    def __init__(
        self, environment: Environment, *, model: ModelChoice, source_lang: str | None, target_lang: str
    ) -> None:
        super().__init__()
        self._environment = environment
        self._languages = {language.tag: language for language in environment.languages}
        self._model = model
        self._source_lang = source_lang
        self._target_lang = target_lang
        self._detected: str | None = None
        self._confidence: float | None = None
        self._is_live = environment.settings.live
        self._pause = LivePause(environment.settings.live_pause_ms / 1000)
        self._alarm: Alarm | None = None
        self._runner = Runner(self, view=self, environment=environment)
        self._state = RunState()
        self._is_target_current = False

    def compose(self) -> ComposeResult:
        """Lay out languages, panes, status and keys."""
        terminal = self._environment.terminal
        yield LanguageBar(self._languages, id="languages")
        with Container(id="panes"):
            yield SourceArea(terminal, placeholder=self._source_hint(), id="source")
            yield TargetArea(terminal, placeholder="The translation appears here", id="target")
        yield StatusArea(id="status")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Show what is known before anything runs."""
        self._ticker = self.set_interval(_TICK_S, self._show_status, pause=True)
        self._show_languages()
        self._show_status()

    # What the user does

    @on(TextArea.Changed, "#source")
    def _source_changed(self) -> None:
        """Leave the old translation dimmed until the new one comes; wait for a pause in typing."""
        self._mark_target(is_current=False)
        self._silence_alarm()
        if not self._source.text:
            self._stop_run()
            self._forget()
        elif self._is_live:
            self._stop_run()
            self._await_pause()

    @on(SourceArea.Pasted)
    def _source_pasted(self) -> None:
        self._translate_live()

    @on(PauseOver)
    def _pause_over(self) -> None:
        self._translate_live()

    @on(Pressable.Pressed, "#source-language")
    def _source_language_pressed(self) -> None:
        self._pick_language(Side.SOURCE)

    @on(Pressable.Pressed, "#target-language")
    def _target_language_pressed(self) -> None:
        self._pick_language(Side.TARGET)

    @on(Pressable.Pressed, "#swap")
    def _swap_pressed(self) -> None:
        self.action_swap()

    def action_translate(self) -> None:
        """Translate now, whatever the length and whether live or not."""
        self._silence_alarm()
        if not self._source.text.strip():
            self.show_notice(Notice("There is no text yet: type or paste it", is_warning=True))
            return
        self._start_run()

    def action_cancel(self) -> None:
        """Stop the run, or the wait for one."""
        self._silence_alarm()
        self._stop_run(Phase.CANCELLED)

    def action_languages(self) -> None:
        """Choose the languages, the target first."""
        self._pick_language(Side.TARGET)

    def action_swap(self) -> None:
        """Swap languages and texts; a detected language becomes the target."""
        source_lang = self._source_lang or self._detected
        if source_lang is None:
            self.show_notice(
                Notice("No language detected yet: translate first, or choose one with F2", is_warning=True)
            )
            return
        translation = self._target.shown
        was_current = self._is_target_current
        source = self._source.text
        self._stop_run()
        self._source_lang, self._target_lang = self._target_lang, source_lang
        self._show_languages()
        if translation:
            self._rewrite_source(translation)
        if translation and was_current:
            self._target.show(source)
            self._mark_target(is_current=True)
            self.show_notice(Notice("Swapped"))
        else:
            self._mark_target(is_current=False)
            self._translate_live()

    def action_clear(self) -> None:
        """Empty both panes."""
        self._silence_alarm()
        self._stop_run()
        self._rewrite_source("")
        self._forget()
        self._source.focus()

    def action_copy(self) -> None:
        """Copy the whole translation."""
        if not self._target.shown:
            self.show_notice(Notice("There is no translation to copy yet", is_warning=True))
            return
        self.app.copy_to_clipboard(self._target.shown)

    def action_live(self) -> None:
        """Turn translating while typing on or off."""
        self._is_live = not self._is_live
        self._silence_alarm()
        self._source.placeholder = self._source_hint()
        self.show_notice(Notice("Translates while you type" if self._is_live else "Translates when asked: F5"))
        if not self._is_target_current:
            self._translate_live()

    def action_model(self) -> None:
        """Choose the model."""
        self.app.push_screen(ModelPicker(self._environment.models, current=self._model), self._model_picked)

    # Languages and model

    def _pick_language(self, side: Side) -> None:
        tags = {Side.SOURCE: self._source_lang, Side.TARGET: self._target_lang}
        self.app.push_screen(LanguagePicker(self._environment.languages, side=side, tags=tags), self._language_picked)

    def _language_picked(self, picked: LanguagePicked | None) -> None:
        if picked is None:
            return
        if picked.side is Side.SOURCE:
            self._source_lang = picked.tag
        elif picked.tag is not None:
            self._target_lang = picked.tag
        self._show_languages()
        self._changed_by_choice()

    def _model_picked(self, picked: ModelChoice | None) -> None:
        if picked is not None:
            self._model = picked
            self._changed_by_choice()

    def _changed_by_choice(self) -> None:
        """What is shown was made for another choice: translate again."""
        self._silence_alarm()
        self._stop_run()
        self._state = RunState()
        self._mark_target(is_current=False)
        self._show_status()
        self._translate_live()

    # Live translation

    def _await_pause(self) -> None:
        if is_live_text(self._source.text):
            self._alarm = self._environment.clock.call_later(self._pause.seconds, self._announce_pause)
        else:
            self._show_status()

    def _announce_pause(self) -> None:
        """Post a message: the alarm rings outside of the screen's own order of events."""
        self.post_message(self.PauseOver())

    def _silence_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _translate_live(self) -> None:
        self._silence_alarm()
        if self._is_live and is_live_text(self._source.text):
            self._start_run()

    # The run

    def _start_run(self) -> None:
        settings = self._environment.settings
        sampling = SamplingParams(temperature=settings.temperature, seed=settings.seed)
        self._runner.start(
            TranslationRequest(
                text=self._source.text,
                target_lang=self._target_lang,
                source_lang=self._source_lang,
                model=self._model.ref,
                priority=Priority.INTERACTIVE,
                sampling=sampling if settings.temperature else None,
                use_cache=settings.cache,
            )
        )
        self._ticker.resume()
        self._show_status()

    def _stop_run(self, phase: Phase = Phase.IDLE) -> None:
        """Cancel the run, if any; what it has written stays."""
        run = self._runner.stop()
        if run is not None:
            self._ticker.pause()
            self._state = RunState(phase=phase, model=run.state.model, model_kind=run.state.model_kind)
            self._show_status()

    def run_started(self, event: Started) -> None:
        """Show the language that was detected."""
        if event.detected_confidence is not None:
            self._detected, self._confidence = event.source_lang, event.detected_confidence
            self._show_languages()

    def run_grew(self, run: Run) -> None:
        """Show the text so far; until there is any, the older translation stays, dimmed."""
        if text := run.transcript.text:
            self._target.show(text)
            self._mark_target(is_current=run.request.text == self._source.text)
        self._show_status()

    def run_ended(self, run: Run) -> None:
        """Show the authoritative text, or why there is none."""
        self._state = run.state
        self._ticker.pause()
        if run.state.phase is Phase.DONE:
            self._target.show(run.transcript.text, failed_rows=run.transcript.failed_rows())
            self._mark_target(is_current=run.request.text == self._source.text)
            if run.state.origin is Origin.MODEL:
                self._pause.observe(run.state.elapsed_s)
        elif run.state.phase is Phase.FAILED:
            # The older translation belongs to another text: beside the error it would look like the answer.
            self._target.show(run.transcript.text)
            self._mark_target(is_current=False)
        self._show_status()

    def _forget(self) -> None:
        """Nothing is left of the text: neither its translation nor its language."""
        self._target.show("")
        self._detected = self._confidence = None
        self._state = RunState()
        self._show_languages()
        self._show_status()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Show a fault of the program itself like any other error: the text must survive it."""
        if event.state is WorkerState.ERROR:
            if event.worker.group == WORKER_GROUP:
                self._stop_run()
            fault = f"internal error: {event.worker.error!r}"
            self.show_notice(Notice(fault, hint="your text is untouched; please report this", is_warning=True))

    # Copying

    @work(exclusive=True, group="copy", exit_on_error=False)
    async def copy_elsewhere(self, text: str) -> None:
        """Copy with the system's tool and to the file, after the terminal's clipboard was written; say what worked."""
        environment = self._environment
        report = await copy_text(text, copy_file=environment.copy_file, search_path=environment.search_path)
        self.show_notice(copied_notice(report))

    # What is shown

    @property
    def _source(self) -> SourceArea:
        return self.query_one("#source", SourceArea)

    @property
    def _target(self) -> TargetArea:
        return self.query_one("#target", TargetArea)

    def _rewrite_source(self, text: str) -> None:
        """Replace the source without it counting as typing."""
        self._silence_alarm()
        with self._source.prevent(TextArea.Changed):
            self._source.rewrite(text)

    def _mark_target(self, *, is_current: bool) -> None:
        """Dim what does not belong to the text in the source pane."""
        self._is_target_current = is_current
        self._target.set_class(not is_current, "-stale")

    def _show_languages(self) -> None:
        bar = self.query_one(LanguageBar)
        bar.show_source(self._source_lang, detected=self._detected, confidence=self._confidence)
        bar.show_target(self._target_lang)
        self.set_class(self._must_stack(), "-stack")

    def _must_stack(self) -> bool:
        """A row that is wider than we think pushes the pane beside it; above each other nothing can be pushed."""
        shown = {self._source_lang or self._detected, self._target_lang}
        return self._environment.terminal.cell_widths is None and not SPACING_MARK_LANGUAGES.isdisjoint(shown)

    def _show_status(self) -> None:
        run = self._runner.run
        text = status_of(
            run.state if run else self._state,
            elapsed_s=self._runner.elapsed_s,
            model=self._model.ref,
            model_kind=self._model.kind,
            idle=self._idle_text(),
        )
        self.query_one(StatusArea).show(text)

    def show_notice(self, notice: Notice) -> None:
        """Show a message in place of the state line, until the next change of state."""
        self.query_one(StatusArea).show_notice(notice)

    def _idle_text(self) -> str:
        if not self._is_live:
            return "Ready: F5 translates"
        if len(self._source.text) > 0 and not is_live_text(self._source.text) and len(self._source.text) > 2:
            return "Long text: F5 translates"
        return "Ready: translates while you type"

    def _source_hint(self) -> str:
        after = "The translation follows as you type." if self._is_live else "F5 translates."
        return f"Type or paste text\n\n{after}\nF2 chooses the languages, F1 shows all keys."


def copied_notice(report: CopyReport) -> Notice:
    """Say what worked, so that a paste that brings nothing is no riddle."""
    how = f"Copied with {report.tool}" if report.tool else "Sent to the terminal's clipboard (OSC 52)"
    where = f"also in {report.file}" if report.file else f"no file: {report.error}"
    return Notice(how, hint=sanitize(where))
