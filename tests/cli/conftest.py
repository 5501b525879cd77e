"""Runs `hymt` the way a shell does: as a process, with bytes in and bytes out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest


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


@pytest.fixture
def hymt() -> RunHymt:
    """Run `python -m hymt_local ARGUMENTS` with this test's own home."""

    def run(*arguments: str, stdin: bytes = b"", environ: Mapping[str, str] | None = None) -> Completed:
        done = subprocess.run(
            [sys.executable, "-m", "hymt_local", *arguments],
            input=stdin,
            capture_output=True,
            env={**os.environ, **(environ or {})},
            timeout=120,
            check=False,
        )
        return Completed(done.returncode, done.stdout, done.stderr.decode())

    return run
