"""What `hymt doctor` finds of processor, GPU, memory, database and network, each with a fix."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hymt_local.cli import doctor_engine
from hymt_local.cli.doctor_engine import (
    check_compiler,
    check_gpu,
    judge_processor,
    processor_flags,
)
from hymt_local.engine import machine as machine_module
from hymt_local.engine.fit import GIB, GpuFacts
from hymt_local.errors import EngineUnavailableError
from hymt_local.paths import Paths
from tests.cli.conftest import RunHymt

INFO = "CPU : SSE3 = 1 | AVX = 1 | AVX2 = 1 | F16C = 1 | FMA = 1 | AVX512 = {} | OPENMP = 1 | \n"
OLD_LAPTOP = frozenset({"pni", "avx", "avx2", "f16c", "fma"})


pytestmark = pytest.mark.usefixtures("no_trial")


def checks_of(hymt_here: RunHymt, **environ: str) -> dict[str, Any]:
    done = hymt_here("doctor", "--json", environ=environ)
    return {check["name"]: check for check in json.loads(done.out)["checks"]}


# The processor


def test_a_build_for_this_processor_is_fine() -> None:
    check = judge_processor(0, INFO.format(0), "", flags=OLD_LAPTOP)
    assert check.status == "ok"
    assert check.found.endswith("the engine uses SSE3, AVX, AVX2, F16C, FMA")


@pytest.mark.parametrize("status", [-4, 132, 0xC000001D, -1073741795])
def test_a_child_killed_by_an_illegal_instruction_is_explained(status: int) -> None:
    with pytest.raises(EngineUnavailableError, match="more instructions than this one") as caught:
        judge_processor(status, "", "", flags=OLD_LAPTOP)
    assert "--no-binary llama-cpp-python" in caught.value.hint


def test_a_build_for_instructions_that_are_lacking_is_refused_before_it_crashes() -> None:
    with pytest.raises(EngineUnavailableError, match="was built for AVX512, which this processor lacks"):
        judge_processor(0, INFO.format(1), "", flags=OLD_LAPTOP)


def test_a_slow_build_is_a_warning() -> None:
    check = judge_processor(0, "CPU : SSE3 = 1 | AVX = 1 |", "", flags=OLD_LAPTOP)
    assert (check.status, check.found) == ("warn", "the engine is built without AVX2, FMA, F16C")


def test_where_the_system_names_no_flags_the_child_alone_decides() -> None:
    assert judge_processor(0, INFO.format(1), "", flags=frozenset()).status == "ok"


def test_a_child_that_cannot_load_the_library_says_why() -> None:
    with pytest.raises(EngineUnavailableError, match=r"does not start: .*libgomp\.so\.1"):
        judge_processor(1, "", "Traceback\nlibgomp.so.1: cannot open shared object file\n", flags=OLD_LAPTOP)


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("model name\t: x\nflags\t\t: fpu avx avx2\n\nflags\t\t: fpu\n", {"fpu", "avx", "avx2"}),
        ("Features\t: fp asimd sve\n", {"fp", "asimd", "sve"}),
        ("nothing of the kind\n", set()),
    ],
    ids=["x86", "ARM", "other"],
)
def test_the_flags_of_a_processor_are_read(tmp_path: Path, text: str, flags: set[str]) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert processor_flags(tmp_path / "cpuinfo") == flags
    assert processor_flags(tmp_path / "absent") == frozenset()


def test_after_a_processor_that_fails_the_engine_is_not_loaded(
    hymt_here: RunHymt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed() -> None:
        raise EngineUnavailableError("built for another processor", hint="rebuild it")

    def must_not_load() -> None:
        raise AssertionError("this would end the process")

    monkeypatch.setattr(doctor_engine, "check_processor", killed)
    monkeypatch.setattr("hymt_local.engine.llama.load_library", must_not_load)
    checks = checks_of(hymt_here)
    assert checks["processor"]["status"] == "fail"
    assert "engine" not in checks
    assert checks["fit"]["status"] == "ok"


def test_a_missing_compiler_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert (check_compiler().status, check_compiler().found[:4]) == ("ok", "none")


# GPUs


def test_gpus_are_listed_with_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = (GpuFacts("RTX 3060", 6 * GIB, 5 * GIB), GpuFacts("Intel", 2 * GIB, GIB, is_unified=True))
    monkeypatch.setattr(machine_module, "query_gpus_apart", lambda: gpus)
    assert check_gpu().found == "RTX 3060, 5.0 GiB of 6.0 GiB free; Intel, 1.0 GiB of 2.0 GiB free"


def test_a_gpu_that_lies_idle_is_a_warning_with_the_build_to_make(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "query_gpus_apart", lambda: ())
    monkeypatch.setattr("hymt_local.engine.nvidia.query_nvidia", lambda: ())
    monkeypatch.setattr(doctor_engine, "has_nvidia", lambda: True)
    assert check_gpu().status == "warn"
    assert "-DGGML_CUDA=on" in check_gpu().fix


def test_what_an_idle_gpu_would_bring_is_told(hymt_here: RunHymt, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = (GpuFacts("RTX 3060", 6 * GIB, 5 * GIB + GIB // 2),)
    monkeypatch.setattr("hymt_local.engine.nvidia.query_nvidia", lambda: gpus)
    monkeypatch.setattr(machine_module, "query_nvidia", lambda: gpus)
    monkeypatch.setattr(machine_module, "query_gpus_apart", lambda: ())
    checks = checks_of(hymt_here)
    assert checks["gpu"]["found"] == ("RTX 3060 with 5.5 GiB free: the engine is built without CUDA and cannot use it")
    assert "-DGGML_CUDA=on" in checks["gpu"]["fix"]
    assert "; with the GPU Hy-MT2-7B:Q4_K_M: about " in checks["fit"]["found"]


# What the user keeps


def test_the_demo_alone_leads_to_the_download_that_suits_this_machine(
    hymt_here: RunHymt,
) -> None:
    checks = checks_of(hymt_here)
    assert (checks["model"]["status"], checks["model"]["found"]) == ("warn", "only the demo phrasebook is installed")
    assert checks["model"]["fix"] == "`hymt models pull` fetches the model that suits this machine"
    assert "Hy-MT2" in checks["fit"]["found"]


def test_a_damaged_page_of_the_database_is_found(hymt_here: RunHymt, paths: Paths) -> None:
    from hymt_local.memory.phrase_cache import PhraseCache

    PhraseCache(paths.database).close()
    connection = sqlite3.connect(paths.database)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_schema SET rootpage = 2 WHERE name = 'phrase_cache_by_use'")
    connection.commit()
    connection.close()
    cache = checks_of(hymt_here)["phrase cache"]
    assert cache["status"] == "fail"
    assert "damaged" in cache["found"]
    assert "move the file away" in cache["fix"]


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "to huggingface.co;"),
        ({"HF_ENDPOINT": "https://hf-mirror.example"}, "to hf-mirror.example;"),
        ({"HTTPS_PROXY": "http://proxy:1"}, "huggingface.co through a proxy"),
        ({"HYMT_OFFLINE": "1"}, "offline: no connection leaves this machine (set in HYMT_OFFLINE)"),
        ({"HF_HUB_OFFLINE": "1"}, "(HF_HUB_OFFLINE is set)"),
    ],
)
def test_the_network_policy_is_told(hymt_here: RunHymt, environ: dict[str, str], said: str) -> None:
    assert said in checks_of(hymt_here, **environ)["network"]["found"]


def test_the_setting_is_told_too(hymt_here: RunHymt) -> None:
    hymt_here("config", "set", "offline", "true")
    assert "(set in config.toml)" in checks_of(hymt_here)["network"]["found"]


@pytest.mark.parametrize("endpoint", ["http://[::1", "hub.example", "https://me:secret@hub.example"])
def test_a_hub_that_is_no_address_is_told(hymt_here: RunHymt, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    network = checks_of(hymt_here)["network"]
    assert (network["status"], network["found"]) == ("fail", "HF_ENDPOINT is not a web address")
    assert "secret" not in network["fix"]


@pytest.mark.parametrize(("value", "offline"), [("1", True), ("0", False)])
def test_the_hubs_own_variable_counts_as_it_does_elsewhere(
    hymt_here: RunHymt, monkeypatch: pytest.MonkeyPatch, value: str, offline: bool
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", value)
    assert checks_of(hymt_here)["network"]["found"].startswith("offline: ") is offline


# The terminal


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"TERM": "xterm-256color", "NO_COLOR": "", "COLORTERM": ""}, "256 colours"),
        ({"TERM": "xterm", "NO_COLOR": "", "COLORTERM": "truecolor"}, "all colours"),
        ({"TERM": "xterm", "NO_COLOR": "", "COLORTERM": ""}, "16 colours"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "no colours (NO_COLOR)"),
        ({"TERM": "dumb", "NO_COLOR": ""}, "no colours"),
    ],
)
def test_what_the_terminal_can_show_is_told(
    hymt_here: RunHymt, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], said: str
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert said in checks_of(hymt_here, **environ)["terminal"]["found"]
