"""The training schedule that decides the demo model's weights, counted in steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DRAWN = 1024
"""Rows drawn at a time."""
CLASS_BOUNDS = (5, 9, 14, 22)
"""Lengths that divide the classes of sources and answers. Rows of one batch are of one class, so that padding is rare;
batches of nearly equal lengths are so alike that their gradients disturb as much as they teach."""
CLIP = 1.0
DECAY = 0.05

_CONSTANT_SHARE = 0.3
_FINAL_SHARE = 0.02
_WARM_UP_STEPS = 100


@dataclass(frozen=True, slots=True)
class Cycle:
    """One rise and fall of the learning rate, with an optimizer of its own."""

    steps: int
    peak_rate: float = 2.5e-3
    row_positions: int = 2400
    """Source and answer positions of one batch, padding included."""
    forgetting: float = 0.0
    """Share of the answer's tokens that are hidden from what follows them: the source has to be read, not the sentence
    continued from memory. Without it, templates with few fillers are learnt by heart and fail with a new one."""
    shares: Mapping[str, float] = field(
        default_factory=lambda: {"phrase": 0.19, "template": 0.47, "date": 0.09, "cldr": 0.25}
    )
    """Share of each group of items in the draws, whatever its number of items; an item's weight counts inside it."""

    def rate(self, step: int) -> float:
        """Warm-up, constant, then linear down to a fiftieth."""
        warm_up = max(1, min(_WARM_UP_STEPS, self.steps // 10))
        left = (self.steps - step) / (self.steps * (1 - _CONSTANT_SHARE))
        return self.peak_rate * min(1.0, (step + 1) / warm_up) * max(_FINAL_SHARE, min(1.0, left))


# First the languages and the patterns of the sentences; then, with the whole answer in sight, what is known by heart.
CYCLES = (
    Cycle(9400, forgetting=0.1),
    Cycle(4000, peak_rate=1.2e-3, shares={"phrase": 0.28, "template": 0.34, "date": 0.12, "cldr": 0.26}),
)
STEPS = sum(cycle.steps for cycle in CYCLES)
