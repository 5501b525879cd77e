"""What the status line says of layers and video memory."""

from __future__ import annotations

import pytest

from hymt_local.engine.fit import FitWish, plan
from hymt_local.events import ModelLoaded
from hymt_local.tui.machine_facts import device_label, planned_device
from tests.machines import machine
from tests.unit.test_fit import SEVEN_B

PLANNED = "GPU 20/33 · VRAM 2.8 GiB"


def test_a_plan_names_the_layers_and_the_video_memory_they_take() -> None:
    fit = plan(SEVEN_B, machine(16, 6))
    assert planned_device(fit) == f"GPU {fit.gpu_layers}/33 · VRAM {fit.vram_bytes / (1 << 30):.1f} GiB"
    assert planned_device(plan(SEVEN_B, machine(16, 6), wish=FitWish(gpu_layers=0))) == "CPU"


@pytest.mark.parametrize(
    ("loaded", "shown"),
    [
        (None, PLANNED),
        (ModelLoaded("m", 4096), PLANNED),
        (ModelLoaded("m", 4096, n_gpu_layers=20, n_layers=33, gpu="X"), PLANNED),
        (ModelLoaded("m", 4096, n_gpu_layers=2, n_layers=33, gpu="X"), "GPU 2/33"),
        (ModelLoaded("m", 4096, n_layers=33), "CPU"),
    ],
)
def test_what_was_loaded_wins_over_what_was_planned(loaded: ModelLoaded | None, shown: str) -> None:
    assert device_label(loaded, PLANNED) == shown
