import json
from pathlib import Path

import pytest

from tests.bench import bench_reuse
from tests.toy_models import write_toy_model

pytestmark = pytest.mark.llama


def test_edits_and_prefixes_are_measured_on_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_toy_model(tmp_path / "toy.gguf")
    bench_reuse.main(["--json", "--rounds", "2", "--prefixes", "20", "200", "--model", str(path)])
    rows = json.loads(capsys.readouterr().out)
    assert [row["what"] for row in rows] == [
        "word appended",
        "word changed",
        "prefix of 20, with two more tokens",
        "prefix of 200, with two more tokens",
    ]
    assert all(row["rounds"] == 2 and row["wall_ratio"] > 0 for row in rows)
    assert all(row["same"] for row in rows)
