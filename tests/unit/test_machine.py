"""What a machine has: memory limits of containers from their own files, cores, and GPUs by llama.cpp's query."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hymt_local.engine import machine as machine_module
from hymt_local.engine.fit import GIB, MachineFacts
from hymt_local.engine.machine import (
    MemoryLimit,
    container_limit,
    free_disk_bytes,
    may_drive_gpus,
    probe_machine,
    query_gpus,
    query_gpus_apart,
    usable_cores,
)
from hymt_local.errors import EngineUnavailableError


def group(folder: Path, **files: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("memory_", "memory.")).write_text(f"{content}\n")
    return folder


def own(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "cgroup"
    file.write_text(text)
    return file


def test_a_limit_of_version_2_counts_without_the_files_that_can_be_dropped(tmp_path: Path) -> None:
    stat = f"anon 5\ninactive_file {GIB}\n"
    group(tmp_path / "fs" / "app", memory_max=4 * GIB, memory_current=2 * GIB, memory_stat=stat)
    limit = container_limit(root=tmp_path / "fs", own=own(tmp_path, "0::/app\n"))
    assert limit == MemoryLimit(4 * GIB, GIB)


def test_a_limit_of_version_1_is_found_below_its_controller(tmp_path: Path) -> None:
    group(tmp_path / "fs" / "memory" / "docker", memory_limit_in_bytes=2 * GIB, memory_usage_in_bytes=GIB)
    limit = container_limit(root=tmp_path / "fs", own=own(tmp_path, "5:cpu,cpuacct:/docker\n4:memory:/docker\n"))
    assert limit == MemoryLimit(2 * GIB, GIB)


def test_the_strictest_group_above_a_process_counts(tmp_path: Path) -> None:
    group(tmp_path / "fs" / "slice", memory_max=2 * GIB, memory_current=0)
    group(tmp_path / "fs" / "slice" / "app", memory_max=8 * GIB, memory_current=0)
    limit = container_limit(root=tmp_path / "fs", own=own(tmp_path, "0::/slice/app\n"))
    assert limit == MemoryLimit(2 * GIB, 0)


@pytest.mark.parametrize(
    "files",
    [{"memory_max": "max"}, {"memory_limit_in_bytes": 9223372036854771712}, {}, {"memory_max": "?"}],
    ids=["max", "version 1", "no file", "nonsense"],
)
def test_no_limit_is_none(tmp_path: Path, files: dict[str, object]) -> None:
    group(tmp_path / "fs" / "app", **files)
    assert container_limit(root=tmp_path / "fs", own=own(tmp_path, "0::/app\n")) is None


def test_a_system_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    assert container_limit(root=tmp_path, own=tmp_path / "absent") is None


def test_a_container_gets_what_its_limit_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "container_limit", lambda: MemoryLimit(GIB, GIB // 4))
    facts = probe_machine(tmp_path, with_gpus=False)
    assert (facts.total_bytes, facts.is_limited) == (GIB, True)
    assert facts.available_bytes <= GIB - GIB // 4


def test_a_limit_above_the_machines_memory_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "container_limit", lambda: MemoryLimit(1 << 50, 0))
    assert not probe_machine(tmp_path, with_gpus=False).is_limited


@pytest.mark.llama
def test_this_machine_has_memory_cores_and_a_disk(tmp_path: Path) -> None:
    facts: MachineFacts = probe_machine(tmp_path / "not" / "there")
    assert 0 < facts.available_bytes <= facts.total_bytes
    assert 1 <= facts.n_cores == usable_cores() <= (os.cpu_count() or 1)
    assert facts.disk_free_bytes == pytest.approx(free_disk_bytes(tmp_path), rel=0.1)


def fake_library(*devices: tuple[int, bytes, bytes, int, int], supports: bool = True) -> SimpleNamespace:
    """A library whose device query answers so: kind, name, description, free, total."""

    def memory(device: int, free: Any, total: Any) -> None:
        free._obj.value, total._obj.value = devices[device - 1][3:]

    functions = {
        "count": lambda: len(devices),
        "get": lambda index: index + 1,
        "type": lambda device: devices[device - 1][0],
        "name": lambda device: devices[device - 1][1],
        "description": lambda device: devices[device - 1][2],
        "memory": memory,
    }
    library = SimpleNamespace(**{f"ggml_backend_dev_{name}": _Function(call) for name, call in functions.items()})
    api = SimpleNamespace(_lib=library, llama_supports_gpu_offload=lambda: supports, __file__=__file__)
    return SimpleNamespace(api=api)


class _Function:
    def __init__(self, call: Any) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)


def test_gpus_are_those_of_llama_cpps_own_query(monkeypatch: pytest.MonkeyPatch) -> None:
    library = fake_library(
        (0, b"CPU", b"some processor", 1, 2),
        (1, b"CUDA0", b"NVIDIA GeForce RTX 3060", 5 * GIB, 6 * GIB),
        (2, b"Vulkan1", b"Intel UHD", GIB, 2 * GIB),
        (1, b"Metal", b"", 11 * GIB, 11 * GIB),
    )
    monkeypatch.setattr("hymt_local.engine.llama.load_library", lambda: library)
    gpus = query_gpus()
    assert [(gpu.name, gpu.free_bytes // GIB, gpu.is_unified) for gpu in gpus] == [
        ("NVIDIA GeForce RTX 3060", 5, False),
        ("Intel UHD", 1, True),
        ("Metal", 11, True),
    ]


@pytest.mark.parametrize("case", ["no GPU build", "no query", "no llama.cpp"])
def test_without_a_way_to_ask_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    library = fake_library((1, b"CUDA0", b"GPU", 1, 1), supports=case != "no GPU build")
    if case == "no query":
        library.api._lib = SimpleNamespace()

    def load() -> SimpleNamespace:
        if case == "no llama.cpp":
            raise EngineUnavailableError("not installed")
        return library

    monkeypatch.setattr("hymt_local.engine.llama.load_library", load)
    assert query_gpus() == ()


@pytest.fixture
def with_gpu_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A build that may have parts for GPUs, so that it has to be asked."""
    monkeypatch.setenv("GGML_BACKEND_PATH", str(tmp_path))


@pytest.mark.usefixtures("with_gpu_build")
def test_gpus_are_asked_for_in_a_process_that_ends_and_answers_the_same() -> None:
    assert query_gpus_apart() == query_gpus()


@pytest.mark.usefixtures("with_gpu_build")
@pytest.mark.parametrize("interpreter", ["/bin/false", "/bin/true", "/not/there"])
def test_an_interpreter_that_cannot_answer_means_no_gpu_and_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, interpreter: str
) -> None:
    monkeypatch.setattr(sys, "executable", interpreter)
    assert query_gpus_apart() == ()
    assert "could not be asked for" in caplog.text
    assert "import" not in caplog.text  # the program's text is nobody's business


def test_a_build_for_the_processor_alone_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    if may_drive_gpus():
        pytest.skip("llama.cpp is built for GPUs here")
    monkeypatch.setattr("subprocess.run", None)
    assert query_gpus_apart() == ()


@pytest.mark.parametrize(
    ("names", "may"),
    [
        ("libggml.so libggml-base.so libggml-cpu.so libllama.so", False),
        ("libggml-base.0.25.dylib libggml-cpu.dylib libggml-blas.dylib", False),
        ("libggml-base.dylib libggml-cpu.dylib libggml-metal.dylib", True),
        ("ggml.dll ggml-base.dll ggml-cpu-haswell.dll", False),
        ("ggml-base.dll ggml-cpu-haswell.dll ggml-cuda.dll", True),
        ("libggml-base.so libggml-cpu.so libggml-vulkan.so", True),
        ("libggml-base.so libggml-cpu.so libggml-hip.so.1", True),
        ("libllama.so", True),  # all in one: nobody can tell
        ("", True),
    ],
)
def test_the_libraries_tell_whether_a_gpu_could_be_driven(tmp_path: Path, names: str, may: bool) -> None:
    for name in names.split():
        (tmp_path / name).touch()
    assert may_drive_gpus(tmp_path) is may
