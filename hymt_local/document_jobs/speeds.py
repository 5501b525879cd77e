"""What was measured of each model on this machine, so that the next document's time can be told before it begins."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hymt_local.regular_file import read_regular

_WEIGHT_OF_LAST = 0.5


def read_speeds(state_dir: Path) -> Mapping[str, float]:
    """Return characters of source text per second by model; empty when nothing was measured or it cannot be read."""
    try:
        found = json.loads(read_regular(_path(state_dir)))
        return {str(model): float(speed) for model, speed in found.items() if float(speed) > 0}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def remember_speed(state_dir: Path, model: str, *, rate: float) -> None:
    """Keep what was just measured, averaged with what was known; forgotten without harm where it cannot be written."""
    speeds = dict(read_speeds(state_dir))
    before = speeds.get(model, rate)
    speeds[model] = round(before + _WEIGHT_OF_LAST * (rate - before), 3)
    path = _path(state_dir)
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(speeds, stream)
        Path(temporary).replace(path)


def _path(state_dir: Path) -> Path:
    return state_dir / "documents" / "speeds.json"
