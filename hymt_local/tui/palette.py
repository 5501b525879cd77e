"""The command palette: Textual's, which may be closed while it still looks for commands."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from textual import work
from textual.command import CommandPalette
from textual.css.query import NoMatches

from hymt_local.tui.steady_screen import SteadyScreen

_search: Any = CommandPalette._gather_commands


class Palette(SteadyScreen, CommandPalette):
    """Every action by its name."""

    @work(exclusive=True, group=CommandPalette._GATHER_COMMANDS_GROUP)
    async def _gather_commands(self, search_value: str) -> None:
        with suppress(NoMatches):  # Textual 8.2 writes into its list even when that has gone
            await _search.__wrapped__(self, search_value)
