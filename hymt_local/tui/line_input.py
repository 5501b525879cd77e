"""A field of one line: for search, paths and settings."""

from __future__ import annotations

from rich.text import Text
from textual import events
from textual.widgets import Input

from hymt_local.sanitize import REPLACEMENT, sanitize
from hymt_local.tui.compat import TYPED_CHARACTERS, clean


class LineInput(Input):
    """Textual's field, which passes on every control it holds and drops joiners that are typed.

    The value stays as it is, so that a file whose name holds a control can still be chosen.
    """

    def on_mount(self) -> None:
        """Keep the cursor from repainting twice a second."""
        self.cursor_blink = False

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Tell Textual that these characters are text too."""
        return character in TYPED_CHARACTERS or super().check_consume_key(key, character)

    async def _on_key(self, event: events.Key) -> None:
        """Insert what Input's own handler, which Textual calls after this one, would drop."""
        if event.character in TYPED_CHARACTERS:
            event.stop()
            event.prevent_default()
            self.replace(event.character, *self.selection)

    def _on_paste(self, event: events.Paste) -> None:
        """Insert the first line that says something, cleaned, in place of Input's own handler."""
        event.stop()
        event.prevent_default()
        lines = [line for line in clean(event.text).replace("\t", " ").split("\n") if line.strip()]
        if lines:
            self.replace(lines[0], *self.selection)

    @property
    def _value(self) -> Text:
        """The value as it may be drawn, of the same length."""
        shown = "".join(character if _is_drawable(character) else REPLACEMENT for character in self.value)
        return Text(shown, no_wrap=True, overflow="ignore", end="")


def _is_drawable(character: str) -> bool:
    return character not in "\n\t" and sanitize(character) == character
