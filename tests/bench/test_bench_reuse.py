import json
from pathlib import Path

import pytest

from tests.bench import bench_reuse
from tests.bench.edits import N_IDS
from tests.toy_models import ToyGeometry, ToyModel, write_toy_model

pytestmark = pytest.mark.llama


def test_edits_and_prefixes_are_measured_on_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_toy_model(tmp_path / "toy.gguf", ToyModel(ToyGeometry(n_filler_tokens=N_IDS)))
    bench_reuse.main(["--json", "--rounds", "2", "--edits", "2", "--prefixes", "20", "200", "--model", str(path)])
    rows = json.loads(capsys.readouterr().out)
    assert [row["what"] for row in rows] == [
        "word appended",
        "word changed",
        "prefix of 20: restored instead of read",
        "prefix of 20: first token, two tokens later",
        "prefix of 200: restored instead of read",
        "prefix of 200: first token, two tokens later",
    ]
    assert all(row["rounds"] == 2 for row in rows)
    assert all(row["same"] for row in rows)
