"""What the convert command does beyond writing files: importance matrices, single tensors' types, checks, measures."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hymt_convert.passages
from hymt_convert.__main__ import main
from hymt_convert.conversion import ConversionRequest, fingerprint, plan_conversion
from hymt_convert.imatrix import read_imatrix
from hymt_convert.quantize import tensor_type_rule
from hymt_convert.verify import Check, VerifyReport, read_file_facts, read_metadata
from tests.convert import toy_checkpoint as toy

pytestmark = pytest.mark.llama
SHAPE = toy.Shape(
    hidden_size=256,
    intermediate_size=256,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    num_hidden_layers=1,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    toy.write_checkpoint(tmp_path / "toy", SHAPE)
    return tmp_path / "toy"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read three languages, and in this process."""

    def call(function: Callable[..., object], *arguments: object, **options: object) -> object:
        return function(*arguments, **options)

    rows = tuple(
        (part, {tag: texts[tag] for tag in ("en", "zh", "de")})
        for part, texts in hymt_convert.passages._all_sentences()
    )
    monkeypatch.setattr(hymt_convert.passages, "_all_sentences", lambda: rows)
    monkeypatch.setattr("hymt_convert.conversion.run_isolated", call)
    monkeypatch.setattr("hymt_convert.verify.run_isolated", call)


def convert(folder: Path, output: Path, *options: str) -> int:
    return main([str(folder), "-o", str(output), "--threads", "1", *options])


def table(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    result = json.loads(capsys.readouterr().out)
    assert isinstance(result, dict)
    return result


def test_a_low_bit_type_with_a_computed_importance_matrix(
    folder: Path, output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(folder, output, "-q", "iq2_xs", "--imatrix", "--json") == 0
    result = table(capsys)
    matrix = read_imatrix(Path(result["imatrix"]))
    assert sorted(path.name for path in output.iterdir()) == ["toy-IQ2_XS.gguf", "toy-imatrix.gguf"]
    assert set(matrix.entries) == {
        f"blk.0.{name}.weight"
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    }
    metadata = read_metadata(output / "toy-IQ2_XS.gguf")
    assert metadata["quantize.imatrix.file"] == "toy-imatrix.gguf"
    assert metadata["quantize.imatrix.dataset"] == "hymt-local calibration sentences"
    assert metadata["quantize.imatrix.entries_count"] == 7


def test_a_given_importance_matrix_is_used(folder: Path, output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(folder, output, "-q", "Q8_0", "--imatrix") == 0
    given = output / "toy-imatrix.gguf"
    assert convert(folder, output / "more", "-q", "Q2_K_S", "--imatrix-file", str(given)) == 0
    assert [path.name for path in (output / "more").iterdir()] == ["toy-Q2_K_S.gguf"]
    assert "imatrix: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["-q", "IQ2_XS"], 2, "IQ2_XS needs an importance matrix\nhint: Add --imatrix"),
        (["--imatrix-file", "missing.gguf"], 3, "missing.gguf"),
        (["--imatrix", "--imatrix-file", "x.gguf"], 2, "either computed or given"),
        (["--tensor-type", "attn_v"], 2, "not of the form NAME=TYPE"),
        (["--tensor-type", "atn_v=Q8_0"], 2, "no matrix of the model is called 'atn_v'"),
    ],
)
def test_options_that_cannot_work_are_refused_at_once(
    folder: Path,
    output: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    status: int,
    message: str,
) -> None:
    assert convert(folder, output, *options) == status
    assert message in capsys.readouterr().err
    assert not output.exists()


def test_single_tensors_get_the_types_they_are_given(folder: Path, output: Path) -> None:
    assert convert(folder, output, "-q", "Q4_K_M", "--tensor-type", "attn_v=q8_0", "--tensor-type", "ffn=Q6_K") == 0
    types = read_file_facts(output / "toy-Q4_K_M.gguf").tensor_types
    assert (types["blk.0.attn_v.weight"], types["blk.0.ffn_up.weight"]) == ("Q8_0", "Q6_K")


def test_files_are_verified_unless_asked_not_to(folder: Path, output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(folder, output, "-q", "Q8_0", "--json") == 0
    result = table(capsys)
    assert result["sound"] is True
    checks = {check["name"]: check["outcome"] for check in result["verification"][0]["checks"]}
    assert checks["checkpoint"] == checks["tokenizer"] == checks["numbers"] == "ok"
    assert convert(folder, output, "-q", "Q8_0", "--json", "--no-verify") == 0
    assert {"sound", "verification", "quality"}.isdisjoint(table(capsys))


def test_a_file_that_does_not_work_is_an_error_and_kept(
    folder: Path, output: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsound(path: Path, **options: object) -> VerifyReport:
        return VerifyReport(path, None, "Q8_0", 1, (Check("numbers", "failed", "it predicts nothing"),))

    monkeypatch.setattr("hymt_convert.conversion.verify_file", unsound)
    assert convert(folder, output, "-q", "Q8_0") == 3
    captured = capsys.readouterr()
    assert captured.err == "error: toy-Q8_0.gguf: numbers: it predicts nothing\n"
    assert (output / "toy-Q8_0.gguf").exists()


@pytest.mark.parametrize("options", [["--quality", "-q", "Q4_0"], ["-q", "F32", "-q", "Q4_0"]])
def test_the_cost_is_measured_on_request_or_when_an_unquantized_file_is_kept(
    folder: Path, output: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    assert convert(folder, output, *options, "-q", "Q8_0", "--json") == 0
    rough, fine = table(capsys)["quality"]
    assert (rough["quantization"], fine["quantization"]) == ("Q4_0", "Q8_0")
    assert rough["mean_kl"] > fine["mean_kl"] > 0
    assert rough["top1_agreement"] < fine["top1_agreement"] <= 1


def test_the_cost_is_shown_as_a_table(folder: Path, output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(folder, output, "-q", "Q8_0", "--quality") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == ["FILE", "TYPE", "MB"]
    assert lines[2].split()[:2] == ["toy-Q8_0.gguf", "Q8_0"]


def test_a_killed_run_with_other_options_is_not_gone_on_with(folder: Path, output: Path) -> None:
    request = ConversionRequest(folder, output, ("Q8_0",))
    plans = [
        plan_conversion(each)
        for each in (request, replace(request, imatrix=True), replace(request, rules=(tensor_type_rule("ffn=Q6_K"),)))
    ]
    assert len({fingerprint(plan) for plan in plans}) == 3
