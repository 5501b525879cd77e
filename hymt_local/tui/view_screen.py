"""What all views have in common: tabs above, state and keys below, and a place for messages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.content import Content
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from hymt_local.tui.environment import Environment
from hymt_local.tui.key_footer import KeyFooter
from hymt_local.tui.keymap import APP_COMMANDS, VIEW_COMMANDS, Command
from hymt_local.tui.status import Notice, StatusArea
from hymt_local.tui.steady_screen import SteadyScreen
from hymt_local.tui.view_tabs import ViewTabs
from hymt_local.tui.views import View

NOTICE_S = 4.0
"""A message of the program stays at least that long before the state of a list takes its place."""


class ViewScreen(SteadyScreen, Screen[None]):
    """One view. Subclasses give `VIEW`, `BINDINGS` and the widgets between tabs and state."""

    VIEW: ClassVar[View]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (9, "-short"), (16, "-tall")]  # noqa: RUF012

    def __init__(self, environment: Environment) -> None:
        super().__init__()
        self.environment = environment
        self.wording = environment.wording
        self._notice_until = 0.0

    def compose(self) -> ComposeResult:
        """Lay out the view between the lines that all views have."""
        keymap, wording = self.environment.keymap, self.wording
        next_view = next(command for command in APP_COMMANDS if command.id == "next_view")
        hint = f"{keymap.shown_keys(next_view, wording)[0]} ›"
        yield ViewTabs(self.VIEW, wording=wording, hint=hint)
        yield from self.compose_view()
        yield StatusArea(id="status")
        yield KeyFooter(list(self._footer_commands()), keymap=keymap, wording=wording)

    @abstractmethod  # for mypy: no ABC, for Textual's screens have a metaclass of their own
    def compose_view(self) -> ComposeResult:
        """Lay out what is peculiar to the view."""

    def _footer_commands(self) -> Iterator[Command]:
        for command in (*VIEW_COMMANDS[self.VIEW], *APP_COMMANDS):
            if command.in_footer:
                yield command

    def show_notice(self, notice: Notice) -> None:
        """Show a message in place of the state line, until the next change of state."""
        for area in self.query(StatusArea):  # a view that is not composed yet has none
            self._notice_until = self.environment.clock.now() + NOTICE_S
            area.show_notice(notice)

    def show_state(self, state: Content) -> None:
        """Show how things stand, unless a message was shown a moment ago."""
        if self.environment.clock.now() >= self._notice_until:
            self.query_one(StatusArea).show_state(state)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Show a fault of the program itself like any other error: the text must survive it."""
        if event.state is WorkerState.ERROR:
            self.worker_failed(event.worker)
            fault = self.wording("fault.text", error=repr(event.worker.error))
            self.show_notice(Notice(fault, hint=self.wording("fault.hint"), is_warning=True))

    def worker_failed(self, worker: Worker[object]) -> None:
        """Put in order what a worker left behind that ended by a fault."""
