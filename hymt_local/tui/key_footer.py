"""The last line: the few keys that matter most in this view. They can be clicked."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.style import Style
from textual.widgets import Static

from hymt_local.tui.keymap import Command, Keymap
from hymt_local.tui.wording import Wording

MOST_KEYS = 6
_STAYS = {"quit": 0, "help": 2}
"""How long a key stays when there is less and less room; 1 for those of the view, from the last to the first."""


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

    def on_resize(self) -> None:
        """Show as many whole keys as there is room for."""
        self.update(self._line(self.content_size.width))

    def _line(self, cells: int) -> Content:
        """Return the keys that fit: help stays longest, since it names the others, and quitting goes first."""
        shown = list(self._commands)
        for command in sorted(shown, key=lambda each: (_STAYS.get(each.id, 1), -self._commands.index(each))):
            line = Content("  ").join(map(self._key, shown))
            if line.cell_length <= cells:
                return line
            shown.remove(command)
        return self._key(self._commands[0])

    def _key(self, command: Command) -> Content:
        click = Style.from_meta({"@click": command.action if "." in command.action else f"screen.{command.action}"})
        key = self._keymap.shown_keys(command, self._wording)[0]
        return Content.assemble((key, "$footer-key-foreground bold"), " ", command.title(self._wording)).stylize(click)
