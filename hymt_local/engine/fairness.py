"""How much interactive work may be slowed by the rest: one account of time, kept in seconds."""

from __future__ import annotations

STARVED_S = 2.0
"""Other work gets a step at least this often, whatever interactive work asks for."""
_WEIGHT = 0.3


class TimeAccount:
    """Decides whether a step serves interactive work alone or everybody.

    A step alone earns its own duration; a step for everybody costs what it takes longer than one alone. So interactive
    work takes at most twice its time alone, one step for everybody aside.
    """

    def __init__(self) -> None:
        self._credit_s = 0.0
        self._alone_s = 0.0
        self._shared_s = 0.0
        self._waited_s = 0.0

    def allows_sharing(self, *, awaits_first_token: bool) -> bool:
        """Return whether the next step may serve everybody; before a first token only those who have waited long."""
        if self._waited_s >= STARVED_S:
            return True
        return not awaits_first_token and self._credit_s >= max(0.0, self._shared_s - self._alone_s)

    def note_alone(self, step_s: float) -> None:
        """Note a step that served interactive work while others waited."""
        self._alone_s = _smoothed(self._alone_s, step_s)
        self._credit_s = min(self._credit_s + step_s, max(self._shared_s, step_s))
        self._waited_s += step_s

    def note_shared(self, step_s: float, *, with_interactive: bool) -> None:
        """Note a step that served other work."""
        self._shared_s = _smoothed(self._shared_s, step_s)
        self._waited_s = 0.0
        if with_interactive:
            self._credit_s -= max(0.0, step_s - self._alone_s)


def _smoothed(old_s: float, new_s: float) -> float:
    return old_s + _WEIGHT * (new_s - old_s) if old_s else new_s
