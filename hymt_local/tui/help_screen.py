"""The help page: every action with its keys, made from the same table as the bindings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from hymt_local.sanitize import sanitize
from hymt_local.tui.keymap import APP_COMMANDS, EDITING_KEYS, TRANSLATE_COMMANDS

_KEY_CELLS = 24


class HelpScreen(ModalScreen[None]):
    """Shows all keys. Args: the file that always holds the last copied translation."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f1,q,enter", "dismiss", "Close", show=False)]

    def __init__(self, *, copy_file: Path) -> None:
        super().__init__()
        self._copy_file = copy_file

    def compose(self) -> ComposeResult:
        """Lay out the sections."""
        with Vertical(id="dialog", classes="-wide"):
            with VerticalScroll(id="help"):
                yield Static(self._page(), markup=False)
            yield Static("Esc close", id="dialog-help", markup=False)

    def _page(self) -> Content:
        commands = (
            (", ".join(command.shown_keys), command.description) for command in (*TRANSLATE_COMMANDS, *APP_COMMANDS)
        )
        copied = f"F4 uses the terminal's clipboard (OSC 52), the system's, and {self._copy_file}"
        return Content("\n").join(
            [
                *_section("Actions", commands),
                Content(),
                *_section("Text", EDITING_KEYS),
                Content(),
                Content.styled("Copying", "$text-accent bold"),
                Content(sanitize(copied)),
            ]
        )


def _section(title: str, rows: Iterable[tuple[str, str]]) -> list[Content]:
    lines = [
        Content.assemble((keys.ljust(_KEY_CELLS), "bold"), (description, "$foreground-muted"))
        for keys, description in rows
    ]
    return [Content.styled(title, "$text-accent bold"), *lines]
