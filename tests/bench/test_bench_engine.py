import json
from pathlib import Path

import pytest

from tests.bench import bench_cancel, bench_load
from tests.toy_models import ToyModel, write_toy_model

pytestmark = pytest.mark.llama


def test_loading_is_compared_with_llama_cpps_defaults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_toy_model(tmp_path / "toy.gguf", ToyModel())
    bench_load.main(["--json", "--rounds", "1", "--cold", "--model", str(path)])
    row = json.loads(capsys.readouterr().out)
    assert row["cold"] is True
    assert min(row["load_s"], row["first_token_s"], row["load_ratio"], row["rss_ratio"]) > 0


def test_a_cancelled_generation_leaves_the_slot_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_toy_model(tmp_path / "toy.gguf", ToyModel())
    bench_cancel.main(["--json", "--rounds", "6", "--model", str(path)])
    row = json.loads(capsys.readouterr().out)
    assert row["wrong"] == 0
    assert row["reading_worst_ms"] < 5_000
    assert row["process_ratio"] > 0
