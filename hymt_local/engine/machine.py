"""What this machine has: memory, the limits of a container, cores, GPUs. Reading it takes a few milliseconds.

GPUs are asked for by llama.cpp's own device query, which loads the library: only when somebody wants to know.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from hymt_local.engine.disk import disk_of
from hymt_local.engine.fit import GpuFacts, MachineFacts
from hymt_local.engine.nvidia import query_nvidia
from hymt_local.errors import EngineUnavailableError

_QUERY_S = 60
_PARTS_WITHOUT_GPU = frozenset({"base", "cpu", "blas"})
"""Of llama.cpp, by the names of their libraries; all others drive a GPU or something like it."""
_OTHER_PARTS = ("LLAMA_CPP_LIB_PATH", "GGML_BACKEND_PATH")
"""Variables that name libraries elsewhere."""
_PROGRAM = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from hymt_local.engine.machine import print_gpus; print_gpus()"
)

_logger = logging.getLogger(__name__)

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
_NO_LIMIT = 1 << 60
"""Version 1 spells `no limit` as the largest multiple of a page."""
_GPU, _INTEGRATED_GPU = 1, 2
"""ggml_backend_dev_type."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """What a container may use, and what it uses now without the file pages that it can drop."""

    limit_bytes: int
    used_bytes: int


def probe_machine(models_dir: Path, *, with_gpus: bool = True) -> MachineFacts:
    """Return the facts of this machine.

    Args:
        models_dir: Where models are kept; it need not exist.
        with_gpus: Ask llama.cpp for GPUs; without it, or where llama.cpp does not load, there are none.
    """
    import psutil

    memory = psutil.virtual_memory()
    total_bytes, available_bytes = int(memory.total), int(memory.available)
    limit = container_limit()
    is_limited = limit is not None and limit.limit_bytes < total_bytes
    if limit is not None and is_limited:
        total_bytes = limit.limit_bytes
        available_bytes = max(0, min(available_bytes, limit.limit_bytes - limit.used_bytes))
    gpus = query_gpus() if with_gpus else ()
    return MachineFacts(
        total_bytes=total_bytes,
        available_bytes=available_bytes,
        n_cores=usable_cores(),
        gpus=gpus,
        disk_free_bytes=free_disk_bytes(models_dir),
        is_limited=is_limited,
        disk=disk_of(models_dir),
    )


def with_idle_gpus(machine: MachineFacts) -> MachineFacts:
    """Look for GPUs that this build of llama.cpp cannot use, where it uses none; takes up to a second."""
    return machine if machine.gpus else replace(machine, idle_gpus=query_nvidia())


def usable_cores() -> int:
    """Return the physical cores that this process may use."""
    import psutil

    n_cores = int(psutil.cpu_count(logical=False) or os.cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        n_cores = min(n_cores, len(os.sched_getaffinity(0)))
    return n_cores


def free_disk_bytes(folder: Path) -> int | None:
    """Return the free space where a folder is or will be; None when the system does not say."""
    import shutil

    with suppress(OSError, StopIteration):
        return shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.exists())).free
    return None


def container_limit(*, root: Path = _CGROUP_ROOT, own: Path = _OWN_CGROUP) -> MemoryLimit | None:
    """Return the strictest memory limit on this process by a control group; None when there is none.

    Args:
        root: Where the control groups are mounted, version 1 or 2.
        own: The file that names those of this process.
    """
    limits = [limit for group in _groups(root, own) if (limit := _limit_of(group)) is not None]
    return min(limits, key=lambda limit: limit.limit_bytes - limit.used_bytes, default=None)


def query_gpus() -> tuple[GpuFacts, ...]:
    """Return the GPUs that llama.cpp can use here, with what is free on each."""
    from hymt_local.engine.llama import load_library

    try:
        api = load_library().api
    except EngineUnavailableError:
        return ()
    if not api.llama_supports_gpu_offload():
        return ()
    try:
        return tuple(_devices(_functions(api)))
    except (AttributeError, OSError):  # a build whose parts do not export the query
        return ()


def query_gpus_apart() -> tuple[GpuFacts, ...]:
    """Return the same, asked in a process of its own: llama.cpp and a driver would stay in this one, or end it."""
    import subprocess

    if not may_drive_gpus():
        return ()
    arguments = [sys.executable, "-P", "-c", _PROGRAM, json.dumps(sys.path)]
    try:
        done = subprocess.run(arguments, check=True, capture_output=True, timeout=_QUERY_S)
        return msgspec.json.decode(done.stdout, type=tuple[GpuFacts, ...])
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        reason = error if isinstance(error, OSError) else type(error).__name__  # the others' texts repeat the program
        _logger.warning(
            "the GPUs of this machine could not be asked for: %s; the processor alone is counted on", reason
        )
        return ()


def may_drive_gpus(libraries: Path | None = None) -> bool:
    """Tell by the names of llama.cpp's libraries whether it could drive a GPU; loading them would take half a second.

    Args:
        libraries: Where they lie; where the package llama_cpp has them when not given.
    """
    if libraries is None:
        if any(os.environ.get(name) for name in _OTHER_PARTS):
            return True
        package = importlib.util.find_spec("llama_cpp")
        if package is None or package.origin is None:
            return False
        libraries = Path(package.origin).parent / "lib"
    found = (re.match(r"(?:lib)?ggml-([a-z]+)", file.name) for file in libraries.glob("*ggml-*"))
    parts = {match.group(1) for match in found if match}
    return "cpu" not in parts or not parts <= _PARTS_WITHOUT_GPU  # without it all is in one library


def print_gpus() -> None:
    """Answer `query_gpus_apart` on standard output, which llama.cpp must not write to meanwhile."""
    answer = os.dup(1)
    os.dup2(2, 1)
    os.write(answer, msgspec.json.encode(query_gpus()))


def _groups(root: Path, own: Path) -> Iterator[Path]:
    """Yield the folders of this process's groups that can limit memory, and those above them."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers not in {"", "memory"} and "memory" not in controllers.split(","):
            continue
        top = root / "memory" if controllers else root
        folder = top / path.strip("/")
        yield folder
        for parent in folder.parents:
            if not parent.is_relative_to(top):
                break
            yield parent


def _limit_of(group: Path) -> MemoryLimit | None:
    for limit_name, used_name, inactive in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit_bytes = _number(group / limit_name)
        if limit_bytes is not None and limit_bytes < _NO_LIMIT:
            droppable = _statistic(group / "memory.stat", inactive)
            return MemoryLimit(limit_bytes, max(0, (_number(group / used_name) or 0) - droppable))
    return None


def _number(file: Path) -> int | None:
    try:
        text = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdigit() else None  # `max` is no limit


def _statistic(file: Path, name: str) -> int:
    with suppress(OSError, ValueError):
        for line in file.read_text(encoding="ascii").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0


@dataclass(frozen=True, slots=True)
class _Functions:
    """The device query of ggml; `llama_cpp` does not bind it."""

    count: Any
    get: Any
    name: Any
    description: Any
    memory: Any
    kind: Any


def _functions(api: Any) -> _Functions:
    def function(name: str, result: Any, *arguments: Any) -> Any:
        bound = getattr(_library_with(api, f"ggml_backend_dev_{name}"), f"ggml_backend_dev_{name}")
        bound.restype, bound.argtypes = result, arguments
        return bound

    size = ctypes.POINTER(ctypes.c_size_t)
    return _Functions(
        count=function("count", ctypes.c_size_t),
        get=function("get", ctypes.c_void_p, ctypes.c_size_t),
        name=function("name", ctypes.c_char_p, ctypes.c_void_p),
        description=function("description", ctypes.c_char_p, ctypes.c_void_p),
        memory=function("memory", None, ctypes.c_void_p, size, size),
        kind=function("type", ctypes.c_int, ctypes.c_void_p),
    )


def _library_with(api: Any, symbol: str) -> Any:
    """Return the shared library that has a function: found through llama's own where the loader searches its parts."""
    if hasattr(api._lib, symbol):
        return api._lib
    for file in sorted(Path(api.__file__).parent.glob("lib/*ggml*")):
        with suppress(OSError):
            library = ctypes.CDLL(str(file))
            if hasattr(library, symbol):
                return library
    raise AttributeError(symbol)


def _devices(functions: _Functions) -> Iterator[GpuFacts]:
    for index in range(functions.count()):
        device = functions.get(index)
        kind = functions.kind(device)
        if kind not in {_GPU, _INTEGRATED_GPU}:
            continue
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        functions.memory(device, ctypes.byref(free), ctypes.byref(total))
        name = (functions.name(device) or b"").decode(errors="replace")
        described = (functions.description(device) or b"").decode(errors="replace")
        yield GpuFacts(
            name=described or name,
            total_bytes=total.value,
            free_bytes=free.value,
            is_unified=kind == _INTEGRATED_GPU or name.startswith(("Metal", "MTL")),
        )
