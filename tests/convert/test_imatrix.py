"""Importance matrices: the sums are those of an independent forward pass, and the files are llama.cpp's."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter

from hymt_convert import imatrix, imatrix_state
from hymt_convert.conversion import ConversionRequest, convert
from hymt_convert.imatrix import (
    Importance,
    ImportanceMatrix,
    compute_imatrix,
    read_imatrix,
    write_imatrix,
)
from hymt_convert.quantize import quantize_file
from hymt_convert.verify import read_file_facts
from hymt_local.errors import ModelFileError, StoreError, UnsupportedModelError, UsageError
from tests.convert import toy_checkpoint as toy
from tests.convert import toy_moe
from tests.convert.numpy_model import matrix_inputs
from tests.toy_models import ToyModel, write_toy_model

SHAPE = toy.Shape()
TEXTS = [[(3 + 7 * place + 31 * number) % 260 for place in range(30 + number)] for number in range(4)]


def base_file(folder: Path, weights_changed: Callable[[toy.Weights], None] = lambda weights: None) -> Path:
    weights = toy.write_checkpoint(folder / "toy", SHAPE)
    weights_changed(weights)
    toy.write_safetensors(folder / "toy" / "model.safetensors", weights)
    return convert(ConversionRequest(folder / "toy", folder, ("F32",))).files[0].path


def some_matrix() -> ImportanceMatrix:
    sums = np.arange(6, dtype=np.float32).reshape(2, 3)
    entries = {
        "blk.0.ffn_down_exps.weight": Importance(sums, np.array([4.0, 0.0], np.float32)),
        "blk.0.attn_q.weight": Importance(sums[1:], np.array([2.0], np.float32)),
    }
    return ImportanceMatrix(entries, ("some text",), 3, 512)


@pytest.mark.llama
def test_the_sums_are_those_of_an_independent_forward_pass(tmp_path: Path) -> None:
    matrix = compute_imatrix(base_file(tmp_path), lambda model: TEXTS, dataset="numbers", threads=1)
    weights = toy.random_weights(SHAPE)
    inputs = [matrix_inputs(weights, SHAPE, tokens) for tokens in TEXTS]
    assert matrix.entries.keys() == inputs[0].keys()
    n_tokens = sum(map(len, TEXTS))
    for name, entry in matrix.entries.items():
        expected = sum((text[name] ** 2).sum(axis=0) for text in inputs)
        np.testing.assert_allclose(entry.sums[0], expected, rtol=1e-5, err_msg=name)  # measured: 1e-6
        assert entry.counts.tolist() == [n_tokens]


@pytest.mark.llama
def test_texts_do_not_see_each_other_and_chunks_do_not_matter(tmp_path: Path) -> None:
    file = base_file(tmp_path)
    steps: list[tuple[int, int]] = []
    together = compute_imatrix(file, lambda model: TEXTS, dataset="x", threads=1)
    apart = compute_imatrix(
        file, lambda model: TEXTS, dataset="x", threads=1, chunk_tokens=40, on_step=lambda *step: steps.append(step)
    )
    assert apart.chunk_count == sum(map(len, TEXTS)) // 40
    assert steps[-1][0] == steps[-1][1] == sum(map(len, TEXTS))
    for name, entry in together.entries.items():
        np.testing.assert_allclose(apart.entries[name].sums, entry.sums, rtol=1e-4)


@pytest.mark.llama
def test_experts_get_what_the_router_sends_them(tmp_path: Path) -> None:
    shape = toy_moe.MoeShape()
    toy_moe.write_checkpoint(tmp_path / "toy", shape)
    file = convert(ConversionRequest(tmp_path / "toy", tmp_path, ("F32",))).files[0].path
    matrix = compute_imatrix(file, lambda model: TEXTS, dataset="x", threads=1)
    n_routed = sum(map(len, TEXTS)) * shape.num_experts_per_tok
    for layer in (1, 2):
        router, gate, up, down = (
            matrix.entries[f"blk.{layer}.ffn_{name}.weight"]
            for name in ("gate_inp", "gate_exps", "up_exps", "down_exps")
        )
        assert gate.counts.sum() == n_routed
        assert len(set(gate.counts.tolist())) > 1  # they are not all alike
        assert np.array_equal(gate.counts, down.counts)
        assert np.array_equal(gate.sums, up.sums)
        np.testing.assert_allclose(gate.sums.sum(axis=0), router.sums[0] * shape.num_experts_per_tok, rtol=1e-5)
        assert down.sums.shape == (shape.num_experts, shape.moe_intermediate_size)
        assert (down.sums.sum(axis=1) > 0).tolist() == (down.counts > 0).tolist()
    assert "blk.0.ffn_gate.weight" in matrix.entries  # the first layer is dense


@pytest.mark.llama
def test_experts_are_quantized_with_their_own_weights(tmp_path: Path) -> None:
    wide = {"hidden_size": 256, "intermediate_size": 256, "moe_intermediate_size": 256, "head_dim": 64}
    shape = toy_moe.MoeShape(num_hidden_layers=2, **wide)
    toy_moe.write_checkpoint(tmp_path / "toy", shape)
    file = convert(ConversionRequest(tmp_path / "toy", tmp_path, ("F32",))).files[0].path
    write_imatrix(tmp_path / "i.gguf", compute_imatrix(file, lambda model: TEXTS, dataset="x", threads=1))
    report = quantize_file(file, tmp_path / "q.gguf", "Q2_K_S", imatrix=tmp_path / "i.gguf")
    assert report.fallbacks == {}
    assert read_file_facts(report.path).tensor_types["blk.1.ffn_gate_exps.weight"] == "Q2_K"


@pytest.mark.llama
@pytest.mark.parametrize("texts", [[], [[]], [[1] * 15]])
def test_too_little_text_is_refused(tmp_path: Path, texts: list[list[int]]) -> None:
    with pytest.raises(UsageError, match="calibration text is too short"):
        compute_imatrix(base_file(tmp_path), lambda model: texts, dataset="x", threads=1)


@pytest.mark.llama
def test_a_model_that_computes_nan_is_refused_with_the_place(tmp_path: Path) -> None:
    file = write_toy_model(tmp_path / "nan.gguf", ToyModel(scale=math.nan))
    with pytest.raises(ModelFileError, match=r"nan.gguf computes something that is not a number before blk\.0\."):
        compute_imatrix(file, lambda model: TEXTS, dataset="x", threads=1)


@pytest.mark.llama
def test_an_interrupt_inside_llama_cpp_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = base_file(tmp_path)

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hymt_convert.imatrix._add_matrices", interrupt)
    with pytest.raises(KeyboardInterrupt):
        compute_imatrix(file, lambda model: TEXTS, dataset="x", threads=1)


def test_other_architectures_are_refused_before_llama_cpp_sees_them(tmp_path: Path) -> None:
    file = write_toy_model(tmp_path / "other.gguf", ToyModel(architecture="llama"))
    with pytest.raises(UnsupportedModelError, match="architecture 'llama'"):
        compute_imatrix(file, lambda model: TEXTS, dataset="x", threads=1)


def test_a_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    matrix = some_matrix()
    write_imatrix(tmp_path / "i.gguf", matrix)
    again = read_imatrix(tmp_path / "i.gguf")
    assert (again.datasets, again.chunk_count, again.chunk_size) == (("some text",), 3, 512)
    assert again.entries.keys() == matrix.entries.keys()
    for name, entry in matrix.entries.items():
        assert np.array_equal(again.entries[name].sums, entry.sums)
        assert np.array_equal(again.entries[name].counts, entry.counts)


def test_the_file_has_llama_imatrix_form(tmp_path: Path) -> None:
    write_imatrix(tmp_path / "i.gguf", some_matrix())
    reader = GGUFReader(tmp_path / "i.gguf")
    keys = [key for key in reader.fields if not key.startswith("GGUF.")]
    assert keys == ["general.type", "imatrix.datasets", "imatrix.chunk_count", "imatrix.chunk_size"]
    assert [(tensor.name, tensor.shape.tolist()) for tensor in reader.tensors] == [
        ("blk.0.attn_q.weight.in_sum2", [3, 1]),
        ("blk.0.attn_q.weight.counts", [1, 1]),
        ("blk.0.ffn_down_exps.weight.in_sum2", [3, 2]),
        ("blk.0.ffn_down_exps.weight.counts", [1, 2]),
    ]


def test_weights_are_means_and_experts_that_nothing_reached_count_all_columns_alike() -> None:
    matrix = some_matrix()
    assert matrix.weights("blk.0.attn_q.weight").tolist() == [1.5, 2.0, 2.5]
    assert matrix.weights("blk.0.ffn_down_exps.weight").tolist() == [0.0, 0.25, 0.5, 1.0, 1.0, 1.0]


def test_the_matrix_of_another_model_is_refused() -> None:
    shapes: dict[str, tuple[int, ...]] = {"blk.0.attn_q.weight": (8, 3), "blk.0.ffn_down_exps.weight": (2, 5, 3)}
    some_matrix().check_fits(shapes)
    with pytest.raises(ModelFileError, match=r"3 columns for blk\.0\.attn_q\.weight, the model 4"):
        some_matrix().check_fits({**shapes, "blk.0.attn_q.weight": (8, 4)})
    with pytest.raises(ModelFileError, match="6 columns for"):
        some_matrix().check_fits({**shapes, "blk.0.ffn_down_exps.weight": (4, 5, 3)})
    with pytest.raises(ModelFileError, match="names no tensor"):
        some_matrix().check_fits({"blk.7.attn_q.weight": (8, 3)})


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        write_imatrix(tmp_path / "missing" / "i.gguf", some_matrix())


def _written(path: Path, tensors: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]) -> Path:
    writer = GGUFWriter(path, "none")
    writer.add_string("general.type", "imatrix")
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


ONES = np.ones((2, 4), np.float32)
HOSTILE = {
    "no counts": ({"a.in_sum2": ONES}, "sums or counts of a are missing"),
    "no sums": ({"a.counts": ONES, "b.counts": ONES, "b.in_sum2": ONES}, "sums or counts of a are missing"),
    "nothing": ({"a": ONES}, "it is empty"),
    "negative": ({"a.in_sum2": -ONES, "a.counts": ONES[:, :1]}, "values that no sum of squares can have"),
    "nan": ({"a.in_sum2": ONES * np.nan, "a.counts": ONES[:, :1]}, "values that no sum of squares can have"),
    "counts": ({"a.in_sum2": ONES, "a.counts": np.ones((3, 1), np.float32)}, "3 counts for 2 matrices of a"),
    "f16": ({"a.in_sum2": ONES.astype(np.float16), "a.counts": ONES[:, :1]}, "a.in_sum2 is not F32"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, case: str) -> None:
    tensors, message = HOSTILE[case]
    with pytest.raises(ModelFileError, match=message):
        read_imatrix(_written(tmp_path / "i.gguf", tensors))  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [b"", b"\x10\x00\x00\x00 an older imatrix.dat", b"GGUF", b"<html>"])
def test_what_is_no_gguf_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "imatrix.dat").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"imatrix\.dat is no importance matrix") as caught:
        read_imatrix(tmp_path / "imatrix.dat")
    assert "llama-imatrix" in caught.value.hint


def test_a_model_is_no_importance_matrix(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="not an importance matrix"):
        read_imatrix(write_toy_model(tmp_path / "model.gguf"))


def test_an_interrupted_computation_goes_on_and_gives_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imatrix, "KEEP_S", 0.0)
    file, state = base_file(tmp_path), tmp_path / "state.npz"
    texts = [*TEXTS, *TEXTS]

    def interrupt(done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    def compute(**options: Any) -> imatrix.ImportanceMatrix:
        return compute_imatrix(file, lambda model: texts, dataset="x", threads=1, chunk_tokens=64, **options)

    with pytest.raises(KeyboardInterrupt):
        compute(state_file=state, on_step=interrupt)
    seen: list[int] = []
    resumed = compute(state_file=state, on_step=lambda done, total: seen.append(done))
    whole = compute()
    assert seen[0] > 0
    assert resumed.entries.keys() == whole.entries.keys()
    for name, entry in whole.entries.items():
        np.testing.assert_array_equal(resumed.entries[name].sums, entry.sums)
        np.testing.assert_array_equal(resumed.entries[name].counts, entry.counts)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", None], ids=["empty", "torn", "of other texts"])
def test_a_state_that_cannot_be_used_is_no_state(tmp_path: Path, content: bytes | None) -> None:
    batches, state = [[[1, 2], [3]]], tmp_path / "state.npz"
    sums = imatrix_state.State({"blk.0.a": np.ones((1, 2))}, {"blk.0.a": np.ones(1)}, 1)
    imatrix_state.write(state, batches, sums)
    assert imatrix_state.read(state, batches) is not None
    if content is not None:
        state.write_bytes(content)
    assert imatrix_state.read(state, [[[1, 2, 3]]]) is None
    assert imatrix_state.read(tmp_path / "missing", batches) is None
