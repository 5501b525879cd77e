"""Time as a dependency, so that tests decide when a pause is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class Alarm(Protocol):
    """Something that will happen."""

    def cancel(self) -> None:
        """Make it not happen; too late or twice is fine."""


class Clock(Protocol):
    """Tells the time and rings alarms on the running asyncio loop."""

    def now(self) -> float:
        """Return seconds from an arbitrary start, never going back."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Alarm:
        """Call `callback` once, after `delay_s` seconds."""


class LoopClock:
    """The clock of the running asyncio loop."""

    def now(self) -> float:
        """Return the loop's time in seconds."""
        return asyncio.get_running_loop().time()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Alarm:
        """Schedule `callback` on the loop."""
        return asyncio.get_running_loop().call_later(delay_s, callback)
