"""The last line: the few keys that matter most in this view. They can be clicked."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.style import Style
from textual.widgets import Static

from hymt_local.tui.keymap import Command, Keymap
from hymt_local.tui.wording import Wording

MOST_KEYS = 6


class KeyFooter(Static):
    """Shows keys and what they do.

    Args:
        commands: In the order to show them, `MOST_KEYS` at most.
        keymap: The keys in force.
        wording: What the commands are called.
    """

    def __init__(self, commands: Sequence[Command], *, keymap: Keymap, wording: Wording) -> None:
        super().__init__(id="keys", markup=False)
        self._commands = commands[:MOST_KEYS]
        self._keymap = keymap
        self._wording = wording

    def on_mount(self) -> None:
        """Show the keys."""
        self.update(Content("  ").join(self._key(command) for command in self._commands))

    def _key(self, command: Command) -> Content:
        click = Style.from_meta({"@click": command.action if "." in command.action else f"screen.{command.action}"})
        key = self._keymap.shown_keys(command, self._wording)[0]
        return Content.assemble((key, "$footer-key-foreground bold"), " ", command.title(self._wording)).stylize(click)
