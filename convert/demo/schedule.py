"""The training schedule that decides the demo model's weights, counted in steps."""

from __future__ import annotations

STEPS = 4000
ROW_POSITIONS = 3600
"""Source and answer positions of one batch, padding included."""
POOL = 24
"""Batches drawn at a time and grouped by length."""
CLIP = 1.0
DECAY = 0.05
PEAK_RATE = 3e-3

_FINAL_SHARE = 0.02
_CONSTANT_SHARE = 0.3
_WARM_UP_STEPS = 100


def learning_rate(step: int, steps: int) -> float:
    """Warm-up, constant, then linear down to a fiftieth: the rate of the trial that this schedule comes from."""
    warm_up = min(_WARM_UP_STEPS, steps // 10)
    left = (steps - step) / (steps * (1 - _CONSTANT_SHARE))
    return PEAK_RATE * min(1.0, (step + 1) / warm_up) * max(_FINAL_SHARE, min(1.0, left))
