"""What the status line shows of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hymt_local.events import ModelLoaded

if TYPE_CHECKING:
    from hymt_local.application import Application
    from hymt_local.engine.fit import FitPlan

_GIB = 1 << 30
_MIB = 1 << 20


def rss_bytes(application: Application) -> int:
    """Return the main memory of this program: of this process, its children, and the resident server with its own."""
    import psutil  # 20 ms, not before the first translation

    from hymt_local.server_file import find_server

    server = find_server(application.paths)
    total = 0
    for root in (psutil.Process().pid, *([server.pid] if server else [])):
        try:
            process = psutil.Process(root)
            total += sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))
        except psutil.Error:  # one of them has ended meanwhile
            continue
    return total


def planned_device(plan: FitPlan) -> str:
    """Return where the layers of a model go: `CPU`, `GPU 20/33 · VRAM 4.1 GiB`."""
    if not plan.gpu_layers:
        return "CPU"
    return f"{_layers(plan.gpu_layers, plan.n_layers)} · VRAM {size_text(plan.vram_bytes)}"


def device_label(loaded: ModelLoaded | None, planned: str) -> str:
    """Return where a model is: what its load has told, with what was planned as far as that has come true.

    Args:
        loaded: None before anything was loaded.
        planned: From `planned_device`; empty when the machine was not looked at.
    """
    if loaded is None or not loaded.n_layers:
        return planned
    if not loaded.n_gpu_layers:
        return "CPU"
    layers = _layers(loaded.n_gpu_layers, loaded.n_layers)
    return planned if planned.startswith(f"{layers} ") else layers


def find_device(application: Application, ref: str) -> str:
    """Return where the layers of an installed model go on this machine, by the plan that its load follows.

    Raises:
        HymtError: the model or its file cannot be looked at.
    """
    return planned_device(application.plan_installed(application.store.find(ref), application.probe_machine()))


def size_text(size_bytes: int) -> str:
    """Return an amount of memory in a few characters."""
    return f"{size_bytes / _GIB:.1f} GiB" if size_bytes >= _GIB else f"{size_bytes / _MIB:.0f} MiB"


def _layers(n_on_gpu: int, n_layers: int) -> str:
    return f"GPU {n_on_gpu}/{n_layers}"
