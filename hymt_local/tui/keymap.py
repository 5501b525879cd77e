"""Every action of the program with its keys: bindings, footer, palette and help page are made from this one table."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from textual.binding import Binding

from hymt_local.errors import ConfigError
from hymt_local.regular_file import read_regular
from hymt_local.tui.views import View
from hymt_local.tui.wording import Wording

# Keys that terminals cannot tell apart or keep for themselves are not used alone: alt+enter arrives as enter,
# ctrl+enter arrives only from some terminals, ctrl+m, i, h and [ are enter, tab, backspace and escape; alt+b and alt+f
# are what a Mac sends for ctrl+left and right. Alt with a digit belongs to some terminals' tabs, so the views have a
# second way: F6.

PALETTE_KEY = "ctrl+p"
_HINT = "`hymt config path` shows the folder; F1 names every action"


@dataclass(frozen=True, slots=True)
class Command:
    """One thing the user can do."""

    id: str
    """What a keymap file calls it, and the key of its texts under `command.`."""
    action: str
    """Name of the action method, with its namespace where that is the app."""
    keys: str
    """Comma separated, the preferred one first; empty for what only the palette offers."""
    in_footer: bool = False
    has_priority: bool = False
    """Works while a dialog or a text field has the focus too."""
    view: View | None = None
    """Where it works; None means everywhere."""

    def title(self, wording: Wording) -> str:
        """Return two words at most, for footer and palette."""
        return wording(f"command.{self.id}.title")

    def description(self, wording: Wording) -> str:
        """Return what it does, in one sentence."""
        return wording(f"command.{self.id}.text")

    def binding(self) -> Binding:
        """Return it as Textual's binding."""
        return Binding(self.keys, self.action, show=False, id=self.id, priority=self.has_priority)


def _of(view: View, *commands: tuple[str, str, bool]) -> tuple[Command, ...]:
    prefix = "" if view is View.TRANSLATE else f"{view}."
    return tuple(
        Command(f"{prefix}{action}", action, keys, in_footer=in_footer, view=view)
        for action, keys, in_footer in commands
    )


TRANSLATE_COMMANDS = _of(
    View.TRANSLATE,
    ("translate", "f5,ctrl+t,ctrl+enter", True),
    ("languages", "f2", True),
    ("swap", "f3", True),
    ("copy", "f4", True),
    ("cancel", "escape", False),
    ("retry", "ctrl+r", False),
    ("alternatives", "alt+a", False),
    ("back", "alt+r", False),
    ("next_segment", "ctrl+j", False),
    ("open", "ctrl+o", False),
    ("save", "ctrl+s", False),
    ("clear", "ctrl+l", False),
    ("model", "f9", False),
    ("guide", "alt+g", False),
    ("live", "f8", False),
)
DOCUMENTS_COMMANDS = _of(
    View.DOCUMENTS,
    ("add", "ctrl+o,a", True),
    ("pause", "p,space", True),
    ("retry", "r", True),
    ("open", "enter,o", True),
    ("languages", "f2", False),
    ("remove", "delete,x", False),
)
HISTORY_COMMANDS = _of(
    View.HISTORY,
    ("restore", "enter", True),
    ("edit", "e,ctrl+e", True),
    ("delete", "delete", True),
    ("export", "ctrl+s", True),
    ("search", "slash,ctrl+f", False),
    ("copy", "f4", False),
    ("scope", "f7", False),
    ("more", "n", False),
)
MODELS_COMMANDS = _of(
    View.MODELS,
    ("act", "enter", True),
    ("stop", "x", True),
    ("verify", "v", True),
    ("remove", "delete", True),
    ("reload", "f5,ctrl+r", False),
)
SETTINGS_COMMANDS = _of(
    View.SETTINGS,
    ("edit", "enter", True),
    ("reset", "delete", True),
    ("search", "slash,ctrl+f", True),
    ("keys", "k", True),
)
VIEW_COMMANDS: Mapping[View, tuple[Command, ...]] = {
    View.TRANSLATE: TRANSLATE_COMMANDS,
    View.DOCUMENTS: DOCUMENTS_COMMANDS,
    View.HISTORY: HISTORY_COMMANDS,
    View.MODELS: MODELS_COMMANDS,
    View.SETTINGS: SETTINGS_COMMANDS,
}

UNUSED_COPY = Binding("ctrl+c", "help_quit", show=False, system=True)
"""What ctrl+c does when nothing is selected."""
APP_COMMANDS = (
    Command("help", "app.help", "f1", in_footer=True, has_priority=True),
    Command("command_palette", "app.command_palette", PALETTE_KEY),
    *(Command(f"view_{view}", f"app.view('{view}')", f"alt+{view.number}", has_priority=True) for view in View),
    Command("next_view", "app.next_view(1)", "f6", has_priority=True),
    Command("previous_view", "app.next_view(-1)", "shift+f6", has_priority=True),
    Command("get_model", "app.get_model", "ctrl+g"),
    Command("change_theme", "app.change_theme", ""),
    Command("quit", "app.quit", "ctrl+q", in_footer=True, has_priority=True),
)
EDITING_KEYS = ("tab", "ctrl_c", "undo", "select_all", "select", "shift_drag")
"""What Textual and the terminal do by themselves, for the help page: keys of texts under `editing.`."""


def every_command() -> tuple[Command, ...]:
    """Return all commands of all views, then those that work everywhere."""
    return (*(command for commands in VIEW_COMMANDS.values() for command in commands), *APP_COMMANDS)


def bindings(commands: Iterable[Command]) -> list[Binding]:
    """Return the bindings of all commands that have keys."""
    return [command.binding() for command in commands if command.keys]


@dataclass(frozen=True, slots=True)
class Keymap:
    """The keys in force: those of the table, with the user's own in their place."""

    own: Mapping[str, str]
    """Command id -> keys, from the keymap file."""

    def shown_keys(self, command: Command, wording: Wording) -> tuple[str, ...]:
        """Return the keys as people write them; for an action of the palette only, the way there."""
        keys = self.own.get(command.id, command.keys)
        if not keys:
            return (f"{shown_key(PALETTE_KEY)} {command.title(wording)}",)
        return tuple(shown_key(key) for key in keys.split(","))


def load_keymap(file: Path) -> Keymap:
    """Read the user's keymap file, TOML with lines such as `translate = "f5,ctrl+t"`; it need not exist.

    Raises:
        ConfigError: not TOML, an unknown action, or keys that are no text.
    """
    try:
        own = tomllib.loads(read_regular(file).decode("utf-8-sig"))
    except FileNotFoundError:
        return Keymap({})
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the keymap {file}: {error}", hint=_HINT) from error
    known = {command.id for command in every_command()}
    for name, keys in own.items():
        if name not in known or not isinstance(keys, str) or not keys.strip():
            raise ConfigError(f"{file}: `{name} = {keys!r}` is not an action with its keys", hint=_HINT)
    return Keymap({name: ",".join(key.strip() for key in keys.split(",")) for name, keys in own.items()})


def shown_key(key: str) -> str:
    """Return a key as people write it."""
    *modifiers, name = key.strip().split("+")
    names = {"escape": "Esc", "enter": "Enter", "delete": "Del", "slash": "/", "space": "Space"}
    shown = names.get(name, name.upper())
    return "+".join([*(each.capitalize() for each in modifiers), shown])
