"""The translate view: two panes, what is typed on one side streams translated into the other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.widgets import TextArea
from textual.widgets.text_area import Selection
from textual.worker import Worker

from hymt_local.errors import HymtError
from hymt_local.events import (
    Origin,
    Pivot,
    Priority,
    SamplingParams,
    Started,
    TranslationRequest,
)
from hymt_local.sanitize import sanitize
from hymt_local.segment import NO_GUIDANCE, Guidance
from hymt_local.tui.alternatives import AlternativesScreen, BackTranslationScreen
from hymt_local.tui.choices import ModelChoice
from hymt_local.tui.clipboard import CopyReport, copy_text
from hymt_local.tui.clock import Alarm
from hymt_local.tui.dialogs import PathDialog
from hymt_local.tui.direction import Direction
from hymt_local.tui.downloads import Download, download_label
from hymt_local.tui.environment import Environment
from hymt_local.tui.guiding import guidance_label, guidance_of, taken_by
from hymt_local.tui.keeper import HistoryKeeper
from hymt_local.tui.keymap import TRANSLATE_COMMANDS, bindings
from hymt_local.tui.language_bar import LanguageBar, Pressable, Side
from hymt_local.tui.live import LivePause, is_live_text
from hymt_local.tui.machine_facts import find_device, rss_bytes
from hymt_local.tui.panes import SourceArea, TargetArea
from hymt_local.tui.picker import LanguagePicked, LanguagePicker, ModelPicker
from hymt_local.tui.recorder import Recorder
from hymt_local.tui.run_state import Phase, RunState
from hymt_local.tui.runner import WORKER_GROUP, Run, Runner
from hymt_local.tui.status import ModelFacts, Notice, StatusArea, StatusText, bar_text, status_of
from hymt_local.tui.text_files import MOST_BYTES, is_for_documents, read_text_file, save_text_file
from hymt_local.tui.transcript import Passage
from hymt_local.tui.unsaved import UnsavedText
from hymt_local.tui.view_screen import ViewScreen
from hymt_local.tui.views import View
from hymt_local.tui.wording import Wording

if TYPE_CHECKING:  # sqlite3: not before the first translation
    from hymt_local.memory.history import HistoryEntry

_TICK_S = 0.5
_ENGINE_DIED = "engine_stopped"

SPACING_MARK_LANGUAGES = frozenset({"my", "km", "hi", "mr", "bn", "te", "gu"})
"""Languages whose rows are displaced where the terminal measures spacing marks in another way than we do."""


class TranslateScreen(ViewScreen):
    """Owns the languages, the model and the current run; only its handlers touch the widgets."""

    VIEW = View.TRANSLATE
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(TRANSLATE_COMMANDS)]
    AUTO_FOCUS = "#source"

    class PauseOver(Message):
        """Typing has paused for long enough."""

    class DocumentWanted(Message):
        """A file was chosen that is better translated as a document."""

        def __init__(self, path: Path) -> None:
            super().__init__()
            self.path = path

    class GuidanceWanted(Message):
        """The user wants to tell the model something beside the text."""

    def __init__(
        self, environment: Environment, *, keeper: HistoryKeeper, model: ModelChoice, direction: Direction
    ) -> None:
        super().__init__(environment)
        self._languages = {language.tag: language for language in environment.languages}
        self._model = model
        self._direction = direction
        self._recorder = Recorder(keeper)
        self._unsaved = UnsavedText(environment, self.set_timer)
        self._is_live = environment.settings.live
        self._pause = LivePause(environment.settings.live_pause_ms / 1000)
        self._alarm: Alarm | None = None
        self._runner = Runner(self, view=self, environment=environment)
        self._state = RunState()
        self._told_phase = Phase.IDLE
        """Of the run, when the status line was last written."""
        self._passages: tuple[Passage, ...] = ()
        self._rss_bytes = 0
        self._devices: Mapping[str, str] = {}
        self._told = NO_GUIDANCE
        self._banner = Content()
        """What is to be known besides the runs: an offer or a download."""
        self._is_target_current = False
        self._is_second_try = False
        self._n_warnings = 0
        self._draft = ""
        """The last translation, while it was made into the same language by the same model: the next may begin so."""

    def compose_view(self) -> ComposeResult:
        """Lay out languages and panes."""
        terminal = self.environment.terminal
        yield LanguageBar(self._languages, wording=self.wording, id="languages")
        with Container(id="panes"):
            yield SourceArea(terminal, placeholder=self._source_hint(), id="source")
            yield TargetArea(terminal, placeholder=self.wording("translate.target_hint"), id="target")

    def on_mount(self) -> None:
        """Show what is known before anything runs, and the text of a session that ended with it."""
        self._ticker = self.set_interval(_TICK_S, self._show_progress, pause=True)
        self._show_languages()
        self._show_status()
        if text := self._unsaved.recovered():
            self._rewrite_source(text)
            self.show_notice(Notice(self.wording("translate.recovered"), hint=self.wording("translate.recovered_hint")))

    @property
    def direction(self) -> Direction:
        """The languages."""
        return self._direction

    @property
    def model(self) -> ModelChoice:
        """The model that translates."""
        return self._model

    def end(self) -> None:
        """Keep what is typed for the next start."""
        self._unsaved.flush()

    def learn_devices(self, devices: Mapping[str, str]) -> None:
        """Take note of where the layers of each model go on this machine, by reference."""
        self._devices = devices
        self.query_one(StatusArea).show_details(self._status().details)

    def offer(self, model: str) -> None:
        """Say which model suits this machine, in place of the demo's banner."""
        self._banner = Content.styled(self.wording("translate.offer", model=sanitize(model)), "$text-accent")
        self._show_status()

    def show_download(self, state: Download) -> None:
        """Show how far a download is, in the same place."""
        label = sanitize(download_label(state, self.wording))
        bar = bar_text(sanitize(state.ref), fraction=state.fraction, after=label)
        self._banner = bar if state.is_running else Content()
        if self.is_mounted:
            self._show_status()

    # What the user does

    @on(TextArea.Changed, "#source")
    def _source_changed(self) -> None:
        """Leave the old translation dimmed until the new one comes; wait for a pause in typing."""
        self._mark_target(is_current=False)
        self._silence_alarm()
        self._unsaved.changed(self._source.text)
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

    @on(TextArea.SelectionChanged, "#target")
    def _target_cursor_moved(self) -> None:
        if self._target.has_focus:
            self._explain_passage(self._target.cursor_location)

    def action_translate(self) -> None:
        """Translate now, whatever the length and whether live or not."""
        self._silence_alarm()
        if not self._source.text.strip():
            self.show_notice(Notice(self.wording("translate.no_text"), is_warning=True))
            return
        self._start_run()

    def action_retry(self) -> None:
        """Translate once more; what the cache gave is asked from the model this time."""
        if not self._source.text.strip():
            self.action_translate()
            return
        self._silence_alarm()
        is_settled = self._state.phase is Phase.DONE and not self._state.n_failed
        self._start_run(is_fresh=is_settled)

    def action_cancel(self) -> None:
        """Stop the run, or the wait for one."""
        self._silence_alarm()
        self._stop_run(Phase.CANCELLED)

    def action_languages(self) -> None:
        """Choose the languages, the target first."""
        self._pick_language(Side.TARGET)

    def action_swap(self) -> None:
        """Swap languages and texts; a detected language becomes the target."""
        if not self._direction.swap():
            self.show_notice(Notice(self.wording("translate.no_language"), is_warning=True))
            return
        translation = self._target.shown
        was_current = self._is_target_current
        source = self._source.text
        self._stop_run()
        self._forget_passages()
        self._draft = ""
        self._show_languages()
        if translation:
            self._rewrite_source(translation)
        if translation and was_current:
            self._target.show(source)
            self._mark_target(is_current=True)
            self.show_notice(Notice(self.wording("translate.swapped")))
        else:
            self._mark_target(is_current=False)
            self._translate_live()

    def action_clear(self) -> None:
        """Empty both panes."""
        self._silence_alarm()
        self._stop_run()
        self._rewrite_source("")
        self._unsaved.changed("")
        self._recorder.end_text()
        self._forget()
        self._source.focus()

    def action_copy(self) -> None:
        """Copy the whole translation."""
        if not self._target.shown:
            self.show_notice(Notice(self.wording("translate.nothing_to_copy"), is_warning=True))
            return
        self.app.copy_to_clipboard(self._target.shown)

    def action_live(self) -> None:
        """Turn translating while typing on or off."""
        self._is_live = not self._is_live
        self._silence_alarm()
        self._source.placeholder = self._source_hint()
        self.show_notice(Notice(self.wording("translate.live_on" if self._is_live else "translate.live_off")))
        if not self._is_target_current:
            self._translate_live()

    def action_model(self) -> None:
        """Choose the model."""
        picker = ModelPicker(self.environment.models, wording=self.wording, current=self._model)
        self.app.push_screen(picker, self._model_picked)

    def action_guide(self) -> None:
        """Ask for style, context and terms."""
        self.post_message(self.GuidanceWanted())

    def action_next_segment(self) -> None:
        """Select the next segment on both sides, and say where its target came from and what the checks found."""
        if not self._passages:
            self.show_notice(Notice(self.wording("segment.none"), is_warning=True))
            return
        at = self._target.offset_of(self._target.selection.end)
        following = [passage for passage in self._passages if passage.target_span.start >= at]
        passage = following[0] if following else self._passages[0]
        self._source.select_span(passage.source_span)
        self._target.select_span(passage.target_span)
        self._explain(passage)

    def action_alternatives(self) -> None:
        """Ask the model for other translations, sampled."""
        if (request := self._request_of_shown()) is not None:
            self.app.push_screen(AlternativesScreen(self.environment, request), self._alternative_taken)

    def action_back(self) -> None:
        """Translate the translation back, to see what it says."""
        request, source_lang = self._request_of_shown(), self._direction.known_source
        if request is None:
            return
        if source_lang is None:
            self.show_notice(Notice(self.wording("translate.no_language"), is_warning=True))
            return
        backwards = TranslationRequest(
            text=self._target.shown,
            source_lang=request.target_lang,
            target_lang=source_lang,
            model=request.model,
            priority=Priority.INTERACTIVE,
        )
        self.app.push_screen(BackTranslationScreen(self.environment, backwards, original=request.text))

    @work(exclusive=True, group="files", exit_on_error=False)
    async def action_open(self) -> None:
        """Read a text file into the source pane; other files go to the documents."""
        dialog = PathDialog(self.wording, title=self.wording("path.open"), start="", is_new=False)
        path = await self.app.push_screen_wait(dialog)
        if path is None:
            return
        if is_for_documents(path):
            self.post_message(self.DocumentWanted(path))
            return
        try:
            text = await asyncio.to_thread(read_text_file, path)
        except HymtError as error:
            self.show_notice(Notice(error.message, hint=error.hint, is_warning=True))
            return
        self._stop_run()
        self._recorder.end_text()
        self._rewrite_source(text)
        self._unsaved.changed(text)
        self._mark_target(is_current=False)
        if not text:
            self._forget()
        self._source.focus()
        self._translate_live()
        self.show_notice(Notice(self.wording("path.opened", name=path.name, limit=MOST_BYTES // 1000)))

    @work(exclusive=True, group="files", exit_on_error=False)
    async def action_save(self) -> None:
        """Write the translation into a file."""
        if not self._target.shown:
            self.show_notice(Notice(self.wording("translate.nothing_to_save"), is_warning=True))
            return
        start = f"translation.{self._direction.effective_target}.txt"
        dialog = PathDialog(self.wording, title=self.wording("path.save"), start=start, is_new=True)
        path = await self.app.push_screen_wait(dialog)
        if path is None:
            return
        try:
            await asyncio.to_thread(save_text_file, path, self._target.shown)
        except HymtError as error:
            self.show_notice(Notice(error.message, hint=error.hint, is_warning=True))
        else:
            self.show_notice(Notice(self.wording("path.saved", file=str(path))))

    # Languages and model

    def restore(self, entry: HistoryEntry) -> None:
        """Show a past translation again, without a run."""
        self._silence_alarm()
        self._stop_run()
        self._recorder.end_text()
        known, direction = self._languages, self._direction
        direction.choose(
            source_lang=entry.source_lang if entry.source_lang in known else direction.source_lang,
            target_lang=entry.target_lang if entry.target_lang in known else direction.target_lang,
        )
        self._forget()
        self._rewrite_source(entry.source)
        self._unsaved.changed(entry.source)
        self._target.show(entry.target)
        self._mark_target(is_current=True)

    def _pick_language(self, side: Side) -> None:
        tags = {Side.SOURCE: self._direction.source_lang, Side.TARGET: self._direction.target_lang}
        picker = LanguagePicker(self.environment.languages, wording=self.wording, side=side, tags=tags)
        self.app.push_screen(picker, self._language_picked)

    def _language_picked(self, picked: LanguagePicked | None) -> None:
        if picked is None:
            return
        direction = self._direction
        if picked.side is Side.SOURCE:
            direction.choose(source_lang=picked.tag, target_lang=direction.target_lang)
        elif picked.tag is not None:
            direction.choose(source_lang=direction.source_lang, target_lang=picked.tag)
        self._show_languages()
        self._changed_by_choice()

    def use_model(self, model: ModelChoice) -> None:
        """Translate with another model from now on."""
        if model == self._model:
            return
        self._model = model
        self._show_languages()  # with what this model can be told
        self._changed_by_choice()

    def _model_picked(self, picked: ModelChoice | None) -> None:
        if picked is not None:
            self.use_model(picked)

    def settings_changed(self) -> None:
        """Follow the settings as they are now."""
        settings = self.environment.settings
        self._is_live = settings.live
        self._pause = LivePause(settings.live_pause_ms / 1000)
        self._direction.second_target = settings.second_target
        self._source.placeholder = self._source_hint()
        self._show_languages()
        if self._guidance() != self._told:
            self._changed_by_choice()
        self._show_status()

    def _changed_by_choice(self) -> None:
        """What is shown was made for another choice: translate again."""
        self._silence_alarm()
        self._stop_run()
        self._state = RunState()
        self._draft = ""
        self._mark_target(is_current=False)
        self._show_status()
        self._translate_live()

    # Live translation

    def _await_pause(self) -> None:
        if is_live_text(self._source.text):
            self._alarm = self.environment.clock.call_later(self._pause.seconds, self._announce_pause)
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

    def _guidance(self) -> Guidance:
        """Return what the model in use is told: what the user says, as far as it was trained to take that."""
        said = guidance_of(self.environment.settings)
        return taken_by(self.environment.spec_of(self._model.ref), said) if said.kinds else said

    def _request(self, *, is_fresh: bool = False) -> TranslationRequest:
        settings = self.environment.settings
        sampling = SamplingParams(temperature=settings.temperature, seed=settings.seed)
        self._told = self._guidance()
        return TranslationRequest(
            text=self._source.text,
            target_lang=self._direction.effective_target,
            source_lang=self._direction.source_lang,
            model=self._model.ref,
            priority=Priority.INTERACTIVE,
            sampling=sampling if settings.temperature else None,
            use_cache=settings.cache and not is_fresh,
            draft=self._draft or None,
            pivot=Pivot.AUTO if self._told.terms and settings.pivot == "zh" else Pivot(settings.pivot),
            guidance=self._told,
        )

    def _request_of_shown(self) -> TranslationRequest | None:
        """Return the request behind the translation that is shown, with a known source language if there is one."""
        if not self._target.shown or not self._source.text.strip() or not self._is_target_current:
            self.show_notice(Notice(self.wording("translate.first"), is_warning=True))
            return None
        return TranslationRequest(
            text=self._source.text,
            target_lang=self._direction.effective_target,
            source_lang=self._direction.known_source,
            model=self._model.ref,
            priority=Priority.INTERACTIVE,
            use_cache=False,
            guidance=self._guidance(),
        )

    def _start_run(self, *, is_fresh: bool = False, is_second_try: bool = False) -> None:
        self._is_second_try = is_second_try
        self._runner.start(self._request(is_fresh=is_fresh))
        self._ticker.resume()
        self._show_status()

    def _stop_run(self, phase: Phase = Phase.IDLE) -> None:
        """Cancel the run, if any; what it has written stays."""
        run = self._runner.stop()
        if run is not None:
            self._ticker.pause()
            self._state = run.state.stopped(phase)
            self._show_status()

    def run_started(self, event: Started) -> None:
        """Show the language that was detected; the second target may have to stand in."""
        if event.detected_confidence is not None:
            has_turned = self._direction.learn(event.source_lang, event.detected_confidence)
            self._show_languages()
            if has_turned:
                self._draft = ""
                self._start_run()

    def run_grew(self, run: Run) -> None:
        """Show the text so far; until there is any, the older translation stays, dimmed."""
        if text := run.transcript.text:
            self._target.show(text)
            self._mark_target(is_current=run.request.text == self._source.text)
            self._forget_passages()
        if run.state.phase is not self._told_phase or run.state.phase is not Phase.WRITING:
            self._show_progress()  # while text streams the ticker does: twice a second is as fast as anyone reads

    def run_ended(self, run: Run) -> None:
        """Show the authoritative text, or why there is none."""
        self._state = run.state
        self._ticker.pause()
        transcript = run.transcript
        if run.state.phase is Phase.DONE:
            self._target.show(
                transcript.text, failed_rows=transcript.failed_rows(), doubtful_rows=transcript.doubtful_rows()
            )
            self._mark_target(is_current=run.request.text == self._source.text)
            self._passages = tuple(transcript.passages())
            self._draft = transcript.text
            if run.state.origin is Origin.MODEL:
                self._pause.observe(run.state.elapsed_s)
                self._look_at_memory()
            self._record(run)
            self._pass_on_warnings()
        elif self._must_try_again(run.state):
            self._start_run(is_second_try=True)
            self.show_notice(Notice(self.wording("translate.engine_restarted"), is_warning=True))
            return
        elif run.state.phase is Phase.FAILED:
            # The older translation belongs to another text: beside the error it would look like the answer.
            self._target.show(transcript.text)
            self._mark_target(is_current=False)
        self._show_status()

    def _pass_on_warnings(self) -> None:
        """Say what went wrong beside the translation, such as a cache that cannot be written; each once."""
        warnings = self.environment.service.warnings
        for text in warnings[self._n_warnings :]:
            self.app.call_later(self.show_notice, Notice(text, is_warning=True))
        self._n_warnings = len(warnings)

    def _must_try_again(self, state: RunState) -> bool:
        """An engine that has died is started again by the next request: make it at once, but only once."""
        is_dead = state.phase is Phase.FAILED and state.error is not None and state.error.code == _ENGINE_DIED
        return is_dead and not self._is_second_try

    @work(group="record", exit_on_error=False)
    async def _record(self, run: Run) -> None:
        """Write the translation into the history, if it is one."""
        finished, settings = run.finished, self.environment.settings
        if finished is None or not settings.history or finished.origin is Origin.SOURCE or finished.failed:
            return
        try:
            await self._recorder.record(run.request, finished)
        except HymtError as error:
            self.show_notice(Notice(error.message, hint=error.hint, is_warning=True))

    @work(exclusive=True, group="memory", exit_on_error=False)
    async def _look_at_memory(self) -> None:
        """Look at what the model takes now that it is loaded, once a run."""
        application, ref, loaded = self.environment.application, self._model.ref, self._state.loaded
        self._rss_bytes = await asyncio.to_thread(rss_bytes, application)
        if loaded is not None and loaded.n_gpu_layers and ref not in self._devices:
            with suppress(HymtError):  # how much is on the GPU is known without it
                self._devices = {**self._devices, ref: await asyncio.to_thread(find_device, application, ref)}
        self.query_one(StatusArea).show_details(self._status().details)  # a message beside them stays

    def _alternative_taken(self, text: str | None) -> None:
        if text is None:
            return
        self._target.show(text)
        self._forget_passages()
        self._correct(text)
        self.show_notice(Notice(self.wording("alternatives.taken")))

    @work(group="record", exit_on_error=False)
    async def _correct(self, text: str) -> None:
        try:
            await self._recorder.correct(text)
        except HymtError as error:
            self.show_notice(Notice(error.message, hint=error.hint, is_warning=True))

    def _forget(self) -> None:
        """Nothing is left of the text: neither its translation nor its language."""
        self._target.show("")
        self._direction.forget()
        self._draft = ""
        self._state = RunState()
        self._forget_passages()
        self._show_languages()
        self._show_status()

    def _forget_passages(self) -> None:
        self._passages = ()

    def worker_failed(self, worker: Worker[object]) -> None:
        """Stop the run that a fault has ended."""
        if worker.group == WORKER_GROUP:
            self._stop_run()

    # Segments

    def _explain_passage(self, location: tuple[int, int]) -> None:
        at = self._target.offset_of(location)
        for passage in self._passages:
            if passage.target_span.start <= at <= passage.target_span.end:
                self._explain(passage)
                return

    def _explain(self, passage: Passage) -> None:
        self.query_one(StatusArea).show_advice(passage_text(passage, self._passages, self.wording))

    # Copying

    @work(exclusive=True, group="copy", exit_on_error=False)
    async def copy_elsewhere(self, text: str) -> None:
        """Copy with the system's tool and to the file, after the terminal's clipboard was written; say what worked."""
        environment = self.environment
        report = await copy_text(text, copy_file=environment.copy_file, search_path=environment.search_path)
        screen = self.app.screen
        shown_on = screen if isinstance(screen, ViewScreen) else self
        shown_on.show_notice(copied_notice(report, self.wording))

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
            self._source.selection = Selection.cursor(self._source.document.end)

    def _mark_target(self, *, is_current: bool) -> None:
        """Dim what does not belong to the text in the source pane."""
        self._is_target_current = is_current
        self._target.set_class(not is_current, "-stale")

    def _show_languages(self) -> None:
        direction, bar = self._direction, self.query_one(LanguageBar)
        bar.show_source(direction.source_lang, detected=direction.detected, confidence=direction.confidence)
        told = guidance_label(self._guidance(), self.wording)
        bar.show_target(direction.effective_target, is_second=direction.is_flipped, guidance=told)
        layout = self.environment.settings.layout
        self.set_class(layout == "stack" or (layout == "auto" and self._must_stack()), "-stack")
        self.set_class(layout == "side", "-side")
        self._target.follow_language(direction.effective_target)

    def _must_stack(self) -> bool:
        """A row that is wider than we think pushes the pane beside it; above each other nothing can be pushed."""
        shown = {self._direction.known_source, self._direction.effective_target}
        return self.environment.terminal.cell_widths is None and not SPACING_MARK_LANGUAGES.isdisjoint(shown)

    def _show_status(self) -> None:
        self._notice_until = 0.0
        self.query_one(StatusArea).show(self._status())

    def _show_progress(self) -> None:
        """Show how far the run is, unless a message was shown a moment ago."""
        if self.environment.clock.now() >= self._notice_until:
            self._show_status()
        else:
            self.query_one(StatusArea).show_details(self._status().details)

    def _status(self) -> StatusText:
        run = self._runner.run
        self._told_phase = run.state.phase if run else self._state.phase
        return status_of(
            run.state if run else self._state,
            elapsed_s=self._runner.elapsed_s,
            model=ModelFacts(
                self._model.ref,
                self._model.kind,
                device=self._devices.get(self._model.ref, ""),
                rss_bytes=self._rss_bytes,
            ),
            idle=self._idle_text(),
            banner=self._banner,
            wording=self.wording,
        )

    def _idle_text(self) -> str:
        if not self._is_live:
            return self.wording("translate.ready_asked")
        if len(self._source.text) > 0 and not is_live_text(self._source.text) and len(self._source.text) > 2:
            return self.wording("translate.ready_long")
        return self.wording("translate.ready_live")

    def _source_hint(self) -> str:
        return self.wording("translate.source_hint_live" if self._is_live else "translate.source_hint_asked")


def passage_text(passage: Passage, passages: tuple[Passage, ...], wording: Wording) -> Content:
    """Return where a segment's target came from and what the checks found, in one line."""
    done = passage.done
    number = wording("segment.number", number=passages.index(passage) + 1, total=len(passages))
    origin = wording("segment.failed") if done.error else wording(f"origin.{done.origin.value}")
    messages = [done.error.message] if done.error else [finding.message for finding in done.findings]
    if not messages:
        return Content.styled(f"{number} · {origin}", "$foreground-muted")
    return Content.assemble(
        (f"{number} · {origin} · ", "$foreground-muted"), (sanitize("; ".join(messages)), "$text-warning")
    )


def copied_notice(report: CopyReport, wording: Wording) -> Notice:
    """Say what worked, so that a paste that brings nothing is no riddle."""
    how = wording("copied.tool", tool=report.tool) if report.tool else wording("copied.terminal")
    where = wording("copied.file", file=report.file) if report.file else wording("copied.no_file", error=report.error)
    return Notice(how, hint=sanitize(where))
