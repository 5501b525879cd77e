"""A document of four lines, and the folder of the journals."""

from __future__ import annotations

from pathlib import Path

import pytest

from hymt_local.paths import Paths


@pytest.fixture
def state_dir(paths: Paths) -> Path:
    return paths.state_dir


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "report.txt"
    path.write_text("First.\n\nSecond.\n\nFirst.\n\n12\n", encoding="utf-8")
    return path
