"""The command: bytes on stdout, one error and one hint on stderr, documented statuses, and no torch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from hymt_convert.__main__ import main
from tests.convert import toy_checkpoint as toy

FORBIDDEN = ("torch", "transformers", "tokenizers", "safetensors", "textual")
BLOCKER = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {FORBIDDEN!r}:
            raise ImportError(f"{{name}} must not be imported")
sys.meta_path.insert(0, Blocker())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    toy.write_checkpoint(tmp_path / "toy")
    return tmp_path / "toy"


def run(arguments: Sequence[str | Path], *, prelude: str = "") -> subprocess.CompletedProcess[str]:
    code = f"{prelude}\nfrom hymt_convert.__main__ import main\nimport sys\nsys.exit(main())"
    return subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def test_a_folder_is_converted_without_torch_and_transformers(folder: Path, tmp_path: Path) -> None:
    result = run(
        [folder, "--quant", "q8_0", "--quant", "f16", "-o", tmp_path / "out", "--name", "demo"], prelude=BLOCKER
    )
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == f"{tmp_path / 'out' / 'demo-Q8_0.gguf'}  Q8_0  0.1 MB"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["demo-F16.gguf", "demo-Q8_0.gguf"]


def test_help_imports_nothing_heavy() -> None:
    heavy = (*FORBIDDEN, "numpy", "gguf", "llama_cpp", "rich", "sentencepiece")
    code = (
        "import sys\nfrom hymt_convert.command import convert_command\n"
        "convert_command.main(['--help'], standalone_mode=False)\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_a_dry_run_prints_the_plan_and_writes_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder), "--quant", "Q8_0", "-o", str(tmp_path / "out"), "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["architecture"] == "hunyuan-dense"
    assert plan["special_ids"] == {"bos": toy.BOS, "eos": toy.EOS, "padding": toy.PAD}
    assert plan["files"] == [str(tmp_path / "out" / "toy-Q8_0.gguf")]
    assert set(plan["expected_s"]) == {"writing", "quantizing", "checking"}
    assert plan["time"].startswith("about 1 min on ")
    assert not (tmp_path / "out").exists()


def test_a_plan_is_shown_for_people(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder), "--quant", "Q8_0", "-o", str(tmp_path / "out"), "--dry-run"]) == 0
    rows = dict(re.split(r":\s+", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["special_ids"] == f"bos {toy.BOS}, eos {toy.EOS}, padding {toy.PAD}"
    assert rows["chat_template"] == "yes"
    assert rows["disk_space_needed"] == "0.13 GB"
    assert rows["file"] == str(tmp_path / "out" / "toy-Q8_0.gguf")
    assert "expected_s" not in rows


def test_a_result_is_shown_for_people(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder), "--quant", "f16", "-o", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{tmp_path / 'toy-F16.gguf'}  F16  0.2 MB"
    assert lines[1] == "sound:   yes"
    assert re.fullmatch(r"elapsed: \d+\.\d s", lines[2])


def test_the_result_as_json(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder), "--quant", "f16", "-o", str(tmp_path), "--json"]) == 0
    file = json.loads(capsys.readouterr().out)["files"][0]
    path = tmp_path / "toy-F16.gguf"
    assert file == {
        "path": str(path),
        "quantization": "F16",
        "size_bytes": path.stat().st_size,
        "fallbacks": {},
        "model": None,
    }


def test_a_replaced_type_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shape = toy.Shape(hidden_size=256, intermediate_size=96, num_attention_heads=4, head_dim=64, num_hidden_layers=1)
    toy.write_checkpoint(tmp_path / "toy", shape)
    assert main([str(tmp_path / "toy"), "--quant", "Q4_K_M", "-o", str(tmp_path)]) == 0
    warning = capsys.readouterr().err
    assert warning.startswith("warning: 1 tensors of toy-Q4_K_M.gguf are stored as ")
    assert warning.count("\n") == 1


@pytest.mark.parametrize(
    ("damage", "arguments", "status", "message"),
    [
        ("", ["--quant", "Q9"], 2, "error: unknown quantization 'Q9'\nhint: One of F32"),
        ("", ["--unknown"], 2, "error: No such option"),
        ("", ["--name", "a/b"], 2, "error: 'a/b' is no usable name"),
        ("config.json", [], 3, "has no config.json\nhint: "),
        ("model.safetensors", [], 3, "has no safetensors file\nhint: "),
        ("tokenizer.json", [], 3, "has none of tokenizer.json, hy.tiktoken and tokenizer.model\nhint: "),
        ("tokenizer_config.json", [], 3, "gives the BOS token\nhint: "),
    ],
)
def test_every_error_is_one_line_and_a_hint(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: str,
    arguments: list[str],
    status: int,
    message: str,
) -> None:
    if damage:
        (folder / damage).unlink()
    assert main([str(folder), "-o", str(tmp_path / "out"), "-q", "f16", *arguments]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") <= 2
    assert not (tmp_path / "out").exists()


def test_an_error_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "missing"), "--json"]) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["code"] == "model_file"
    assert captured.err == ""


def test_names_from_a_checkpoint_cannot_command_the_terminal(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = toy.random_weights(toy.Shape())
    toy.write_safetensors(
        folder / "model.safetensors", {**weights, "evil\x1b]0;title\x07": weights["model.norm.weight"]}
    )
    assert main([str(folder), "-q", "f16", "-o", str(tmp_path)]) == 3
    assert "\x1b" not in capsys.readouterr().err


LIMIT = "import resource, signal; resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))"
"""A file that may not grow is what a full disk looks like to the writer, and needs no rights to set up."""


@pytest.mark.parametrize("quantization", ["f32", "q8_0"])
def test_a_disk_that_fills_up_is_one_error_and_leaves_nothing(folder: Path, tmp_path: Path, quantization: str) -> None:
    result = run([folder, "-q", quantization, "-o", tmp_path / "out"], prelude=LIMIT)
    assert result.returncode == 6
    assert result.stderr.startswith("error: cannot write ")
    assert "Traceback" not in result.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_a_defect_is_shown_without_a_traceback(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hymt_convert.conversion.plan_conversion", lambda request: 1 // 0)
    assert main([str(folder)]) == 4
    assert capsys.readouterr().err == "error: internal error: ZeroDivisionError: integer division or modulo by zero\n"


def test_an_interrupt_has_its_own_status(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(request: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hymt_convert.conversion.plan_conversion", interrupt)
    assert main([str(folder)]) == 130
    assert capsys.readouterr().err.strip() == "error: interrupted\nhint: The same command goes on from here."
