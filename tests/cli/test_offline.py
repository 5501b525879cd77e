"""Offline, everything that needs no download works: under the guard, and where there is no network at all."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.conftest import RunHymt
from tests.toy_models import write_toy_model

NAMESPACE = ("unshare", "--map-root-user", "--net")
"""Linux: a network namespace of its own, in which not even the loopback interface is up."""


def can_unshare() -> bool:
    return bool(shutil.which("unshare")) and not subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode


COMMANDS = {
    "translate": (["Where is the station?", "-t", "fr", "-m", "echo"], "Where is the station?"),
    "fit": (["models", "fit"], "physical core"),
    "verify": (["models", "verify"], "the file that was imported"),
    "doctor": (["doctor"], "offline: no connection leaves this machine"),
}
IN_NAMESPACE = ("translate", "doctor")
CASES = [((), name) for name in COMMANDS] + [(NAMESPACE, name) for name in IN_NAMESPACE if can_unshare()]


@pytest.mark.parametrize(
    ("surroundings", "name"), CASES, ids=lambda value: value if isinstance(value, str) else len(value)
)
def test_what_needs_no_download_works_offline(
    hymt_here: RunHymt,
    process_environ: Mapping[str, str],
    tmp_path: Path,
    surroundings: tuple[str, ...],
    name: str,
) -> None:
    arguments, said = COMMANDS[name]
    hymt_here("models", "import", str(write_toy_model(tmp_path / "toy.gguf")), "--as", "Hunyuan-MT-7B")
    done = subprocess.run(
        [*surroundings, sys.executable, "-m", "hymt_local", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**process_environ, "HYMT_OFFLINE": "1"},
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout


def test_the_setting_closes_the_network_for_a_download(hymt_here: RunHymt) -> None:
    hymt_here("config", "set", "offline", "true")
    done = hymt_here("models", "pull", "Hy-MT2-1.8B:Q4_K_M", "--accept-licence", environ={"HYMT_MEMORY_CHECK": "0"})
    assert done.status == 3
    assert "offline: huggingface.co was not contacted" in done.err


def test_a_conversion_does_not_go_online_either(hymt_here: RunHymt) -> None:
    hymt_here("config", "set", "offline", "true")
    done = hymt_here("convert", "tencent/Hy-MT2-1.8B", "--quant", "Q4_K_M", "--json")
    assert done.status == 3
    assert (
        "offline"
        in json.loads(done.text.splitlines()[-1] if done.text.startswith('{"') else done.out)["error"]["message"]
    )
