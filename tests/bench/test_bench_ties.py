import json

import pytest

from tests.bench import bench_ties

pytestmark = pytest.mark.llama


def test_answers_part_only_where_two_tokens_are_almost_equally_likely(capsys: pytest.CaptureFixture[str]) -> None:
    bench_ties.main(["--json", "--slots", "1", "16", "--languages", "de", "ja", "ru"])
    rows = {row["way"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["1 at once, f16"]["different"] == 0
    for row in rows.values():
        assert row["answers"] == 48
        assert row["share"] <= 0.15
        assert row["largest_gap"] <= 0.5
    assert rows["16 at once, bf16"]["different"] <= 1
