"""The Textual application: what all views share. Everything it uses is passed in."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import work
from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.screen import Screen
from textual.theme import Theme

from hymt_local.config import write_setting
from hymt_local.errors import HymtError
from hymt_local.sanitize import sanitize
from hymt_local.tui.choices import ModelChoice
from hymt_local.tui.direction import Direction
from hymt_local.tui.document_queue import DocumentQueue, QueuedDocument
from hymt_local.tui.downloads import Download, Downloads
from hymt_local.tui.environment import Environment
from hymt_local.tui.help_screen import HelpScreen
from hymt_local.tui.keeper import HistoryKeeper
from hymt_local.tui.keymap import APP_COMMANDS, UNUSED_COPY, VIEW_COMMANDS, Command, bindings, shown_key
from hymt_local.tui.languages import default_target
from hymt_local.tui.palette import Palette
from hymt_local.tui.status import Notice
from hymt_local.tui.translate_screen import TranslateScreen
from hymt_local.tui.view_screen import ViewScreen
from hymt_local.tui.views import View

if TYPE_CHECKING:
    from hymt_local.tui.history_screen import HistoryScreen
    from hymt_local.tui.models_screen import ModelsScreen

    ModelChosen = ModelsScreen.Chosen
    ModelsLooked = ModelsScreen.Looked
    HistoryRestored = HistoryScreen.Restored

FALLBACK_THEME = "textual-dark"
NO_COLOUR_THEME = "ansi-dark"

_DEFAULT_MODE = "_default"
"""Textual's name for the mode of the first screen, which is the translate view."""
_KEEP_ORDER, _LET_ORDER = "\x1b[8l", "\x1b[8h"
"""Bidirectional support mode (BDSM, ECMA-48): explicit while this program orders rows itself, implicit afterwards."""
_GRACE_S = 2.0
"""A terminal that is gone may block what is still written to it: then the process ends without asking."""


class HymtApp(App[None], inherit_bindings=False):
    """The terminal UI.

    Args:
        environment: What all views are built from. No model is touched before the first translation.
        current: Reference of the model to start with.
        problems: What could not be done as the user's files say; shown first.
    """

    TITLE = "hymt"
    CSS_PATH = "hymt.tcss"
    ENABLE_COMMAND_PALETTE = True
    VERTICAL_BREAKPOINTS = ViewScreen.VERTICAL_BREAKPOINTS  # for the dialogs
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(APP_COMMANDS), UNUSED_COPY]

    def __init__(self, environment: Environment, *, current: str, problems: Sequence[HymtError] = ()) -> None:
        super().__init__(driver_class=_driver_class())
        self.environment = environment
        self._problems = problems
        self.keeper = HistoryKeeper(environment.application.paths.database)
        self.downloads = Downloads(environment, self._download_changed)
        self.documents = DocumentQueue(environment, self._document_changed)
        settings = environment.settings
        model = next((model for model in environment.models if model.ref == current), ModelChoice(current, current, ""))
        direction = Direction(
            source_lang=settings.source_lang,
            target_lang=settings.target_lang or default_target(environment.environ, environment.languages),
            second_target=settings.second_target,
        )
        self.translate_screen = TranslateScreen(environment, keeper=self.keeper, model=model, direction=direction)
        for view in View:
            if view is not View.TRANSLATE:
                self.add_mode(view, partial(self._build, view))
        self.set_keymap(dict(environment.keymap.own))
        self._apply_theme()

    def get_default_screen(self) -> Screen[None]:
        """Start with the translate view, so that the first paint is already the program."""
        return self.translate_screen

    def on_mount(self) -> None:
        """Answer signals by leaving in order."""
        if self.environment.terminal.rtl == "visual":
            self._write_control(_KEEP_ORDER)
        self.theme_changed_signal.subscribe(self, self._keep_theme)
        if not self.is_headless and sys.platform != "win32":
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, partial(self._leave_by_signal, number))

    def on_ready(self) -> None:
        """Report what could not be done as the settings and files say."""
        gc.enable()
        theme = self.environment.settings.theme
        if theme not in self.available_themes:
            known = ", ".join(sorted(self.available_themes))
            text = self.environment.wording("theme.unknown", theme=repr(theme))
            self.show_notice(Notice(text, hint=self.environment.wording("theme.known", themes=known), is_warning=True))
        for problem in self._problems:
            self.show_notice(Notice(problem.message, hint=problem.hint, is_warning=True))
        if self.translate_screen.model.kind == "demo":
            self._look_for_a_model()

    async def on_unmount(self) -> None:
        """Keep the text, and finish writing the history."""
        if self.environment.terminal.rtl == "visual":
            self._write_control(_LET_ORDER)
        self.downloads.stop_all()
        self.documents.stop()
        self.translate_screen.end()
        await asyncio.to_thread(self.keeper.close)

    def show_notice(self, notice: Notice) -> None:
        """Show a message on whichever view is in front."""
        screens = [screen for screen in reversed(self.screen_stack) if isinstance(screen, ViewScreen)]
        (screens[0] if screens else self.translate_screen).show_notice(notice)

    def copy_to_clipboard(self, text: str) -> None:
        """Copy by every way there is: the terminal's clipboard now, tool and file in the background."""
        safe = sanitize(text)
        super().copy_to_clipboard(safe)
        self._copy_through_tmux(safe)
        self.translate_screen.copy_elsewhere(safe)

    def _copy_through_tmux(self, text: str) -> None:
        """Send the same once more wrapped for the terminal around tmux, which drops the plain one by default."""
        if "TMUX" not in self.environment.environ:
            return
        from base64 import b64encode

        inner = f"\x1b]52;c;{b64encode(text.encode()).decode()}\x07".replace("\x1b", "\x1b\x1b")
        self._write_control(f"\x1bPtmux;{inner}\x1b\\")

    def _write_control(self, sequence: str) -> None:
        """Send the terminal a command of our own."""
        if self._driver is not None:
            self._driver.write(sequence)

    # Views

    def _build(self, view: View) -> Screen[None]:
        """Return a new screen of a view; its module is loaded only now."""
        environment = self.environment
        match view:
            case View.HISTORY:
                from hymt_local.tui.history_screen import HistoryScreen

                return HistoryScreen(environment, keeper=self.keeper)
            case View.MODELS:
                from hymt_local.tui.models_screen import ModelsScreen

                return ModelsScreen(environment, downloads=self.downloads, current=self.translate_screen.model.ref)
            case View.SETTINGS:
                from hymt_local.tui.settings_screen import SettingsScreen

                return SettingsScreen(environment, themes=sorted(self.available_themes))
            case _:
                from hymt_local.tui.documents_screen import DocumentsScreen

                translate = self.translate_screen
                return DocumentsScreen(
                    environment, queue=self.documents, direction=translate.direction, model=translate.model.ref
                )

    @property
    def view(self) -> View:
        """The view in front."""
        return View.TRANSLATE if self.current_mode == _DEFAULT_MODE else View(self.current_mode)

    async def action_view(self, view: str) -> None:
        """Bring a view to the front."""
        if view == self.view:
            return
        if view == View.TRANSLATE:
            self._bring_back_translate()
        else:
            await self.switch_mode(view)

    async def action_next_view(self, step: int) -> None:
        """Bring the view beside this one to the front."""
        views = list(View)
        await self.action_view(views[(views.index(self.view) + step) % len(views)])

    def _bring_back_translate(self) -> None:
        """Return to the first mode, which Textual keeps under a name that `switch_mode` does not take."""
        self._modes.setdefault(_DEFAULT_MODE, lambda: self.translate_screen)
        self.switch_mode(_DEFAULT_MODE)

    async def on_history_screen_restored(self, message: HistoryRestored) -> None:
        """Show a past translation in the translate view."""
        await self.action_view(View.TRANSLATE)
        self.translate_screen.restore(message.entry)

    async def on_translate_screen_document_wanted(self, message: TranslateScreen.DocumentWanted) -> None:
        """Put a file into the queue of documents."""
        await self.open_document(message.path)

    async def open_document(self, path: Path) -> None:
        """Show the documents, this one among them."""
        from hymt_local.tui.documents_screen import DocumentsScreen

        await self.action_view(View.DOCUMENTS)
        if isinstance(self.screen, DocumentsScreen):
            self.screen.add(path)

    def _document_changed(self, document: QueuedDocument) -> None:
        for screen in self._screens_of(View.DOCUMENTS):
            screen.document_changed(document)

    # Settings

    def on_settings_screen_changed(self) -> None:
        """Follow settings that were written."""
        self._apply_theme()
        self.translate_screen.settings_changed()

    def on_translate_screen_guidance_wanted(self) -> None:
        """Ask what the model is to be told beside the text."""
        self._guide()

    def on_settings_screen_guidance_wanted(self) -> None:
        """Ask the same: style, context and terms are settings like any other."""
        self._guide()

    @work(exclusive=True, group="guide", exit_on_error=False)
    async def _guide(self) -> None:
        from hymt_local.tui.guidance_dialog import GuidanceDialog
        from hymt_local.tui.guiding import guidance_of, write_guidance

        environment = self.environment
        spec = environment.spec_of(self.translate_screen.model.ref)
        said = await self.push_screen_wait(GuidanceDialog(environment, spec, guidance_of(environment.settings)))
        if said is None:
            return
        try:
            write_guidance(environment.application.paths.config_file, environment.settings, said=said)
            environment.reload()
        except HymtError as error:
            self.show_notice(Notice(error.message, hint=error.hint, is_warning=True))
            return
        self.on_settings_screen_changed()
        for screen in self._screens_of(View.SETTINGS):
            screen.refresh_settings()

    # Models

    def on_models_screen_looked(self, message: ModelsLooked) -> None:
        """Show in the translate view where the model runs."""
        self.translate_screen.learn_devices(message.judged.devices())

    def on_models_screen_chosen(self, message: ModelChosen) -> None:
        """Translate with the model that was chosen in the models view."""
        self.use_model(message.ref)

    def use_model(self, ref: str) -> None:
        """Translate with an installed model from now on."""
        self.environment.reload_models()
        chosen = next((model for model in self.environment.models if model.ref == ref), None)
        if chosen is not None:
            self.translate_screen.use_model(chosen)
            for screen in (*self._screens_of(View.MODELS), *self._screens_of(View.DOCUMENTS)):
                screen.model_in_use(ref)
            self.show_notice(Notice(self.environment.wording("models.now", model=ref)))

    def _download_changed(self, state: Download) -> None:
        """Show a download wherever it is followed; a model that has arrived takes the demo's place."""
        for screen in self._screens_of(View.MODELS):
            screen.download_changed(state)
        self.translate_screen.show_download(state)
        if state.model:
            if self.translate_screen.model.kind == "demo":
                self.use_model(state.model)
            else:
                self.environment.reload_models()
                self.show_notice(Notice(self.environment.wording("models.arrived", model=state.model)))
        elif state.error is not None:
            self.show_notice(Notice(state.error.message, hint=state.error.hint, is_warning=True))

    def _screens_of(self, view: View) -> list[Any]:
        return [screen for screen in self._screen_stacks.get(view, []) if isinstance(screen, ViewScreen)]

    @work(exclusive=True, group="offer", exit_on_error=False)
    async def _look_for_a_model(self) -> None:
        """Find out which model suits this machine, for somebody who has only the demo."""
        from hymt_local.tui.models_screen import judge

        try:
            judged = await asyncio.to_thread(judge, self.environment.application)
        except HymtError:
            return  # the models view says why
        self.translate_screen.learn_devices(judged.devices())
        if judged.recommended is not None:
            self.translate_screen.offer(judged.recommended)

    async def action_get_model(self) -> None:
        """Fetch the model that suits this machine, after consent to its licence, while work goes on."""
        from hymt_local.tui.models_screen import ModelsScreen

        await self.action_view(View.MODELS)
        if isinstance(self.screen, ModelsScreen):
            self.screen.fetch_recommended()

    def _apply_theme(self) -> None:
        wanted = self.environment.settings.theme
        if self.environment.environ.get("NO_COLOR") and NO_COLOUR_THEME in self.available_themes:
            wanted = NO_COLOUR_THEME
        self._applied_theme = wanted if wanted in self.available_themes else FALLBACK_THEME
        self.theme = self._applied_theme

    def _keep_theme(self, theme: Theme) -> None:
        """Write a theme that was chosen in the palette into the settings."""
        environment = self.environment
        if theme.name == self._applied_theme:
            return
        try:
            write_setting(environment.application.paths.config_file, "theme", theme.name)
            environment.reload()
        except HymtError as error:
            self.show_notice(Notice(error.message, hint=error.hint, is_warning=True))

    # Commands

    def action_command_palette(self) -> None:
        """Open the palette in the program's language."""
        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(placeholder=self.environment.wording("picker.actions")))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Offer every action of the help page in the palette: this view's, the program's, then the other views'."""
        present = self.view
        for command in (*VIEW_COMMANDS[present], *APP_COMMANDS):
            if command.id != "command_palette":
                yield self._system_command(command)
        for view in View:
            if view is not present:
                yield from map(self._system_command, VIEW_COMMANDS[view])

    def _system_command(self, command: Command) -> SystemCommand:
        wording = self.environment.wording
        is_elsewhere = command.view not in {None, self.view}
        prefix = f"{wording(f'view.{command.view}')}: " if is_elsewhere else ""
        keys = self.environment.keymap.own.get(command.id, command.keys)
        shown = f"{shown_key(keys.split(',')[0])} · " if keys else ""
        return SystemCommand(
            prefix + command.title(wording), shown + command.description(wording), partial(self._run_command, command)
        )

    async def _run_command(self, command: Command) -> None:
        if command.view is not None:
            await self.action_view(command.view)
        await self.run_action(command.action, default_namespace=self.screen if command.view else self)

    def action_help(self) -> None:
        """Show the help page, or put it away."""
        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss()
        elif isinstance(self.screen, ViewScreen):
            self.push_screen(HelpScreen(self.environment, self.view))

    def action_help_quit(self) -> None:
        """Answer ctrl+c without a selection: it leaves most programs, but not this one."""
        self.show_notice(Notice(self.environment.wording("app.ctrl_c")))

    # Leaving

    def terminal_lost(self) -> None:
        """Leave when the terminal is gone: the text is kept, nothing can be shown any more."""
        self._leave_by_signal(signal.SIGHUP)

    def _leave_by_signal(self, number: int) -> None:
        self.translate_screen.end()
        status = 128 + number
        watchdog = threading.Timer(_GRACE_S, partial(os._exit, status))
        watchdog.daemon = True
        watchdog.start()
        self.exit(return_code=status)


def _driver_class() -> type | None:
    """Return our driver for terminals; Windows consoles are read in another way."""
    if sys.platform == "win32":
        return None
    from hymt_local.tui.driver import GuardedDriver

    return GuardedDriver
