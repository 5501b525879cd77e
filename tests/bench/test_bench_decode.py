import json
import math
from pathlib import Path

import pytest

from tests.bench import bench_decode
from tests.bench.bench_decode import Sample, summarize
from tests.toy_models import ToyGeometry

pytestmark = pytest.mark.llama


def test_both_loops_run_on_one_file_and_are_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("HEAVY", "LIGHT"):
        monkeypatch.setattr(bench_decode, name, ToyGeometry())
    bench_decode.main(["--json", "--series", "2", "--rounds", "2", "--tokens", "5"])
    rows = json.loads(capsys.readouterr().out)
    assert [(row["file"], row["rounds"], row["tokens_per_round"]) for row in rows] == [("heavy", 4, 5), ("light", 4, 5)]
    for row in rows:
        assert all(math.isfinite(row[key]) and row[key] > 0 for key in ("bare_ms", "engine_ms", "wall_ratio"))


def test_ratios_are_medians_of_the_rounds_own_ratios(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"12345")
    pairs = [
        (Sample(2.0, 1.0), Sample(4.0, 2.0)),
        (Sample(9.0, 1.0), Sample(9.0, 1.0)),
        (Sample(1.0, 1.0), Sample(2.0, 4.0)),
    ]
    comparison = summarize(tmp_path / "m.gguf", pairs, threads=1, n_tokens=3)
    assert (comparison.wall_ratio, comparison.cpu_ratio) == (0.5, 0.5)
    assert (comparison.bare_ms, comparison.engine_ms, comparison.overhead_us) == (2000, 4000, 1e6)
