"""When a live translation starts: how long a pause in typing must be, and which texts are left alone."""

from __future__ import annotations

LEAST_CHARACTERS = 2
MOST_CHARACTERS = 20_000
"""Longer texts are translated on demand only: starting afresh at every pause would keep the machine busy in vain."""

LONGEST_PAUSE_S = 2.0
# A pause of a quarter of what a translation takes: at most a fifth of the machine's time goes into runs that the next
# keystroke throws away, and a fast model keeps the pause of the settings.
_SHARE_OF_RUN = 0.25
_WEIGHT_OF_NEWEST = 0.5


def is_live_text(text: str) -> bool:
    """Tell whether a text is translated without being asked for."""
    return len(text.strip()) >= LEAST_CHARACTERS and len(text) <= MOST_CHARACTERS


class LivePause:
    """The pause in typing after which a translation starts; grows with the measured time of translations.

    Args:
        base_s: The pause of the settings; it is never shorter.
    """

    def __init__(self, base_s: float) -> None:
        self._base_s = base_s
        self._run_s: float | None = None

    @property
    def seconds(self) -> float:
        """The pause to wait now."""
        wanted_s = (self._run_s or 0.0) * _SHARE_OF_RUN
        return max(self._base_s, min(wanted_s, LONGEST_PAUSE_S))

    def observe(self, run_s: float) -> None:
        """Learn from one translation that the model made."""
        old_s = run_s if self._run_s is None else self._run_s
        self._run_s = old_s + _WEIGHT_OF_NEWEST * (run_s - old_s)
