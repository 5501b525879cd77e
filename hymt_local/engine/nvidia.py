"""NVIDIA's GPUs as their driver knows them, whether or not this build of llama.cpp can use them.

Asked through NVML: by the package nvidia-ml-py where it is installed, else by the driver's own `nvidia-smi`.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from hymt_local.engine.fit import GpuFacts

_MIB = 1 << 20
_QUERY = ("--query-gpu=name,memory.total,memory.free", "--format=csv,noheader,nounits")
_PATIENCE_S = 5.0
"""A driver that is being updated can keep `nvidia-smi` waiting."""


def query_nvidia() -> tuple[GpuFacts, ...]:
    """Return the GPUs with what is free on each; none where there is no driver, or it does not answer."""
    found = _by_package()
    return _by_program() if found is None else found


def _by_package() -> tuple[GpuFacts, ...] | None:
    """Ask through nvidia-ml-py; None where it is not installed or finds no driver."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        return tuple(_devices(pynvml))
    except pynvml.NVMLError:
        return None
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _devices(nvml: Any) -> Iterator[GpuFacts]:
    for index in range(nvml.nvmlDeviceGetCount()):
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        name = nvml.nvmlDeviceGetName(device)
        memory = nvml.nvmlDeviceGetMemoryInfo(device)
        yield GpuFacts(
            name=name.decode(errors="replace") if isinstance(name, bytes) else str(name),  # old versions give bytes
            total_bytes=int(memory.total),
            free_bytes=int(memory.free),
        )


def _by_program() -> tuple[GpuFacts, ...]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        done = subprocess.run(
            [program, *_QUERY],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(_rows(done.stdout))


def _rows(table: str) -> Iterator[GpuFacts]:
    for line in table.splitlines():
        name, *numbers = (part.strip() for part in line.rsplit(",", 2))
        if len(numbers) == 2 and all(number.isdigit() for number in numbers):  # `[N/A]` for what the driver hides
            total, free = map(int, numbers)
            yield GpuFacts(name=name, total_bytes=total * _MIB, free_bytes=free * _MIB)
