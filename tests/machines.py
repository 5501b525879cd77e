"""Simulated machines: sizes of memory and GPUs as they are sold, part of each in use."""

from __future__ import annotations

from hymt_local.engine.fit import GIB, GpuFacts, MachineFacts

AVAILABLE_GIB = {4: 2.4, 8: 5.0, 16: 11.5, 32: 26.0}
"""With a desktop and a browser open."""
CORES = {4: 2, 8: 4, 16: 6, 32: 8}
MEMORY_SIZES = (4, 8, 16, 32)
GPU_SIZES = (0, 4, 6, 12)
IN_USE_GPU_GIB = 0.5


def machine(memory: int, gpu: int = 0, *, available: float | None = None, cores: int | None = None) -> MachineFacts:
    """Return a machine with so many GiB of memory and GPU memory; 0 is no GPU."""
    gpus = (GpuFacts("GPU", gpu * GIB, int((gpu - IN_USE_GPU_GIB) * GIB)),) if gpu else ()
    return MachineFacts(
        total_bytes=memory * GIB,
        available_bytes=int((AVAILABLE_GIB[memory] if available is None else available) * GIB),
        n_cores=cores or CORES[memory],
        gpus=gpus,
        disk_free_bytes=200 * GIB,
    )
