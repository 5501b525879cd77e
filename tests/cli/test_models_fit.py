"""`hymt models fit`, and the refusal of what does not fit before it is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hymt_local.application import Application
from hymt_local.engine import machine as machine_module
from hymt_local.engine.fit import MachineFacts
from tests.cli.conftest import Completed, RunHymt
from tests.machines import machine
from tests.toy_models import write_toy_model


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the program believe that it runs on another machine."""

    def simulate(facts: MachineFacts) -> None:
        monkeypatch.setattr(Application, "probe_machine", lambda self: facts)
        monkeypatch.setattr(machine_module, "probe_machine", lambda *_, **__: facts)  # asked where a model is loaded

    return simulate


def parsed(done: Completed) -> Any:
    assert done.err == ""
    return json.loads(done.out)


def test_the_whole_catalog_is_judged_and_the_recommendation_marked(hymt_here: RunHymt, simulated: Any) -> None:
    simulated(machine(8, 6))
    done = hymt_here("models", "fit")
    assert (done.status, done.err) == (0, "")
    lines = done.text.splitlines()
    assert lines[0] == "5.0 GiB of 8.0 GiB memory available, 4 physical cores, GPU with 5.5 GiB free"
    assert [line.split()[1] for line in lines if line.startswith("*")] == ["Hy-MT2-7B:Q4_K_M"]
    assert lines[-1] == "`hymt models pull` fetches Hy-MT2-7B:Q4_K_M (4.6 GB, Apache License 2.0)."
    assert "does not fit" in done.text


def test_one_model_is_explained(hymt_here: RunHymt, simulated: Any) -> None:
    simulated(machine(16, 4))
    done = hymt_here("models", "fit", "hy-mt2-7b")
    assert (done.status, done.err) == (0, "")
    assert "Hy-MT2-7B:Q4_K_M" in done.text
    assert "- 20 of 33 layers on GPU, where 3.5 GiB are free" in done.text
    assert "- 5 threads: one less than the 6 physical cores" in done.text


def test_one_thread_is_singular(hymt_here: RunHymt, simulated: Any) -> None:
    simulated(machine(16))
    assert "at once                 32 texts, 1 thread\n" in hymt_here("models", "fit", "demo").text


def test_what_does_not_fit_is_status_3_with_the_nearest_thing_that_does(hymt_here: RunHymt, simulated: Any) -> None:
    simulated(machine(4))
    done = hymt_here("models", "fit", "Hy-MT2-7B:Q8_0")
    assert done.status == 3
    assert "does not fit" in done.text
    assert " more than is available" in done.text
    assert "leaves" not in done.text
    assert done.text.splitlines()[-1].startswith("-> `hymt models pull Hy-MT2-1.8B:Q4_K_M` fits here")


def test_the_json_has_machine_plan_and_recommendation(hymt_here: RunHymt, simulated: Any) -> None:
    simulated(machine(8))
    everything = parsed(hymt_here("models", "fit", "--json"))
    assert everything["recommended"] == "Hy-MT2-1.8B:Q8_0"
    assert everything["machine"]["n_cores"] == 4
    assert everything["models"][0]["plan"]["verdict"] == "good"
    one = parsed(hymt_here("models", "fit", "Hy-MT2-30B-A3B", "--json"))
    assert one["plan"]["verdict"] == "no"
    assert "Hy-MT2-1.8B:Q8_0" in one["hint"]


def test_a_file_is_judged_by_its_header(hymt_here: RunHymt, simulated: Any, tmp_path: Path) -> None:
    simulated(machine(4))
    done = hymt_here("models", "fit", str(write_toy_model(tmp_path / "toy.gguf")))
    assert (done.status, done.err) == (0, "")
    assert done.text.splitlines()[2].split() == ["toy.gguf", "fits"]


def test_an_installed_model_is_judged_by_its_header_too(hymt_here: RunHymt, simulated: Any, tmp_path: Path) -> None:
    simulated(machine(4))
    hymt_here("models", "import", str(write_toy_model(tmp_path / "toy.gguf")), "--as", "Hunyuan-MT-7B")
    assert hymt_here("models", "fit", "Hunyuan-MT-7B").text.splitlines()[2].split() == ["Hunyuan-MT-7B:F32", "fits"]


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        ("nonsense", "unknown model"),
        ("Hunyuan-MT-7B", "has no published GGUF"),
        ("Hy-MT2-7B:Q2_K", "is not published as Q2_K"),
        ("Hy-MT2-1.8B:1.25bit", "cannot be run by this program"),
        ("absent.gguf", "there is no file"),
    ],
)
def test_what_cannot_be_judged_is_one_error(hymt_here: RunHymt, simulated: Any, ref: str, said: str) -> None:
    simulated(machine(16))
    done = hymt_here("models", "fit", ref)
    assert (done.status, done.out) == (3, b"")
    what, hint = done.err.splitlines()
    assert said in what
    assert hint.startswith("hint: ")


def test_this_very_machine_can_be_asked(hymt_here: RunHymt) -> None:
    done = hymt_here("models", "fit", "--json")
    assert done.status == 0
    assert parsed(done)["machine"]["total_bytes"] > 0


# Before loading


@pytest.mark.llama
def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(
    hymt_here: RunHymt, simulated: Any, tmp_path: Path
) -> None:
    hymt_here("models", "import", str(write_toy_model(tmp_path / "toy.gguf")), "--as", "Hunyuan-MT-7B")
    simulated(machine(4, available=0.01))
    done = hymt_here("hello", "-f", "en", "-t", "fr", "-m", "Hunyuan-MT-7B")
    assert (done.status, done.out) == (3, b"")
    what, hint = done.err.splitlines()
    assert what.startswith("error: Hunyuan-MT-7B:F32 does not fit: ")
    assert "memory_check false" in hint


@pytest.mark.llama
def test_the_refusal_can_be_overridden(hymt_here: RunHymt, simulated: Any, tmp_path: Path) -> None:
    hymt_here("models", "import", str(write_toy_model(tmp_path / "toy.gguf")), "--as", "Hunyuan-MT-7B")
    simulated(machine(4, available=0.01))
    done = hymt_here("hello", "-f", "en", "-t", "fr", "-m", "Hunyuan-MT-7B", environ={"HYMT_MEMORY_CHECK": "0"})
    assert "is token 262 in the file" in done.err  # it was loaded, and found out as a toy
