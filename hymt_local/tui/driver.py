"""The terminal's side: a Textual driver whose pastes cannot press keys and that notices when the terminal is gone."""

from __future__ import annotations

import os
import selectors
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import Any

from textual.drivers.linux_driver import LinuxDriver

from hymt_local.tui.paste_shield import ShieldedParser

_POLL_S = 0.1
_READ_BYTES = 4096


class GuardedDriver(LinuxDriver):
    """Reads keys until the program ends or the terminal does; in the second case it ends the program."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Draw where the terminal is: Textual draws on standard error, which may have been sent to a file."""
        super().__init__(*arguments, **options)
        is_drawn = sys.__stderr__ is not None and sys.__stderr__.isatty()
        if not is_drawn and sys.__stdout__ is not None:
            self._file = sys.__stdout__

    def run_input_thread(self) -> None:
        """Read input and dispatch events, on a thread of its own."""
        parser = ShieldedParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        selector = selectors.SelectSelector()
        try:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(_POLL_S):
                    data = os.read(self.fileno, _READ_BYTES)
                    if not data:
                        raise OSError("end of input")
                    for message in parser.feed(decode(data)):
                        self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)
        except OSError:
            self._leave()
        finally:
            selector.close()

    def _leave(self) -> None:
        if not self.exit_event.is_set():
            leave: Callable[[], None] = getattr(self._app, "terminal_lost", self._app.exit)
            self._loop.call_soon_threadsafe(leave)
