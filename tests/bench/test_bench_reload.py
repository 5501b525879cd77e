import json

import pytest

from tests.bench import bench_reload

pytestmark = pytest.mark.llama


def test_nothing_grows_when_a_model_is_closed_and_opened_again(capsys: pytest.CaptureFixture[str]) -> None:
    bench_reload.main(["--json", "--cycles", "12"])
    row = json.loads(capsys.readouterr().out)
    assert (row["new_files"], row["new_threads"]) == (0, 0)
    assert row["growth_bytes_per_cycle"] < 512 << 10
