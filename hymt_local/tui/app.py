"""The Textual application: what all views share. Everything it uses is passed in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.dom import DOMNode
from textual.screen import Screen

from hymt_local.config import Settings
from hymt_local.language import Language
from hymt_local.sanitize import sanitize
from hymt_local.tui.choices import ModelChoice
from hymt_local.tui.clock import Clock, LoopClock
from hymt_local.tui.environment import Environment
from hymt_local.tui.help_screen import HelpScreen
from hymt_local.tui.keymap import APP_COMMANDS, TRANSLATE_COMMANDS, UNUSED_COPY, Command, bindings
from hymt_local.tui.status import Notice
from hymt_local.tui.terminal import Terminal
from hymt_local.tui.translate_screen import TranslateScreen

if TYPE_CHECKING:  # see environment.py
    from hymt_local.jobs import Service

FALLBACK_THEME = "textual-dark"


class HymtApp(App[None], inherit_bindings=False):
    """The terminal UI.

    Args:
        service: Translates; not closed here. No model is touched before the first translation.
        settings: Start values of languages, live translation and theme.
        languages: What can be chosen, in the order to show it.
        models: What can be used now.
        current: The model to start with, one of `models`.
        target_lang: The language to start with when no setting names one.
        copy_file: Always holds the last copied translation.
        terminal: What is known of the terminal.
        clock: Time; tests pass their own.
        search_path: Where clipboard tools are looked for; None means the process's `PATH`.
    """

    TITLE = "hymt"
    CSS_PATH = "hymt.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(APP_COMMANDS), UNUSED_COPY]

    def __init__(
        self,
        service: Service,
        *,
        settings: Settings,
        languages: Sequence[Language],
        models: Sequence[ModelChoice],
        current: ModelChoice,
        target_lang: str,
        copy_file: Path,
        terminal: Terminal | None = None,
        clock: Clock | None = None,
        search_path: str | None = None,
    ) -> None:
        super().__init__()
        self._copy_file = copy_file
        self._wanted_theme = settings.theme
        environment = Environment(
            service=service,
            settings=settings,
            languages=languages,
            models=models,
            copy_file=copy_file,
            terminal=terminal or Terminal(),
            clock=clock or LoopClock(),
            search_path=search_path,
        )
        self.translate_screen = TranslateScreen(
            environment,
            model=current,
            source_lang=settings.source_lang,
            target_lang=settings.target_lang or target_lang,
        )
        self.theme = settings.theme if settings.theme in self.available_themes else FALLBACK_THEME

    def get_default_screen(self) -> Screen[None]:
        """Start with the translate view, so that the first paint is already the program."""
        return self.translate_screen

    def on_ready(self) -> None:
        """Report what could not be done as the settings say."""
        if self._wanted_theme not in self.available_themes:
            known = ", ".join(sorted(self.available_themes))
            self.translate_screen.show_notice(
                Notice(f"unknown theme {self._wanted_theme!r}", hint=f"themes: {known}", is_warning=True)
            )

    def copy_to_clipboard(self, text: str) -> None:
        """Copy by every way there is: the terminal's clipboard now, tool and file in the background."""
        safe = sanitize(text)
        super().copy_to_clipboard(safe)
        self.translate_screen.copy_elsewhere(safe)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Offer exactly the actions of the help page in the palette."""
        for command in TRANSLATE_COMMANDS:
            yield self._system_command(command, namespace=self.translate_screen)
        for command in APP_COMMANDS:
            if command.id != "command_palette":
                yield self._system_command(command, namespace=self)

    def _system_command(self, command: Command, *, namespace: DOMNode) -> SystemCommand:
        return SystemCommand(
            command.title, command.description, partial(self.run_action, command.action, default_namespace=namespace)
        )

    def action_help(self) -> None:
        """Show the help page."""
        self.push_screen(HelpScreen(copy_file=self._copy_file))

    def action_help_quit(self) -> None:
        """Answer ctrl+c without a selection: it leaves most programs, but not this one."""
        self.translate_screen.show_notice(Notice("Ctrl+Q quits"))
