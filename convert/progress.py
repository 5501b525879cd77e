"""How far a long step is, in a form that crosses processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the step at hand is."""

    step: str
    done: int
    total: int
    unit: str
    """`bytes`, `tensors`, `tokens` or `passes`, the last ones over all weights of a file."""
    resumed: int = 0
    """What an earlier run had done: it took no time in this one."""


OnProgress = Callable[[Progress], None]
