"""NVIDIA's GPUs by their driver: through its package, else by its program; nothing without either."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hymt_local.engine.fit import GIB, GpuFacts
from hymt_local.engine.machine import with_idle_gpus
from hymt_local.engine.nvidia import query_nvidia
from hymt_local.engine.options import MIB
from tests.machines import machine

RTX = GpuFacts("NVIDIA GeForce RTX 3060", 6 * GIB, 5 * GIB)


class NVMLError(Exception):
    """Of the package."""


def package(*, name: str | bytes = RTX.name, fails_at: str = "") -> SimpleNamespace:
    """nvidia-ml-py with one GPU, or one whose named function fails."""
    calls: list[str] = []

    def function(called: str, result: Any) -> Any:
        def call(*_arguments: object) -> Any:
            calls.append(called)
            if called == fails_at:
                raise NVMLError(called)
            return result

        return call

    results = {
        "nvmlInit": None,
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": "device 0",
        "nvmlDeviceGetName": name,
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=RTX.total_bytes, free=RTX.free_bytes, used=GIB),
        "nvmlShutdown": None,
    }
    functions = {called: function(called, result) for called, result in results.items()}
    return SimpleNamespace(NVMLError=NVMLError, calls=calls, **functions)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put an `nvidia-smi` with this answer on the path, and nothing else."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def make(script: str) -> None:
        file = tmp_path / "nvidia-smi"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    return make


@pytest.mark.parametrize("name", [RTX.name, RTX.name.encode()], ids=["text", "bytes of an old version"])
def test_the_package_is_asked_and_left(monkeypatch: pytest.MonkeyPatch, name: str | bytes) -> None:
    nvml = package(name=name)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert query_nvidia() == (RTX,)
    assert (nvml.calls[0], nvml.calls[-1]) == ("nvmlInit", "nvmlShutdown")


@pytest.mark.parametrize("fails_at", ["", "nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetMemoryInfo", "nvmlShutdown"])
@pytest.mark.usefixtures("program")
def test_no_failure_of_the_driver_is_one_of_ours(monkeypatch: pytest.MonkeyPatch, fails_at: str) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", package(fails_at=fails_at))
    assert query_nvidia() == ((RTX,) if fails_at in {"", "nvmlShutdown"} else ())


def test_without_the_package_the_program_is_asked(monkeypatch: pytest.MonkeyPatch, program: Any) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    program('[ "$1" = --query-gpu=name,memory.total,memory.free ] && echo "NVIDIA A, the large, 6144, 5120"')
    assert query_nvidia() == (GpuFacts("NVIDIA A, the large", 6144 * MIB, 5120 * MIB),)


@pytest.mark.parametrize(
    "script", ["exit 9", "echo No devices were found", "echo 'GPU, [N/A], [N/A]'", "printf '\\377\\n'", ":"]
)
def test_a_program_that_does_not_answer_so_means_none(
    monkeypatch: pytest.MonkeyPatch, program: Any, script: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    program(script)
    assert query_nvidia() == ()


def test_a_program_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch, program: Any) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    program("exit 0")

    def hang(*arguments: Any, timeout: float, **options: Any) -> None:
        raise subprocess.TimeoutExpired(arguments[0], timeout)

    monkeypatch.setattr(subprocess, "run", hang)
    assert query_nvidia() == ()


@pytest.mark.usefixtures("program")
def test_a_machine_without_a_driver_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert query_nvidia() == ()


def test_they_are_idle_only_where_llama_cpp_uses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", package())
    assert with_idle_gpus(machine(8)).idle_gpus == (RTX,)
    assert with_idle_gpus(machine(8, 6)).idle_gpus == ()
