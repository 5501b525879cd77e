"""The bench of a busy core runs, and scales as it says."""

import json
from pathlib import Path

import pytest

from tests.bench import bench_busy_core
from tests.toy_models import ToyGeometry

pytestmark = pytest.mark.llama


def test_the_bench_compares_quiet_and_busy(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench_busy_core, "HEAVY", ToyGeometry())
    bench_busy_core.main(["--json", "--rounds", "1", "--tokens", "5"])
    rows = json.loads(capsys.readouterr().out)
    assert rows
    assert all(row["kept"] > 0 for row in rows)


def test_what_is_kept_is_scaled_by_the_cores_left() -> None:
    summary = bench_busy_core._summary(Path("m.gguf"), [(1.0, 2.0), (1.0, 4.0), (1.0, 1.0)], threads=4, cores=4)
    assert summary.kept == 0.5
    assert summary.kept_of_cores_left == pytest.approx(2 / 3)
