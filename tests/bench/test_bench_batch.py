import json
from pathlib import Path

import pytest

from tests.bench import bench_batch
from tests.toy_models import write_toy_model

pytestmark = pytest.mark.llama


def test_both_ways_are_run_on_one_file_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_toy_model(tmp_path / "toy.gguf")
    bench_batch.main(["--json", "--rounds", "1", "--segments", "10", "--model", str(path)])
    row = json.loads(capsys.readouterr().out)
    assert (row["slots"], row["segments"], row["threads"]) == (32, 10, 1)
    assert row["wall_ratio"] > 0
    assert row["interactive_ratio"] > 0
    assert row["different"] <= 0.2
