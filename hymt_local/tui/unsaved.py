"""What stands in the source pane survives the program: written after a moment of rest, read at the next start."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from textual.timer import Timer

from hymt_local.config import write_atomically
from hymt_local.errors import StoreError
from hymt_local.regular_file import read_regular
from hymt_local.tui.environment import Environment

WRITE_AFTER_S = 2.0

_logger = logging.getLogger(__name__)


class UnsavedText:
    """The file and when it is written. Nothing is kept while the setting `history` is off.

    Args:
        environment: Settings and folders.
        set_timer: Calls a function once, some seconds later.
    """

    def __init__(self, environment: Environment, set_timer: Callable[[float, Callable[[], None]], Timer]) -> None:
        self._environment = environment
        self._file = environment.application.paths.unsaved_text
        self._set_timer = set_timer
        self._timer: Timer | None = None
        self._text = ""

    def recovered(self) -> str:
        """Return the text of the last session, or nothing."""
        if not self._environment.settings.history:
            return ""
        try:
            return read_regular(self._file).decode()
        except (OSError, ValueError):
            return ""

    def changed(self, text: str) -> None:
        """Write the text once it has stood still for a moment."""
        if self._timer is not None:
            self._timer.stop()
        self._text = text
        self._timer = self._set_timer(WRITE_AFTER_S, self.flush)

    def flush(self) -> None:
        """Write the text now if it is still to be written; an empty one removes the file."""
        if self._timer is None:
            return
        self._timer.stop()
        self._timer, text = None, self._text
        if not text.strip() or not self._environment.settings.history:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
            return
        try:
            write_atomically(self._file, text)
        except StoreError as error:
            _logger.warning("the unsaved text is not kept: %s", error.message)
