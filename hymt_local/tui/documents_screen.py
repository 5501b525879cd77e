"""The documents view."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType

from hymt_local.tui.keymap import DOCUMENTS_COMMANDS, bindings
from hymt_local.tui.list_screen import ListScreen
from hymt_local.tui.views import View


class DocumentsScreen(ListScreen):
    """A queue of files."""

    VIEW = View.DOCUMENTS
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(DOCUMENTS_COMMANDS)]

    def add(self, path: Path) -> None:
        """Put a file into the queue."""
