"""Verifying model files, whoever made them, and the commands that verify and repair."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from hymt_convert.conversion import ConversionRequest, convert
from hymt_convert.header_faults import EOS
from hymt_convert.isolated import run_isolated
from hymt_convert.passages import all_texts
from hymt_convert.probe import Translation, probe_file
from hymt_convert.repair import repair_file
from hymt_convert.repair_command import repair_command
from hymt_convert.subcommands import SUBCOMMANDS, CommandWithSubcommands, load_subcommand
from hymt_convert.verify import AWKWARD_TEXTS, Check, _check_translations, verify_file
from hymt_convert.verify_command import verify_command
from hymt_local.catalog import ModelSpec, load_catalog
from hymt_local.cli.app import run as run_program
from hymt_local.engine.gguf_file import read_header
from hymt_local.errors import EngineError, HymtError, ModelFileError, UsageError
from hymt_local.installed import demo_file
from tests.convert import toy_checkpoint, toy_moe
from tests.toy_models import CONTROL_TOKENS, ToyModel, control_id, write_toy_model

END = control_id("<|eos|>")


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    return write_toy_model(tmp_path / "toy.gguf")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return write_toy_model(tmp_path / "broken.gguf", ToyModel(eos_token="$"))


@pytest.fixture(scope="module")
def demo() -> ModelSpec:
    return load_catalog().get("demo")


def failed(path: Path, *, run: bool = True) -> dict[str, str]:
    return {check.name: check.message for check in verify_file(path, run=run).checks if check.outcome == "failed"}


@pytest.mark.llama
def test_a_sound_file_passes_every_check(toy: Path) -> None:
    report = verify_file(toy, threads=1)
    assert {check.name: check.outcome for check in report.checks} == {
        "structure": "ok",
        "tensors": "ok",
        "header": "ok",
        "numbers": "ok",
        "tokenizer": "ok",
        "translation": "skipped",
    }
    assert (report.is_sound, report.is_repairable, report.model_id) == (True, False, None)
    assert msgspec.json.decode(msgspec.json.encode(report.table()))["sound"] is True


@pytest.mark.llama
def test_the_embedded_demo_passes_every_check() -> None:
    report = verify_file(demo_file(), threads=1)
    assert (report.model_id, report.quantization) == ("demo", "Q8_0")
    assert {check.outcome for check in report.checks} == {"ok"}
    assert [each.target for each in report.translations] == ["早上好。", "Thanks.", "Bonjour."]


@pytest.mark.llama
def test_a_known_model_is_made_to_translate(toy: Path, demo: ModelSpec) -> None:
    report = verify_file(toy, spec=demo, threads=1)
    assert [(each.source_lang, each.target_lang) for each in report.translations] == [
        ("en", "zh"),
        ("zh", "en"),
        ("en", "fr"),
    ]
    assert report.checks[-1].outcome == "warning"  # the weights are random


@pytest.mark.llama
def test_a_mixture_of_experts_passes_every_check(tmp_path: Path) -> None:
    toy_moe.write_checkpoint(tmp_path / "toy")
    file = convert(ConversionRequest(tmp_path / "toy", tmp_path, ("Q8_0",))).files[0].path
    checks = verify_file(file, checkpoint=tmp_path / "toy", threads=1).checks
    assert {check.outcome for check in checks if check.name != "translation"} == {"ok"}


def test_the_published_fault_fails_and_is_repairable(broken: Path) -> None:
    report = verify_file(broken, run=False)
    assert (report.is_sound, report.is_repairable) == (False, True)
    assert Check("header", "failed", "texts end at token 36 ($), which is no control token") in report.checks


@pytest.mark.llama
@pytest.mark.parametrize("place", ["first", "last"])
def test_a_weight_that_is_no_number_is_found(toy: Path, place: str) -> None:
    header = read_header(toy)
    data = bytearray(toy.read_bytes())
    tensor = header.tensors[0 if place == "first" else -1]
    begin = header.data_offset + tensor.offset
    data[begin : begin + 4] = b"\x00\x00\xc0\x7f"
    toy.write_bytes(data)
    found = failed(toy)
    assert list(found) == ["numbers"]
    assert tensor.name in found["numbers"]


@pytest.mark.llama
def test_predictions_that_are_no_numbers_are_found(tmp_path: Path) -> None:
    assert "numbers" in failed(write_toy_model(tmp_path / "nan.gguf", ToyModel(scale=math.inf)))


def test_a_tensor_of_the_wrong_shape_is_named(toy: Path) -> None:
    repair_file(toy, {"hunyuan-dense.attention.head_count": 4, "hunyuan-dense.attention.head_count_kv": 1})
    assert failed(toy, run=False) == {
        "tensors": "blk.0.attn_q.weight has the shape (64, 64), the header says (64, 128)"
    }


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    path = write_toy_model(tmp_path / "t.gguf", ToyModel(skipped_tensors=frozenset({"blk.1.ffn_up.weight"})))
    assert "no tensor blk.1.ffn_up.weight" in failed(path, run=False)["tensors"]


def test_another_geometry_than_the_catalogs_is_found(toy: Path) -> None:
    spec = load_catalog().get("Hy-MT2-7B")
    report = verify_file(toy, spec=spec, run=False)
    messages = [check.message for check in report.checks if check.outcome == "failed"]
    assert messages[0] == "32 layers of width 4096 make a Hy-MT2-7B, not 2 of 64"


@pytest.mark.parametrize("content", [b"", b"GGUF\x03\x00\x00\x00", b"<html>", b"PK\x03\x04"])
def test_what_is_no_model_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.gguf").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"bad\.gguf is"):
        verify_file(tmp_path / "bad.gguf")


def test_a_truncated_file_is_one_clear_error(toy: Path) -> None:
    toy.write_bytes(toy.read_bytes()[:-100])
    with pytest.raises(ModelFileError, match="truncated"):
        verify_file(toy)


@pytest.mark.llama
@pytest.mark.parametrize(("merge", "outcome"), [(("h", "e"), "ok"), (("l", "o"), "failed")])
def test_the_vocabulary_is_compared_with_the_checkpoint(tmp_path: Path, merge: tuple[str, str], outcome: str) -> None:
    toy_checkpoint.write_checkpoint(tmp_path / "toy")
    file = convert(ConversionRequest(tmp_path / "toy", tmp_path, ("F32",))).files[0].path
    merges = [merge, *toy_checkpoint.MERGES[1:]]
    if outcome == "failed":
        merges = [*toy_checkpoint.MERGES[:3], merge, toy_checkpoint.MERGES[4]]
    toy_checkpoint.write_json(tmp_path / "toy" / "tokenizer.json", toy_checkpoint.tokenizer_json(merges=merges))
    checks = {check.name: check for check in verify_file(file, checkpoint=tmp_path / "toy", threads=1).checks}
    assert checks["checkpoint"].outcome == outcome
    expected = "the same ids" if outcome == "ok" else "is not that of the checkpoint"
    assert expected in checks["checkpoint"].message


@pytest.mark.llama
def test_texts_come_back_and_control_texts_stay_text(toy: Path) -> None:
    probe = probe_file(toy, None, (*all_texts(), *AWKWARD_TEXTS, *CONTROL_TOKENS), threads=1)
    assert (probe.changed_texts, probe.control_texts) == ((), ())
    assert len(probe.token_ids) == 494 + len(AWKWARD_TEXTS) + len(CONTROL_TOKENS)


def test_a_translation_that_fails_a_check_is_a_warning() -> None:
    good = Translation("en", "zh", "Good morning.", "早上好。", is_ended=True)
    assert _check_translations([good]).outcome == "ok"
    for target, is_ended in (("", True), ("早上好。", False), ("好<|eos|>", True)):
        bad = Translation("en", "zh", "Good morning.", target, is_ended=is_ended)
        assert _check_translations([good, bad]).outcome == "warning"


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let child processes find this module."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


def die(status: int) -> None:
    print("GGML_ASSERT(n > 0) failed", flush=True)
    os.abort() if status < 0 else os._exit(status)


def fail() -> None:
    raise UsageError("the message", hint="the hint")


def count(limit: int, *, on_step: object = None) -> str:
    assert callable(on_step)
    for number in range(limit):
        on_step(number, limit)
    return "done"


@pytest.mark.usefixtures("importable")
def test_a_crash_is_an_error_with_its_last_words() -> None:
    with pytest.raises(EngineError, match=r"GGML_ASSERT\(n > 0\) failed \(signal SIGABRT\)"):
        run_isolated(die, -1)
    with pytest.raises(EngineError, match=r"status 7"):
        run_isolated(die, 7)


def test_a_process_that_ends_at_once_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec >&2\necho no such module\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(EngineError, match=r"no such module \(status 3\)"):
        run_isolated(count, 10**6)


@pytest.mark.llama
def test_without_llama_cpp_the_rest_is_looked_at(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "llama_cpp.py").write_text("raise OSError('libllama.so: cannot open shared object file')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    report = verify_file(toy)
    assert (report.is_sound, report.checks[-1].name, report.checks[-1].outcome) == (True, "numbers", "skipped")
    assert "cannot open shared object file" in report.checks[-1].message


@pytest.mark.usefixtures("importable")
def test_an_error_crosses_the_processes() -> None:
    with pytest.raises(UsageError, match="the message") as caught:
        run_isolated(fail)
    assert caught.value.hint == "the hint"


@pytest.mark.usefixtures("importable")
def test_progress_crosses_the_processes_and_an_interrupt_ends_the_child() -> None:
    steps: list[tuple[int, int]] = []
    assert run_isolated(count, 3, on_step=lambda *step: steps.append(step)) == "done"
    assert steps == [(0, 3), (1, 3), (2, 3)]

    def interrupt(*step: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_isolated(count, 10**9, on_step=interrupt)


def run(command: object, *arguments: object) -> Result:
    assert isinstance(command, click.Command)
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)
    if result.exception is not None and not isinstance(result.exception, (HymtError, SystemExit)):
        raise result.exception
    return result


@pytest.mark.llama
def test_the_command_prints_a_line_for_each_check(toy: Path, broken: Path) -> None:
    result = run(verify_command, toy, broken, "--threads", 1)
    assert result.return_value == 3
    lines = result.stdout.splitlines()
    assert lines[0] == f"{toy}  unknown model  F32"
    assert "  failed   header       texts end at token 36 ($), which is no control token" in lines
    assert lines[-1] == f"  `hymt convert repair {shlex.quote(str(broken))}` repairs the header"


@pytest.mark.llama
def test_the_command_measures_against_a_reference(toy: Path, tmp_path: Path) -> None:
    other = write_toy_model(tmp_path / "other.gguf", ToyModel(scale=0.9))
    result = run(verify_command, other, "--reference", toy, "--threads", 1)
    assert result.return_value == 0
    header, row = result.stdout.splitlines()[-2:]
    assert " ".join(header.split()) == "FILE TYPE MB MEAN KL P99 KL MAX KL TOP-1 PPL RATIO CHRF"
    assert row.startswith("other.gguf  F32")
    table = json.loads(run(verify_command, other, "-r", toy, "--threads", 1, "--json").stdout)
    assert table["files"][0]["sound"] is True
    assert table["quality"][0]["mean_kl"] > 0


def test_the_command_names_the_model_it_is_told(toy: Path) -> None:
    table = json.loads(run(verify_command, toy, "--as", "Hy-MT2-7B", "--header-only", "--json").stdout)
    assert table["files"][0]["model"] == "Hy-MT2-7B"
    assert table["quality"] == []


def test_a_missing_file_is_one_error(tmp_path: Path) -> None:
    result = run(verify_command, tmp_path / "missing.gguf")
    assert isinstance(result.exception, ModelFileError)
    result = run(repair_command, tmp_path / "missing.gguf")
    assert isinstance(result.exception, ModelFileError)


def test_the_repair_command_repairs_in_place(broken: Path) -> None:
    shown = run(repair_command, broken, "--dry-run")
    assert shown.stdout.splitlines() == [
        "wrong: texts end at token 36 ($), which is no control token",
        f"{EOS}: 36 -> {END}",
        "nothing was written",
    ]
    assert read_header(broken).metadata[EOS] == 36
    result = run(repair_command, broken)
    assert result.return_value == 0
    assert result.stdout.splitlines()[-1] == f"{broken}: repaired in its place, 2 bytes written"
    assert read_header(broken).metadata[EOS] == END
    assert run(repair_command, broken).stdout == f"{broken}: nothing to repair\n"


def test_the_repair_command_writes_a_copy(broken: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    table = json.loads(run(repair_command, broken, "-o", copy, "--json").stdout)
    assert (table["path"], table["in_place"]) == (str(copy), False)
    assert table["changes"] == {EOS: {"old": 36, "new": END}}
    assert (read_header(copy).metadata[EOS], read_header(broken).metadata[EOS]) == (END, 36)


def test_tokens_and_templates_can_be_given(toy: Path, tmp_path: Path) -> None:
    (tmp_path / "template.jinja").write_text("{{ messages }}")
    result = run(
        repair_command, toy, "--eos", "<|pad|>", "--bos", control_id("<|bos|>"),
        "--chat-template", tmp_path / "template.jinja",
    )  # fmt: skip
    assert result.return_value == 0
    metadata = read_header(toy).metadata
    assert metadata[EOS] == control_id("<|pad|>")
    assert metadata["tokenizer.ggml.bos_token_id"] == control_id("<|bos|>")
    assert metadata["tokenizer.chat_template"] == "{{ messages }}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--eos", "$"], "is no control token"),
        (["--eos", "99999"], "no token '99999'"),
        (["--bos", "<|nothing|>"], "no token '<|nothing|>'"),
        (["--chat-template", "missing.jinja"], "cannot read the chat template"),
    ],
)
def test_what_cannot_be_put_in_is_refused(broken: Path, arguments: list[str], message: str) -> None:
    before = broken.read_bytes()
    result = run(repair_command, broken, *arguments)
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
    assert broken.read_bytes() == before


def test_what_no_header_can_repair_has_its_own_status(tmp_path: Path) -> None:
    path = write_toy_model(tmp_path / "t.gguf", ToyModel(eos_token="$", control_tokens=("<|one|>",)))
    result = run(repair_command, path)
    assert result.return_value == 3
    assert result.stdout.startswith("cannot be repaired: texts end at token 36 ($)")


def test_the_program_reaches_the_commands(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["models", "verify", str(broken), "--header-only"]) == 3
    assert "texts end at token 36 ($)" in capsys.readouterr().out
    assert run_program(["convert", "repair", str(broken)]) == 0
    assert run_program(["convert", "verify", str(broken), "--header-only"]) == 0
    assert run_program(["models", "verify", "--help"]) == 0
    assert "Usage: hymt models verify [OPTIONS] [MODEL... | FILE...]" in capsys.readouterr().out
    assert run_program(["models", "verify", str(broken.with_name("missing.gguf"))]) == 3
    assert capsys.readouterr().err.startswith("error: there is no file ")


def test_subcommands_are_reached_through_a_command_that_takes_an_argument(broken: Path) -> None:
    @click.command("convert", cls=CommandWithSubcommands)
    @click.argument("source")
    def parent(source: str) -> str:
        return f"converting {source}"

    assert run(parent, "folder").return_value == "converting folder"
    assert run(parent, "./verify").return_value == "converting ./verify"
    assert run(parent, "verify", broken, "--header-only").return_value == 3
    assert "Usage: convert repair [OPTIONS] FILE" in run(parent, "repair", "--help").stdout
    help_text = run(parent, "--help").stdout
    for name, (_, line) in SUBCOMMANDS.items():
        assert f"{name}  {line}" in help_text
        assert load_subcommand(name).name == name
