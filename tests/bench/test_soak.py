import json

import pytest

from tests.bench import soak

pytestmark = pytest.mark.llama


@pytest.mark.parametrize("arguments", [[], ["--process", "--kill-every", "1.5"]])
def test_whoever_comes_and_goes_gets_his_own_text(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    soak.main(["--json", "--minutes", "0.04", *arguments])  # its status judges the memory of this whole test run too
    row = json.loads(capsys.readouterr().out)
    assert row["answers"] > 10
    assert row["left"] > 0
    assert row["wrong"] == 0
    assert bool(row["kills"]) == bool(arguments)
