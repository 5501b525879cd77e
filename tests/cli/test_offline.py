"""Offline, everything that needs no download works: under the guard, and where there is no network at all.

A witness in every process of the program, engine and server included, writes down each socket that is meant for
another machine, also those that the guard then refuses: there must be none.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.cli.conftest import RunHymt
from tests.toy_models import write_toy_model
from tests.tui.pty_program import READY, REPOSITORY, Program

NAMESPACE = ("unshare", "--map-root-user", "--net", sys.executable, "-m", "tests.cli.loopback")
"""Linux: a network namespace with nothing in it but the loopback interface."""
HYMT = f"{sys.executable} -m hymt_local"
SOURCE, TARGET = "Where is the station?", "Où est la gare ?"
WITNESS = """
import ipaddress, os, sys

def is_here(host):
    if host in (None, "", b"", "localhost", b"localhost"):
        return True
    try:
        return ipaddress.ip_address(host.decode() if isinstance(host, bytes) else host).is_loopback
    except ValueError:
        return False

def watch(event, arguments):
    if event in {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}:
        host = arguments[0]
    elif event in {"socket.connect", "socket.sendto", "socket.sendmsg", "socket.bind"}:
        if arguments[0].family not in (2, 10) or arguments[-1] is None:
            return
        host = arguments[-1][0]
    else:
        return
    if not is_here(host):
        with open(os.environ["WITNESS"], "a") as file:
            file.write(f"{event} {host} {sys.argv}\\n")

sys.addaudithook(watch)
"""

everywhere = pytest.mark.parametrize(
    "surroundings",
    [pytest.param((), id="guard"), pytest.param(NAMESPACE, id="namespace", marks=pytest.mark.namespace)],
)


@pytest.fixture
def environ(process_environ: Mapping[str, str], tmp_path: Path) -> Iterator[dict[str, str]]:
    """Everything offline, each process watched; nobody may have meant another machine."""
    (tmp_path / "witness").mkdir()
    (tmp_path / "witness" / "sitecustomize.py").write_text(WITNESS)
    seen = tmp_path / "seen"
    yield {
        **process_environ,
        "PYTHONPATH": str(tmp_path / "witness"),
        "WITNESS": str(seen),
        "HYMT_OFFLINE": "1",
        "HYMT_ENGINE_PROCESS": "child",
        "HYMT_TARGET_LANG": "fr",
    }
    assert not seen.exists(), seen.read_text()


def run(environ: Mapping[str, str], *command: str) -> str:
    """Run a command to its good end and return what it printed."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=REPOSITORY,
        env=dict(environ),
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@everywhere
def test_a_text_is_translated(environ: Mapping[str, str], surroundings: tuple[str, ...]) -> None:
    said = run(environ, *surroundings, *HYMT.split(), SOURCE)
    assert said == f"{TARGET}\n"


@everywhere
def test_a_document_is_translated(environ: Mapping[str, str], tmp_path: Path, surroundings: tuple[str, ...]) -> None:
    (tmp_path / "doc.md").write_text(f"# {SOURCE}\n")
    run(environ, *surroundings, *HYMT.split(), "file", str(tmp_path / "doc.md"), "-o", str(tmp_path / "out.md"))
    assert (tmp_path / "out.md").read_text() == f"# {TARGET}\n"


@everywhere
def test_the_server_translates_texts_and_documents(
    environ: Mapping[str, str], tmp_path: Path, surroundings: tuple[str, ...]
) -> None:
    (tmp_path / "doc.md").write_text("# Good morning!\n")
    file = f"{HYMT} file {tmp_path}/doc.md -o {tmp_path}/out.md"
    script = f"{HYMT} '{SOURCE}'; {file}; {HYMT} ps; {HYMT} stop"
    said = run({**environ, "HYMT_RESIDENT": "on"}, *surroundings, "sh", "-ec", script)
    assert said.startswith(f"{TARGET}\n")
    assert "http://127.0.0.1:" in said
    assert (tmp_path / "out.md").read_text() == "# Bonjour.\n"


@pytest.mark.pty
@everywhere
def test_the_terminal_ui_translates(environ: Mapping[str, str], surroundings: tuple[str, ...]) -> None:
    program = Program(command=[*surroundings, *HYMT.split()], environ=environ)
    try:
        program.read_until(READY)
        program.send(SOURCE.encode())
        program.send(b"\x1b[15~")  # F5
        program.read_until(b"gare")
        program.send(b"\x11")  # ctrl+q
        assert program.wait() == 0
    finally:
        program.close()


@everywhere
def test_the_doctor_says_so(environ: Mapping[str, str], surroundings: tuple[str, ...]) -> None:
    assert "offline: no connection leaves this machine" in run(environ, *surroundings, *HYMT.split(), "doctor")


@pytest.mark.parametrize(
    ("command", "said"), [("fit", "physical core"), ("verify", "the file that was imported")], ids=["fit", "verify"]
)
def test_the_care_of_models_needs_no_network(
    hymt_here: RunHymt, environ: Mapping[str, str], tmp_path: Path, command: str, said: str
) -> None:
    hymt_here("models", "import", str(write_toy_model(tmp_path / "toy.gguf")), "--as", "Hunyuan-MT-7B")
    assert said in run(environ, *HYMT.split(), "models", command)


def test_the_witness_sees_what_the_guard_refuses(environ: dict[str, str], tmp_path: Path) -> None:
    program = (
        "import os, socket\nfrom hymt_local.offline import guarded\n"
        "with guarded(os.environ):\n    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, cwd=REPOSITORY, env=environ, check=False
    )
    assert b"offline: 192.0.2.1 was not contacted" in done.stderr
    seen = Path(environ["WITNESS"])
    assert "socket.connect 192.0.2.1" in seen.read_text()
    seen.unlink()


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
