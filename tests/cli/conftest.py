"""Runs `hymt` as a shell does, a process with bytes in and bytes out; or, where nothing depends on that, in here."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from hymt_local.cli import doctor_engine
from hymt_local.cli.app import run
from hymt_local.cli.check import Check


@dataclass(frozen=True)
class Completed:
    """What a finished command left behind."""

    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


RunHymt = Callable[..., Completed]


@pytest.fixture(scope="session")
def bytecode_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled modules for all processes: half of a start, where the environment forbids to write them."""
    return tmp_path_factory.mktemp("bytecode")


@pytest.fixture
def process_environ(bytecode_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """The environment of a new process: that of this test, without what the developer's shell tells Python."""
    for name in [name for name in os.environ if name.startswith("PYTHON")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(bytecode_folder))
    return os.environ


@pytest.fixture
def hymt(process_environ: Mapping[str, str]) -> RunHymt:
    """Run `python -m hymt_local ARGUMENTS` with this test's own home."""

    def run_process(*arguments: str | bytes, stdin: bytes = b"", environ: Mapping[str, str] | None = None) -> Completed:
        done = subprocess.run(
            [sys.executable, "-m", "hymt_local", *arguments],
            input=stdin,
            capture_output=True,
            env={**process_environ, **(environ or {})},
            timeout=120,
            check=False,
        )
        return Completed(done.returncode, done.stdout, done.stderr.decode())

    return run_process


@pytest.fixture
def hymt_here(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> RunHymt:
    """Run a command line in this process: the same code but for the entry point, a hundred times as fast."""

    def run_here(*arguments: str, stdin: bytes = b"", environ: Mapping[str, str] | None = None) -> Completed:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            for name, value in (environ or {}).items():
                patch.setenv(name, value)
            capsysbinary.readouterr()
            status = run(arguments)
        out, err = capsysbinary.readouterr()
        return Completed(status, out, err.decode())

    return run_here


@pytest.fixture
def no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `hymt doctor` believe that a child process has survived loading the engine: a second less per run."""
    monkeypatch.setattr(doctor_engine, "check_processor", lambda: Check("processor", "ok", "not tried"))
