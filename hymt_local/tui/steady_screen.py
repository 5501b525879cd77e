"""What every screen needs beyond Textual's: it survives sizes, keys and closings that overtake each other."""

from __future__ import annotations

from typing import Any

from textual.events import Event, Mount, Resize
from textual.message_pump import MessagePump


class SteadyScreen(MessagePump):
    """A base of every screen, before Textual's."""

    _pruning: bool  # Textual's: it is being removed
    children: Any

    async def on_event(self, event: Event) -> None:
        """Do not begin with a screen that was closed before it had any widgets, by itself or with the program."""
        if not isinstance(event, Mount) or not (self._pruning or self.app._exit):
            await super().on_event(event)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Let no key work on widgets that are not there yet, or no longer."""
        allowed: bool | None = super().check_action(action, parameters)  # type: ignore[misc]  # Screen's
        return bool(self.children) and allowed

    def on_resize(self, event: Resize) -> None:
        """Keep sizes from the screen that the terminal no longer has.

        Textual 8.2 lets a screen that has taken a size tell itself so once more. With two sizes under way, as while a
        window is dragged, each of the two messages would bring forth the next, without end and at full speed.
        """
        if event.size != self.app.size:
            event.prevent_default()
