"""The embedded demo model as the proof: its importance matrix is right, and quantizing with it costs less."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from hymt_convert.imatrix import ImportanceMatrix, compute_imatrix, write_imatrix
from hymt_convert.passages import passages
from hymt_convert.quality import measure_quality
from hymt_convert.quantize import quantize_file
from hymt_convert.reference_model import ReferenceModel
from hymt_local.catalog import ModelSpec, load_catalog
from hymt_local.engine.gguf_file import read_header
from hymt_local.installed import demo_file
from tests.convert import toy_checkpoint as toy
from tests.convert.numpy_model import matrix_inputs
from tests.convert.unquantized import write_unquantized

pytestmark = [pytest.mark.llama, pytest.mark.slow]
NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.query_layernorm",
    "attn_k_norm": "self_attn.key_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@pytest.fixture(scope="module")
def demo() -> ModelSpec:
    return load_catalog().get("demo")


@pytest.fixture(scope="module")
def unquantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_unquantized(demo_file(), tmp_path_factory.mktemp("demo") / "hymt-demo-F32.gguf")


def importance(file: Path, spec: ModelSpec, *, every: int) -> ImportanceMatrix:
    def make_texts(model: object) -> list[tuple[int, ...]]:
        assert isinstance(model, ReferenceModel)
        return [passage.tokens for passage in passages(model, spec, "calibration")[::every]]

    return compute_imatrix(file, make_texts, dataset="phrases", threads=1)


def checkpoint_weights(file: Path) -> toy.Weights:
    """Return the weights under the names of a checkpoint."""
    weights: toy.Weights = {}
    for tensor in GGUFReader(file).tensors:
        block, _, name = tensor.name.removeprefix("blk.").removesuffix(".weight").partition(".")
        published = f"layers.{block}.{NAMES[name]}" if tensor.name.startswith("blk.") else "embed_tokens"
        weights[f"model.{published}.weight"] = np.asarray(tensor.data)
    return weights


def shape_of(file: Path) -> toy.Shape:
    header = read_header(file)

    def number(name: str) -> int:
        return int(str(header.of_architecture(name)))

    return toy.Shape(
        hidden_size=number("embedding_length"),
        num_hidden_layers=number("block_count"),
        num_attention_heads=number("attention.head_count"),
        num_key_value_heads=number("attention.head_count_kv"),
        head_dim=number("attention.key_length"),
    )


def test_the_sums_are_those_of_an_independent_forward_pass(unquantized: Path, demo: ModelSpec) -> None:
    matrix = importance(unquantized, demo, every=100)
    weights, shape = checkpoint_weights(unquantized), shape_of(unquantized)
    with ReferenceModel(unquantized) as model:
        texts = [passage.tokens for passage in passages(model, demo, "calibration")[::100]]
    inputs = [matrix_inputs(weights, shape, tokens) for tokens in texts]
    assert len(matrix.entries) == 7 * shape.num_hidden_layers
    for name, entry in matrix.entries.items():
        expected = sum((text[name] ** 2).sum(axis=0) for text in inputs)
        np.testing.assert_allclose(entry.sums[0], expected, rtol=1e-3, err_msg=name)


def test_two_bits_cost_less_with_an_importance_matrix(unquantized: Path, demo: ModelSpec, tmp_path: Path) -> None:
    write_imatrix(tmp_path / "i.gguf", importance(unquantized, demo, every=3))
    plain = quantize_file(unquantized, tmp_path / "plain.gguf", "Q2_K", threads=1).path
    weighed = quantize_file(unquantized, tmp_path / "weighed.gguf", "Q2_K", imatrix=tmp_path / "i.gguf", threads=1).path
    without, with_it, published = measure_quality(
        unquantized, [plain, weighed, demo_file()], lambda model: passages(model, demo, "evaluation")[::10], threads=1
    )
    assert with_it.mean_kl < 0.95 * without.mean_kl
    assert published.mean_kl < 0.05 * without.mean_kl
    assert published.top1_agreement > 0.99
