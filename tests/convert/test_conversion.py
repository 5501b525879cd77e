"""From folder to finished files: contents, provenance, atomic appearance, and failures that leave nothing behind."""

from __future__ import annotations

import math
import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from hymt_convert.architectures import TensorPlan
from hymt_convert.conversion import (
    ConversionPlan,
    ConversionRequest,
    convert,
    plan_conversion,
    run_conversion,
)
from hymt_convert.gguf_writer import write_gguf
from hymt_convert.progress import Progress
from hymt_convert.safetensors_file import read_tensors
from hymt_convert.verify import ReferenceModel, check_file, read_file_facts, read_metadata
from hymt_local import __version__
from hymt_local.errors import EngineLoadError, ModelFileError, StoreError, UnsupportedModelError, UsageError
from tests.convert import toy_checkpoint as toy

DiskUsage = namedtuple("DiskUsage", "total used free")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    toy.write_checkpoint(tmp_path / "toy")
    return tmp_path / "toy"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output"


def request(folder: Path, output: Path, *quantizations: str) -> ConversionRequest:
    return ConversionRequest(folder, output, quantizations)


def test_an_f32_file_holds_the_checkpoints_values(folder: Path, output: Path) -> None:
    weights = toy.random_weights(toy.Shape())
    reader = GGUFReader(convert(request(folder, output, "F32")).files[0].path)
    tensors = {tensor.name: np.asarray(tensor.data) for tensor in reader.tensors}
    assert np.array_equal(tensors["token_embd.weight"], weights["model.embed_tokens.weight"])
    assert np.array_equal(tensors["blk.1.attn_q.weight"], weights["model.layers.1.self_attn.q_proj.weight"])
    assert np.array_equal(tensors["blk.0.attn_k_norm.weight"], weights["model.layers.0.self_attn.key_layernorm.weight"])
    assert len(tensors) == len(weights)


def test_f16_rounds_matrices_to_the_nearest_and_keeps_norms(folder: Path, output: Path) -> None:
    weights = toy.random_weights(toy.Shape())
    reader = GGUFReader(convert(request(folder, output, "f16")).files[0].path)
    tensors = {tensor.name: np.asarray(tensor.data) for tensor in reader.tensors}
    assert np.array_equal(tensors["token_embd.weight"], weights["model.embed_tokens.weight"].astype(np.float16))
    assert np.array_equal(tensors["output_norm.weight"], weights["model.norm.weight"])


def test_bf16_rounds_to_the_nearest_even(folder: Path, output: Path) -> None:
    import torch

    values = toy.random_weights(toy.Shape())["model.embed_tokens.weight"]
    reader = GGUFReader(convert(request(folder, output, "BF16")).files[0].path)
    stored = next(tensor for tensor in reader.tensors if tensor.name == "token_embd.weight")
    expected = torch.from_numpy(values).to(torch.bfloat16).view(torch.uint16).numpy()
    assert np.array_equal(np.asarray(stored.data).view(np.uint16), expected)


def test_a_bf16_checkpoint_is_copied_bit_by_bit(tmp_path: Path, output: Path) -> None:
    weights = toy.write_checkpoint(tmp_path / "toy", dtype="BF16")
    plan = plan_conversion(request(tmp_path / "toy", output, "BF16", "Q8_0"))
    assert plan.base_type == "BF16"
    reader = GGUFReader(run_conversion(plan).files[0].path)
    stored = next(tensor for tensor in reader.tensors if tensor.name == "blk.0.ffn_up.weight")
    expected = weights["model.layers.0.mlp.up_proj.weight"].view(np.uint32) >> 16
    assert np.array_equal(np.asarray(stored.data).view(np.uint16), expected)


def test_the_header_says_what_the_model_is_and_where_it_comes_from(folder: Path, output: Path) -> None:
    asked = ConversionRequest(
        folder,
        output,
        ("Q8_0",),
        name="Toy 1.0",
        source_id="example/toy@abc",
        licence="apache-2.0",
        extra={"hymt.coverage.texts": ["ä", "b"], "hymt.coverage.version": 1, "hymt.coverage.min_probability": 0.5},
    )
    file = convert(asked).files[0]
    header = read_metadata(file.path)
    assert file.path == output / "Toy 1.0-Q8_0.gguf"
    expected = {
        "general.architecture": "hunyuan-dense",
        "general.name": "Toy 1.0",
        "general.license": "apache-2.0",
        "general.source.id": "example/toy",
        "general.source.revision": "abc",
        "general.description": (
            f"Toy 1.0, converted from example/toy@abc to GGUF by hymt-local {__version__} "
            "(modified: names and number formats of the tensors)"
        ),
        "general.converted_by": f"hymt-local {__version__}",
        "general.file_type": 7,
        "hunyuan-dense.context_length": 256,
        "hunyuan-dense.block_count": 2,
        "hunyuan-dense.attention.key_length": 32,
        "hunyuan-dense.rope.scaling.type": "none",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.bos_token_id": toy.BOS,
        "tokenizer.ggml.eos_token_id": toy.EOS,
        "tokenizer.chat_template": "{{ messages }}",
        "hymt.coverage.texts": ["ä", "b"],
        "hymt.coverage.version": 1,
        "hymt.coverage.min_probability": 0.5,
    }
    assert {key: header.get(key) for key in expected} == expected
    assert header["hunyuan-dense.rope.freq_base"] == pytest.approx(1e4 * 1000 ** (32 / 30), rel=1e-6)
    assert not [key for key in header if "seperator" in key or "alpha" in key or "add_bos" in key]
    assert not [value for value in header.values() if isinstance(value, str) and str(folder.parent) in value]


def test_several_files_come_out_in_the_order_asked_for_and_nothing_else(folder: Path, output: Path) -> None:
    report = convert(request(folder, output, "q8_0", "f16", "Q8_0", "q4_0"))
    assert [file.quantization for file in report.files] == ["Q8_0", "F16", "Q4_0"]
    assert sorted(path.name for path in output.iterdir()) == ["toy-F16.gguf", "toy-Q4_0.gguf", "toy-Q8_0.gguf"]
    assert all(file.size_bytes == file.path.stat().st_size for file in report.files)


def test_progress_ends_at_the_total_of_every_step(folder: Path, output: Path) -> None:
    seen: list[Progress] = []
    convert(request(folder, output, "Q8_0"), on_progress=seen.append)
    last = {progress.step: progress for progress in seen}
    assert list(last) == ["writing F32", "quantizing to Q8_0"]
    assert all(progress.done == progress.total for progress in last.values())
    assert [progress.done for progress in seen if progress.step == "writing F32"] == sorted(
        progress.done for progress in seen if progress.step == "writing F32"
    )


@pytest.mark.llama
def test_llama_cpp_loads_the_quantized_file_and_nearly_agrees(folder: Path, output: Path) -> None:
    report = convert(request(folder, output, "F32", "Q8_0"))
    tokens = [toy.BOS, *range(40, 80)]
    logits = []
    for file in report.files:
        with ReferenceModel(file.path) as model:
            logits.append(model.logits(tokens))
    assert 0 < np.abs(logits[0] - logits[1]).max() < 0.2


def plan_of(folder: Path, output: Path, *quantizations: str) -> ConversionPlan:
    return plan_conversion(request(folder, output, *quantizations))


def test_planning_writes_nothing(folder: Path, output: Path) -> None:
    plan = plan_of(folder, output, "Q4_K_M", "F16")
    assert list(plan.outputs) == ["Q4_K_M", "F16"]
    assert not output.exists()


@pytest.mark.parametrize(
    ("quantizations", "message"),
    [
        (("Q9_9",), "unknown quantization 'Q9_9'"),
        (("IQ2_XS",), "IQ2_XS needs an importance matrix"),
        ((), "no quantiz"),
    ],
)
def test_an_unusable_type_is_refused_at_once(
    folder: Path, output: Path, quantizations: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        plan_of(folder, output, *quantizations)


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "a\nb"])
def test_a_name_that_is_no_file_name_is_refused(folder: Path, output: Path, name: str) -> None:
    asked = ConversionRequest(folder, output, ("F16",), name=name or " ")
    with pytest.raises(UsageError, match="no usable name"):
        plan_conversion(asked)


@pytest.mark.parametrize(("value", "dtype"), [(math.nan, "F32"), (math.inf, "F32"), (-math.inf, "BF16")])
def test_a_weight_that_is_no_number_is_named_and_nothing_is_left(
    folder: Path, output: Path, value: float, dtype: str
) -> None:
    weights = toy.random_weights(toy.Shape())
    weights["model.layers.1.mlp.up_proj.weight"][3, 4] = value
    toy.write_safetensors(folder / "model.safetensors", weights, dtype=dtype)
    with pytest.raises(ModelFileError, match=r"model\.layers\.1\.mlp\.up_proj\.weight in model\.safetensors holds NaN"):
        convert(request(folder, output, "F16", "Q8_0"))
    assert list(output.iterdir()) == []


def test_a_weight_beyond_f16_is_refused_for_f16_only(folder: Path, output: Path) -> None:
    weights = toy.random_weights(toy.Shape())
    weights["model.layers.0.mlp.up_proj.weight"][0, 0] = 1e5
    toy.write_safetensors(folder / "model.safetensors", weights)
    with pytest.raises(UnsupportedModelError, match="holds 100000, beyond the range of F16"):
        convert(request(folder, output, "F16"))
    assert convert(request(folder, output, "BF16")).files[0].path.exists()


def test_too_little_space_is_refused_before_anything_is_written(
    folder: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(10**6, 10**6, 1000))
    with pytest.raises(StoreError, match=r"has 0 MiB free, .* MiB are needed"):
        convert(request(folder, output, "F16"))
    assert list(output.iterdir()) == []


def test_the_space_estimate_is_an_upper_bound(folder: Path, output: Path) -> None:
    plan = plan_of(folder, output, "F32", "Q8_0", "Q4_0")
    report = run_conversion(plan)
    assert sum(file.size_bytes for file in report.files) <= plan.estimated_bytes


def test_a_file_in_place_of_the_output_folder_is_refused(folder: Path, output: Path) -> None:
    output.write_text("in the way")
    with pytest.raises(StoreError, match="cannot create"):
        convert(request(folder, output, "F16"))


def test_a_folder_that_nobody_may_write_to_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(10**12, 0, 10**12))
    with pytest.raises(StoreError, match=r"cannot write to /proc/self"):
        convert(request(folder, Path("/proc/self"), "F16"))


def test_a_failed_conversion_keeps_the_older_file(folder: Path, output: Path) -> None:
    older = convert(request(folder, output, "F16")).files[0].path.read_bytes()
    weights = toy.random_weights(toy.Shape())
    weights["model.norm.weight"][0] = math.nan
    toy.write_safetensors(folder / "model.safetensors", weights)
    with pytest.raises(ModelFileError):
        convert(request(folder, output, "F16"))
    assert [path.read_bytes() for path in output.iterdir()] == [older]


def test_an_interrupt_leaves_a_workspace_and_no_file(folder: Path, output: Path) -> None:
    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(request(folder, output, "Q8_0"), on_progress=interrupt)
    assert [path.name for path in output.iterdir()] == [".toy.converting"]


def test_an_empty_extra_array_is_a_programming_error(folder: Path, output: Path) -> None:
    with pytest.raises(ValueError, match=r"hymt.x has an empty array"):
        convert(ConversionRequest(folder, output, ("F16",), extra={"hymt.x": []}))
    assert list(output.iterdir()) == []


def test_a_finished_file_is_checked_against_its_plan(folder: Path, output: Path) -> None:
    path = convert(request(folder, output, "F16")).files[0].path
    shapes = dict(read_file_facts(path).tensor_shapes)
    assert check_file(path, shapes=shapes).architecture == "hunyuan-dense"
    with pytest.raises(ModelFileError, match=r"differs from its checkpoint in tensor output_norm.weight"):
        check_file(path, shapes={**shapes, "output_norm.weight": (65,)})


def test_a_truncated_file_is_recognized(folder: Path, output: Path) -> None:
    path = convert(request(folder, output, "F16")).files[0].path
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(ModelFileError, match=r"toy-F16.gguf is"):
        read_file_facts(path)


@pytest.mark.llama
def test_llama_cpps_reason_is_in_the_error(folder: Path, output: Path) -> None:
    path = convert(request(folder, output, "F16")).files[0].path
    path.write_bytes(path.read_bytes().replace(b"hunyuan-dense", b"hunyuan-dunce"))
    with pytest.raises(EngineLoadError, match="unknown model architecture: 'hunyuan-dunce'"):
        ReferenceModel(path)


def test_extra_keys_cannot_overrule_those_of_the_model(folder: Path, output: Path) -> None:
    with pytest.raises(ValueError, match=r"extra keys .*eos_token_id"):
        plan_conversion(ConversionRequest(folder, output, ("F16",), extra={"tokenizer.ggml.eos_token_id": 3}))


def test_every_bf16_value_within_the_range_of_f16_is_rounded_to_the_nearest(tmp_path: Path) -> None:
    patterns = np.arange(1 << 16, dtype=np.uint32)
    values = (patterns << 16).view(np.float32)
    values = values[np.isfinite(values) & (np.abs(values) <= 65504)]
    toy.write_safetensors(tmp_path / "a.safetensors", {"x": values}, dtype="BF16")
    source = read_tensors(tmp_path / "a.safetensors")["x"]
    plan = TensorPlan.copy_of("x", source, full_precision=False)
    write_gguf(tmp_path / "x.gguf", {"general.architecture": "x"}, (plan,), float_type="F16")
    stored = np.asarray(GGUFReader(tmp_path / "x.gguf").tensors[0].data)
    assert np.array_equal(stored, values.astype(np.float16))
    assert len(stored) > 30_000
