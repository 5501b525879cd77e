"""Every action of the program with its keys: bindings, footer, palette and help page are made from this one table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from textual.binding import Binding

# Keys that terminals cannot tell apart or keep for themselves are not used alone: alt+enter arrives as enter,
# ctrl+enter arrives only from some terminals, ctrl+m, i, h and [ are enter, tab, backspace and escape.


PALETTE_KEY = "ctrl+p"


@dataclass(frozen=True, slots=True)
class Command:
    """One thing the user can do."""

    action: str
    """Name of the action method, with its namespace where that is the app."""
    keys: str
    """Comma separated, the preferred one first; empty for what only the palette offers."""
    title: str
    """For footer and palette; two words at most."""
    description: str
    in_footer: bool = False
    has_priority: bool = False
    """Works while a dialog is open too."""

    @property
    def id(self) -> str:
        """What a user's keymap file calls it."""
        return self.action.removeprefix("app.")

    @property
    def shown_keys(self) -> tuple[str, ...]:
        """The keys as people write them; for an action of the palette only, the way there."""
        if not self.keys:
            return (f"{_shown(PALETTE_KEY)} {self.title}",)
        return tuple(_shown(key) for key in self.keys.split(","))

    def binding(self) -> Binding:
        """Return it as Textual's binding."""
        return Binding(
            self.keys,
            self.action,
            self.title,
            show=self.in_footer,
            key_display=self.shown_keys[0],
            tooltip=self.description,
            id=self.id,
            priority=self.has_priority,
        )


TRANSLATE_COMMANDS = (
    Command("translate", "f5,ctrl+t,ctrl+enter", "Translate", "Translate the text now", in_footer=True),
    Command("languages", "f2", "Languages", "Choose the languages; again for the source", in_footer=True),
    Command("swap", "f3", "Swap", "Swap the languages and the texts", in_footer=True),
    Command("copy", "f4", "Copy", "Copy the whole translation", in_footer=True),
    Command("cancel", "escape", "Cancel", "Stop the translation that is running"),
    Command("clear", "ctrl+l", "Clear", "Empty both panes; undo brings the text back"),
    Command("model", "f9", "Model", "Choose the model that translates"),
    Command("live", "f8", "Live", "Translate while typing, or only when asked"),
)
UNUSED_COPY = Binding("ctrl+c", "help_quit", show=False, system=True)
"""What ctrl+c does when nothing is selected."""
APP_COMMANDS = (
    Command("app.help", "f1", "Help", "Show every action and its keys", in_footer=True),
    Command("app.command_palette", PALETTE_KEY, "Palette", "Search all actions by name"),
    Command("app.change_theme", "", "Theme", "Choose the colours"),
    Command(
        "app.quit", "ctrl+q", "Quit", "Leave at once, also during a translation", in_footer=True, has_priority=True
    ),
)
EDITING_KEYS = (
    ("Tab", "Move between the panes and the languages"),
    ("Ctrl+C", "Copy the selected text"),
    ("Ctrl+Z, Ctrl+Y", "Undo, redo"),
    ("F6, F7", "Select the line, select all"),
    ("Shift+arrows", "Select by keyboard, in both panes"),
    ("Shift+drag", "The terminal's own selection (Option+drag on macOS)"),
)
"""What Textual and the terminal do by themselves, for the help page."""


def bindings(commands: Iterable[Command]) -> list[Binding]:
    """Return the bindings of all commands that have keys."""
    return [command.binding() for command in commands if command.keys]


def _shown(key: str) -> str:
    *modifiers, name = key.split("+")
    names = {"escape": "Esc", "enter": "Enter"}
    return "+".join([*(each.capitalize() for each in modifiers), names.get(name, name.upper())])
