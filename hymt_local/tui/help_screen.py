"""The help page: every action with its keys, made from the same table as the bindings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import Static

from hymt_local.sanitize import sanitize
from hymt_local.tui.environment import Environment
from hymt_local.tui.keymap import APP_COMMANDS, EDITING_KEYS, VIEW_COMMANDS, Command
from hymt_local.tui.steady_screen import SteadyScreen
from hymt_local.tui.views import View

_KEY_CELLS = 24
_LEAST_BESIDE_CELLS = 28
"""With less room beside the keys, what they do stands below them."""
_INDENT = "  "


class HelpScreen(SteadyScreen, ModalScreen[None]):
    """Shows all keys, those of the present view first. Args: keys, wording and files; the view it is called from."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "dismiss", "Close", show=False)]

    def __init__(self, environment: Environment, view: View) -> None:
        super().__init__()
        self._environment = environment
        self._wording = environment.wording
        self._view = view

    def compose(self) -> ComposeResult:
        """Lay out the sections."""
        with Vertical(id="dialog", classes="-wide"):
            with VerticalScroll(id="help"):
                yield Static(id="help-page", markup=False)
            yield Static(self._wording("help.close"), id="dialog-help", markup=False)

    def on_resize(self, event: Resize) -> None:
        """Write the page for the width there is."""
        self.call_after_refresh(self._write_page)

    def _write_page(self) -> None:
        for page in self.query("#help-page").results(Static):  # none when it was closed meanwhile
            page.update(self._page(page.content_size.width))

    def _page(self, width: int) -> Content:
        wording = self._wording
        others = [view for view in View if view is not self._view]
        editing = [(wording(f"editing.{name}.keys"), wording(f"editing.{name}.text")) for name in EDITING_KEYS]
        copied = wording("help.copying", file=str(self._environment.copy_file))
        keymap = wording("help.keymap", file=str(self._environment.application.paths.keymap_file))
        parts = [
            _section(wording(f"view.{self._view}"), map(self._row, VIEW_COMMANDS[self._view]), width),
            _section(wording("help.everywhere"), map(self._row, APP_COMMANDS), width),
            _section(wording("help.text"), editing, width),
            [_heading(wording("help.files")), Content(sanitize(copied)), Content(sanitize(keymap))],
            *(_section(wording(f"view.{view}"), map(self._row, VIEW_COMMANDS[view]), width) for view in others),
        ]
        return Content("\n\n").join(Content("\n").join(part) for part in parts)

    def _row(self, command: Command) -> tuple[str, str]:
        keys = ", ".join(self._environment.keymap.shown_keys(command, self._wording))
        return keys, command.description(self._wording)


def _heading(title: str) -> Content:
    return Content.styled(title, "$text-accent bold")


def _section(title: str, rows: Iterable[tuple[str, str]], width: int) -> list[Content]:
    return [_heading(title), *(line for keys, description in rows for line in _lines(keys, description, width))]


def _lines(keys: str, description: str, width: int) -> list[Content]:
    """Return the keys and what they do, side by side in two columns where there is room for both."""
    beside = width - _KEY_CELLS
    if beside < _LEAST_BESIDE_CELLS:
        below = _wrapped(description, width - len(_INDENT))
        return [Content.styled(keys, "bold"), *(Content(_INDENT) + line for line in below)]
    first, *others = _wrapped(description, beside)
    return [
        Content.styled(_padded(keys), "bold") + first,
        *(Content(" " * _KEY_CELLS) + line for line in others),
    ]


def _wrapped(text: str, width: int) -> list[Content]:
    return Content.styled(text, "$foreground-muted").wrap(max(width, 1)) or [Content()]


def _padded(keys: str) -> str:
    return keys + " " * max(1, _KEY_CELLS - Content(keys).cell_length)
