"""Repairing headers: only the keys that are named change, tensors never do, and no interruption leaves a ruin."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections import namedtuple
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hymt_convert.chat_templates import CHAT_TEMPLATES, template_fault
from hymt_convert.header_faults import BOS, EOS, EOT, PAD, SEPARATORS, TEMPLATE, Fault, find_faults, identify
from hymt_convert.repair import FILLER_KEY, recover, repair_file
from hymt_local.catalog import ModelSpec, load_catalog
from hymt_local.engine.gguf_file import read_header
from hymt_local.engine.gguf_support import check_supported
from hymt_local.errors import ModelFileError, StoreError, UsageError
from tests.toy_models import CONTROL_TOKENS, DOLLAR, ToyModel, control_id, write_toy_model

DiskUsage = namedtuple("DiskUsage", "total used free")
END = control_id("<|eos|>")
BEGIN = control_id("<|startoftext|>")
SEPARATOR = SEPARATORS[0]


@pytest.fixture
def spec() -> ModelSpec:
    """Hy-MT2-7B with the toy's ids."""
    ids = {text: control_id(text) for text in CONTROL_TOKENS}
    return msgspec.structs.replace(load_catalog().get("Hy-MT2-7B"), control_ids=ids, geometry=None)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """The published fault: every text ends at a dollar sign."""
    return write_toy_model(tmp_path / "Hy-MT2-7B-Q8_0.gguf", ToyModel(eos_token="$"))


def tensor_hash(path: Path) -> str:
    header = read_header(path)
    rows = repr(header.tensors).encode()
    return hashlib.sha256(rows + path.read_bytes()[header.data_offset :]).hexdigest()


def metadata(path: Path) -> dict[str, object]:
    return {key: value for key, value in read_header(path, arrays=True).metadata.items() if key != FILLER_KEY}


def codes(faults: tuple[Fault, ...]) -> list[str]:
    return [fault.code for fault in faults]


def with_keys(path: Path, **keys: str | int | float | bool) -> Path:
    """Add keys to a sound file, as other converters do."""
    repair_file(path, {key.replace("__", "."): value for key, value in keys.items()})
    return path


def test_the_dollar_sign_is_found_and_repaired_in_place(broken: Path, spec: ModelSpec) -> None:
    before, tensors, old = broken.read_bytes(), tensor_hash(broken), metadata(broken)
    (fault, template) = find_faults(read_header(broken), spec)
    assert (fault.code, fault.is_grave, fault.changes) == ("eos", True, {EOS: END})
    assert fault.message == f"texts end at token {DOLLAR} ($), which is no control token"
    assert (template.code, template.is_grave) == ("chat_template", False)
    report = repair_file(broken, fault.changes)
    assert (report.in_place, report.changes) == (True, {EOS: (DOLLAR, END)})
    assert report.written_bytes <= 4
    assert metadata(broken) == {**old, EOS: END}
    assert tensor_hash(broken) == tensors
    assert sum(old != new for old, new in zip(before, broken.read_bytes(), strict=True)) <= 4
    assert [path.name for path in broken.parent.iterdir()] == [broken.name]


def test_a_repaired_file_is_sound(broken: Path, spec: ModelSpec) -> None:
    changes = {key: value for fault in find_faults(read_header(broken), spec) for key, value in fault.changes.items()}
    assert changes == {EOS: END, TEMPLATE: CHAT_TEMPLATES["hunyuan"]}
    tensors = tensor_hash(broken)
    report = repair_file(broken, changes)
    assert not report.in_place  # the template made the header longer
    header = read_header(broken)
    check_supported(header)
    assert find_faults(header, spec) == ()
    assert tensor_hash(broken) == tensors
    assert [path.name for path in broken.parent.iterdir()] == [broken.name]


def test_a_copy_leaves_the_file_as_it_was(broken: Path, tmp_path: Path) -> None:
    before = broken.read_bytes()
    seen: list[tuple[int, int]] = []
    target = tmp_path / "copy.gguf"
    report = repair_file(broken, {EOS: END}, target=target, on_bytes=lambda *step: seen.append(step))
    assert (report.path, report.in_place, report.written_bytes) == (target, False, target.stat().st_size)
    assert broken.read_bytes() == before
    assert tensor_hash(target) == tensor_hash(broken)
    assert metadata(target) == {**metadata(broken), EOS: END}
    assert seen[-1][0] > 0


def test_a_shorter_header_is_filled_up(broken: Path) -> None:
    with_keys(broken, tokenizer__ggml__seperator_token_id=5, tokenizer__chat_template="x" * 500)
    tensors, old, size = tensor_hash(broken), metadata(broken), broken.stat().st_size
    report = repair_file(broken, {SEPARATOR: None, TEMPLATE: "y"})
    assert report.in_place
    del old[SEPARATOR]
    assert metadata(broken) == {**old, TEMPLATE: "y"}
    assert (tensor_hash(broken), broken.stat().st_size) == (tensors, size)
    assert FILLER_KEY in read_header(broken).metadata
    assert repair_file(broken, {TEMPLATE: "z" * 400}).in_place  # into the room that was filled
    assert metadata(broken)[TEMPLATE] == "z" * 400
    assert tensor_hash(broken) == tensors


@given(st.text(max_size=300), st.text(max_size=300), st.integers(0, 2**32 - 1), st.booleans())
def test_any_change_keeps_tensors_and_other_keys(first: str, second: str, number: int, removes: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_toy_model(Path(folder) / "toy.gguf")
        tensors, old = tensor_hash(path), metadata(path)
        repair_file(path, {TEMPLATE: first, "general.file_type": number})
        repair_file(path, {TEMPLATE: None if removes else second})
        expected = {**old, "general.file_type": number} | ({} if removes else {TEMPLATE: second})
        assert metadata(path) == expected
        assert tensor_hash(path) == tensors


def test_nothing_to_change_writes_nothing(broken: Path) -> None:
    before = broken.stat()
    report = repair_file(broken, {EOS: DOLLAR, SEPARATOR: None})
    assert (report.changes, report.written_bytes) == ({}, 0)
    assert broken.stat().st_mtime_ns == before.st_mtime_ns


def test_a_link_is_followed(broken: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.gguf"
    link.symlink_to(broken)
    repair_file(link, {TEMPLATE: "x" * 100})
    assert link.is_symlink()
    assert metadata(broken)[TEMPLATE] == "x" * 100


def interrupt_while_patching(path: Path, key: str, value: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the journal on the disk and the file overwritten."""
    sync, calls = os.fsync, []

    def interrupted(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 2:  # the first is for the journal
            raise KeyboardInterrupt
        sync(handle)

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        repair_file(path, {key: value})
    monkeypatch.undo()


@pytest.mark.parametrize("n_written", [0, 3, 1000])
def test_an_interrupted_repair_is_undone_by_the_next(
    broken: Path, monkeypatch: pytest.MonkeyPatch, n_written: int
) -> None:
    with_keys(broken, tokenizer__ggml__seperator_token_id=5)
    before = broken.read_bytes()
    interrupt_while_patching(broken, SEPARATOR, None, monkeypatch)
    new = broken.read_bytes()
    assert new != before
    place = next(i for i in range(len(new)) if new[i] != before[i])
    broken.write_bytes(new[: place + n_written] + before[place + n_written :])
    assert recover(broken)
    assert broken.read_bytes() == before
    assert [path.name for path in broken.parent.iterdir()] == [broken.name]
    assert not recover(broken)


def test_a_journal_never_touches_another_file_of_the_name(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_while_patching(broken, EOS, END, monkeypatch)
    write_toy_model(broken, ToyModel(seed=7, eos_token="<|pad|>"))
    before = broken.read_bytes()
    assert recover(broken)
    assert broken.read_bytes() == before


def test_half_a_journal_is_dropped(broken: Path) -> None:
    before = broken.read_bytes()
    broken.with_name(f".{broken.name}.hymt-repair").write_bytes(b"half a journal")
    assert recover(broken)
    assert broken.read_bytes() == before


def test_too_little_room_for_a_copy_is_refused(broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = broken.read_bytes()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(1, 1, 1000))
    with pytest.raises(StoreError, match="MiB are needed"):
        repair_file(broken, {TEMPLATE: "x" * 10000})
    with pytest.raises(StoreError, match="MiB are needed"):
        repair_file(broken, {EOS: END}, target=tmp_path / "copy.gguf")
    assert broken.read_bytes() == before
    assert [path.name for path in broken.parent.iterdir()] == [broken.name]


def test_a_folder_that_does_not_exist_is_an_error(broken: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        repair_file(broken, {EOS: END}, target=tmp_path / "missing" / "copy.gguf")


@pytest.mark.parametrize("key", ["general.architecture", "general.alignment", FILLER_KEY])
def test_what_tensors_depend_on_cannot_be_changed(broken: Path, key: str) -> None:
    with pytest.raises(UsageError, match="cannot be changed"):
        repair_file(broken, {key: "x"})


@pytest.mark.parametrize("content", [b"", b"GGUF", b"<html>", b"GGUF\x03\x00\x00\x00" + b"\xff" * 16])
def test_a_damaged_file_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError):
        repair_file(path, {EOS: 1})
    assert path.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["bad.gguf"]


FAULTS: list[tuple[dict[str, str | int | float | bool], str, bool, dict[str, object]]] = [
    ({EOS: control_id("<|pad|>")}, "eos", True, {EOS: END}),
    ({EOS: 10**6}, "eos", True, {EOS: END}),
    ({BOS: 1}, "bos", True, {BOS: BEGIN}),
    ({BOS: control_id("<|bos|>")}, "bos", True, {BOS: BEGIN}),
    ({EOT: 5}, "eot", True, {EOT: None}),
    ({SEPARATOR: 262}, "separator", True, {SEPARATOR: None}),
    ({SEPARATORS[1]: 262}, "separator", True, {SEPARATORS[1]: None}),
    ({PAD: 0}, "padding", False, {PAD: control_id("<|pad|>")}),
    ({"tokenizer.ggml.add_bos_token": True}, "add_token", False, {"tokenizer.ggml.add_bos_token": None}),
    ({"tokenizer.ggml.pre": "llama-bpe"}, "pre_tokenizer", True, {"tokenizer.ggml.pre": "hunyuan"}),
    ({TEMPLATE: "{% if %}"}, "chat_template", False, {TEMPLATE: CHAT_TEMPLATES["hunyuan"]}),
    ({TEMPLATE: "<｜hy_User｜>"}, "chat_template", False, {TEMPLATE: CHAT_TEMPLATES["hunyuan"]}),
]


@pytest.mark.parametrize(("keys", "code", "is_grave", "changes"), FAULTS)
def test_every_fault_has_its_change(
    tmp_path: Path,
    spec: ModelSpec,
    keys: dict[str, str | int | float | bool],
    code: str,
    is_grave: bool,
    changes: dict[str, object],
) -> None:
    path = write_toy_model(tmp_path / "toy.gguf")
    repair_file(path, {TEMPLATE: CHAT_TEMPLATES["hunyuan"]})
    assert find_faults(read_header(path), spec) == ()
    repair_file(path, keys)
    (fault,) = find_faults(read_header(path), spec)
    assert (fault.code, fault.is_grave, fault.changes) == (code, is_grave, changes)
    repair_file(path, fault.changes)
    assert find_faults(read_header(path), spec) == ()


def test_a_missing_end_is_added(tmp_path: Path, spec: ModelSpec) -> None:
    path = write_toy_model(tmp_path / "toy.gguf", ToyModel(skipped_keys=frozenset({EOS, BOS})))
    faults = {fault.code: fault for fault in find_faults(read_header(path), spec)}
    assert (faults["eos"].changes, faults["bos"].changes) == ({EOS: END}, {BOS: BEGIN})
    assert (faults["eos"].is_grave, faults["bos"].is_grave) == (True, False)


def test_an_unknown_model_is_judged_by_its_own_vocabulary(broken: Path) -> None:
    (fault,) = find_faults(read_header(broken), None)
    assert (fault.code, fault.changes) == ("eos", {EOS: END})


def test_what_nobody_knows_cannot_be_repaired(tmp_path: Path) -> None:
    controls = ("<|one|>", "<|two|>")
    path = write_toy_model(tmp_path / "toy.gguf", ToyModel(eos_token="$", control_tokens=controls))
    (fault,) = find_faults(read_header(path), None)
    assert (fault.code, fault.changes) == ("eos", {})


def test_another_vocabulary_cannot_be_repaired(broken: Path) -> None:
    faults = find_faults(read_header(broken), load_catalog().get("Hy-MT2-7B"))
    fault = next(fault for fault in faults if fault.code == "control_ids")
    assert fault.message == f"<|endoftext|> is token {control_id('<|endoftext|>')}, in Hy-MT2-7B it is token 127957"
    assert fault.changes == {}


def test_a_base_that_would_be_scaled_twice_is_found(tmp_path: Path) -> None:
    path = write_toy_model(tmp_path / "toy.gguf")
    base = 10000.0 * 1000.0 ** (32 / 30)
    alpha_key = "hunyuan-dense.rope.scaling.alpha"
    repair_file(path, {"hunyuan-dense.rope.freq_base": base, alpha_key: 1000.0})
    (fault,) = find_faults(read_header(path), None)
    assert (fault.code, fault.changes) == ("rope", {alpha_key: None})
    repair_file(path, {"hunyuan-dense.rope.freq_base": 10000.0})
    assert find_faults(read_header(path), None) == ()


@pytest.mark.parametrize("model_id", ["Hunyuan-MT-7B", "Hy-MT2-1.8B", "HY-MT1.5-7B"])
def test_our_templates_are_sound_and_render_the_models_prompts(model_id: str) -> None:
    spec = load_catalog().get(model_id)
    template = CHAT_TEMPLATES[spec.chat]
    assert template_fault(template, spec) is None
    render = ImmutableSandboxedEnvironment().from_string(template).render
    user, answer = {"role": "user", "content": "{T}"}, {"role": "assistant", "content": "{A}"}
    system = {"role": "system", "content": "{S}"}
    seven_b = {
        "one": "<|startoftext|>{T}<|extra_0|>",
        "system": "<|startoftext|>{S}<|extra_4|>{T}<|extra_0|>",
        "more": "<|startoftext|>{T}<|extra_0|>{A}<|eos|><|startoftext|>{T}<|extra_0|>",
    }
    begin, ask = "<｜hy_begin▁of▁sentence｜>", "<｜hy_User｜>{T}<｜hy_Assistant｜>"
    dense = {
        "one": begin + ask,
        "system": begin + "{S}<｜hy_place▁holder▁no▁3｜>" + ask,
        "more": begin + ask + "{A}<｜hy_place▁holder▁no▁2｜>" + ask,
    }
    expected = seven_b if spec.chat == "hunyuan" else dense
    assert render(messages=[user], add_generation_prompt=True) == expected["one"]
    assert render(messages=[system, user], add_generation_prompt=True) == expected["system"]
    assert render(messages=[user, answer, user], add_generation_prompt=True) == expected["more"]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ messages", "no Jinja"),
        ("{% if x %}", "no Jinja"),
        ("{" * 2 + "(" * 3000 + "1" + ")" * 3000 + "}" * 2, "nested too deeply"),
        ("x" * ((1 << 18) + 1), "characters"),
        ("<|startoftext|>", r"lacks <\|extra_0\|>"),
    ],
)
def test_a_hostile_template_is_a_fault(template: str, message: str) -> None:
    fault = template_fault(template, load_catalog().get("Hunyuan-MT-7B"))
    assert fault is not None
    assert re.search(message, fault)


@pytest.mark.parametrize(
    ("name", "model_id"),
    [
        ("Hy-MT2-7B-Q4_K_M.gguf", "Hy-MT2-7B"),
        ("HY-MT1.5-7B.gguf", "HY-MT1.5-7B"),
        ("Hunyuan-MT-Chimera-7B-Q8_0.gguf", "Hunyuan-MT-Chimera-7B"),
        ("something.gguf", None),
    ],
)
def test_a_model_is_known_by_its_names(tmp_path: Path, name: str, model_id: str | None) -> None:
    found = identify(read_header(write_toy_model(tmp_path / name)), load_catalog())
    assert (found.id if found else None) == model_id
