import json

import pytest

from tests.bench import load_server


@pytest.mark.slow
def test_a_short_load_loses_and_crosses_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    status = load_server.main(["--clients", "3", "--seconds", "1", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert result["faults"] == []
    assert result["counts"]["answered"] > 0
    assert status == 0
