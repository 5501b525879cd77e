"""The training schedule that decides the demo model's weights, counted in steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

POOL = 24
"""Batches drawn at a time where they are sorted by length."""
SORTED_BOUNDS = (5, 8, 11, 15, 20, 28)
DRAWN = 1024
"""Rows drawn at a time otherwise."""
CLASS_BOUNDS = (5, 9, 14, 22)
"""Lengths that divide the classes of sources and answers."""
CLIP = 1.0
DECAY = 0.05

_SHARES = {"phrase": 0.23, "template": 0.43, "date": 0.08, "cldr": 0.26}
_CONSTANT_SHARE = 0.3
_FINAL_SHARE = 0.02
_WARM_UP_STEPS = 100


@dataclass(frozen=True, slots=True)
class Cycle:
    """One rise and fall of the learning rate, with an optimizer of its own."""

    steps: int
    span: int | None = None
    """Steps after which the rate is at its lowest, when the cycle ends before."""
    peak_rate: float = 3e-3
    row_positions: int = 3600
    """Source and answer positions of one batch, padding included."""
    grouping: Literal["sorted", "classes"] = "classes"
    """How the rows of one batch are alike: in nearly equal lengths, or in the class of their lengths. The former are so
    alike that their gradients disturb as much as they teach; the first cycles were run before that was known."""
    forgetting: float = 0.0
    """Share of the answer's tokens that are hidden from what follows them: the source has to be read, not the sentence
    continued from memory. Without it, templates with few fillers are learnt by heart and fail with a new one."""
    with_late: bool = False
    """Also train the combinations that were held out before beyond their template's share (`Phrasebook.late`)."""
    shares: Mapping[str, float] = field(default_factory=lambda: _SHARES)
    """Share of each group of items in the draws, whatever its number of items; an item's weight counts inside it."""

    def rate(self, step: int) -> float:
        """Warm-up, constant, then linear down to a fiftieth."""
        span = self.span or self.steps
        warm_up = max(1, min(_WARM_UP_STEPS, span // 10))
        left = (span - step) / (span * (1 - _CONSTANT_SHARE))
        return self.peak_rate * min(1.0, (step + 1) / warm_up) * max(_FINAL_SHARE, min(1.0, left))


# First the languages and the patterns of the sentences; then, in smaller batches, what has to be known by heart.
CYCLES = (
    Cycle(3250, span=4000, grouping="sorted"),
    Cycle(
        4400,
        peak_rate=2e-3,
        row_positions=2400,
        grouping="sorted",
        shares={"phrase": 0.27, "template": 0.33, "date": 0.10, "cldr": 0.30},
    ),
    Cycle(
        2600,
        peak_rate=1.5e-3,
        row_positions=2400,
        shares={"phrase": 0.15, "template": 0.42, "date": 0.11, "cldr": 0.32},
    ),
    Cycle(
        1500,
        peak_rate=1.2e-3,
        row_positions=2400,
        forgetting=0.15,
        with_late=True,
        shares={"phrase": 0.10, "template": 0.50, "date": 0.15, "cldr": 0.25},
    ),
    Cycle(
        2200,
        peak_rate=1.2e-3,
        row_positions=2400,
        with_late=True,
        shares={"phrase": 0.20, "template": 0.48, "date": 0.10, "cldr": 0.22},
    ),
)
STEPS = sum(cycle.steps for cycle in CYCLES)
