"""The mixture-of-experts architecture: its keys and tensors, every naming of them, and that the result is the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader
from numpy.typing import NDArray

from hymt_convert.architectures import ModelPlan, get_architecture
from hymt_convert.checkpoint import Checkpoint, open_checkpoint
from hymt_convert.conversion import ConversionRequest, convert
from hymt_convert.quantize import quantize_file
from hymt_convert.safetensors_file import CheckpointTensor
from hymt_convert.verify import read_file_facts, read_metadata
from hymt_local.engine.gguf_file import read_header
from hymt_local.engine.gguf_support import check_supported
from hymt_local.errors import ModelError, ModelFileError, UnsupportedModelError
from tests.convert import toy_checkpoint as toy
from tests.convert import toy_moe
from tests.convert.test_parity import compare, gguf_logits, permuted_rows, transformers_logits

TOLERANCE = 1e-4
"""Measured: 1e-5, the logits having a standard deviation of 1."""
SHAPE = toy_moe.MoeShape()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    toy_moe.write_checkpoint(tmp_path / "toy")
    return tmp_path / "toy"


def plan(folder: Path) -> ModelPlan:
    checkpoint = open_checkpoint(folder)
    return get_architecture(checkpoint.config)(checkpoint)


def write_weights(folder: Path, weights: toy.Weights, *, dtype: str = "F32") -> None:
    toy.write_safetensors(folder / "model.safetensors", weights, dtype=dtype)


def stored(path: Path) -> dict[str, NDArray[Any]]:
    return {tensor.name: np.asarray(tensor.data) for tensor in GGUFReader(path).tensors}


def test_the_header_describes_the_experts(folder: Path, tmp_path: Path) -> None:
    path = convert(ConversionRequest(folder, tmp_path, ("F16",))).files[0].path
    header = read_metadata(path)
    expected: dict[str, object] = {
        "general.architecture": "hy_v3",
        "hy_v3.block_count": 3,
        "hy_v3.context_length": 256,
        "hy_v3.embedding_length": 64,
        "hy_v3.feed_forward_length": 96,
        "hy_v3.attention.head_count": 4,
        "hy_v3.attention.head_count_kv": 2,
        "hy_v3.attention.key_length": 32,
        "hy_v3.attention.value_length": 32,
        "hy_v3.rope.freq_base": 11158840.0,
        "hy_v3.rope.scaling.type": "none",
        "hy_v3.expert_count": 8,
        "hy_v3.expert_used_count": 2,
        "hy_v3.expert_feed_forward_length": 40,
        "hy_v3.expert_shared_feed_forward_length": 40,
        "hy_v3.expert_gating_func": 2,
        "hy_v3.expert_weights_norm": True,
    }
    assert {key: header.get(key) for key in expected} == expected
    assert header["hy_v3.expert_weights_scale"] == pytest.approx(2.826)
    check_supported(read_header(path))


@pytest.mark.parametrize("naming", ["published", "fused"])
def test_experts_are_stacked_in_their_order(tmp_path: Path, naming: str) -> None:
    folder = tmp_path / "toy"
    weights = toy_moe.write_checkpoint(folder)
    if naming == "fused":
        write_weights(folder, toy_moe.fused(weights, SHAPE))
    tensors = stored(convert(ConversionRequest(folder, tmp_path, ("F32",))).files[0].path)
    for projection in ("gate", "up", "down"):
        single = [weights[f"model.layers.2.mlp.experts.{number}.{projection}_proj.weight"] for number in range(8)]
        assert np.array_equal(tensors[f"blk.2.ffn_{projection}_exps.weight"], np.stack(single))
        shared = weights[f"model.layers.1.mlp.shared_mlp.{projection}_proj.weight"]
        assert np.array_equal(tensors[f"blk.1.ffn_{projection}_shexp.weight"], shared)
    assert np.array_equal(tensors["blk.1.exp_probs_b"], weights["model.layers.1.mlp.expert_bias"])
    assert np.array_equal(tensors["output.weight"], weights["lm_head.weight"])


def test_every_naming_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("published", "fused", "shards"):
        weights = toy_moe.write_checkpoint(tmp_path / name, dtype="BF16")
        if name == "fused":
            write_weights(tmp_path / name, toy_moe.fused(weights, SHAPE), dtype="BF16")
        if name == "shards":
            names = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
            toy.split_into_shards(tmp_path / name, weights, names, dtype="BF16")
        convert(ConversionRequest(tmp_path / name, tmp_path / "out" / name, ("BF16",), name="toy"))
    contents = {(tmp_path / "out" / name / "toy-BF16.gguf").read_bytes() for name in ("published", "fused", "shards")}
    assert len(contents) == 1


def test_router_and_selection_bias_keep_full_precision(folder: Path) -> None:
    kept = {tensor.name for tensor in plan(folder).tensors if tensor.full_precision}
    assert kept == {
        name.name
        for name in plan(folder).tensors
        if "norm" in name.name or "ffn_gate_inp" in name.name or "exp_probs_b" in name.name
    }


@pytest.mark.llama
def test_the_quantizer_leaves_the_router_alone(tmp_path: Path) -> None:
    shape = toy_moe.MoeShape(hidden_size=256, intermediate_size=256, moe_intermediate_size=256, head_dim=64)
    toy_moe.write_checkpoint(tmp_path / "toy", shape)
    base = convert(ConversionRequest(tmp_path / "toy", tmp_path, ("F32",))).files[0].path
    quantize_file(base, tmp_path / "q.gguf", "Q4_K_M")
    types = read_file_facts(tmp_path / "q.gguf").tensor_types
    assert types["blk.1.ffn_gate_inp.weight"] == types["blk.1.exp_probs_b"] == "F32"
    assert types["blk.1.ffn_gate_exps.weight"] == "Q4_K"


def test_the_published_geometry_gives_the_published_tensors() -> None:
    """The official Q4_K_M file has 766 tensors, 287 of them in F32."""
    shape = toy_moe.MoeShape(
        hidden_size=2048, num_hidden_layers=48, intermediate_size=6912, moe_intermediate_size=768, num_experts=128,
        num_experts_per_tok=8, num_attention_heads=32, num_key_value_heads=4, head_dim=128, vocab_size=120832,
        max_position_embeddings=262144,
    )  # fmt: skip
    checkpoint = Checkpoint(Path(), toy_moe.config(shape), _tensors_on_paper(shape))
    tensors = get_architecture(checkpoint.config)(checkpoint).tensors
    assert len(tensors) == 766
    assert sum(tensor.full_precision for tensor in tensors) == 287
    assert {tensor.shape for tensor in tensors if "ffn_down_exps" in tensor.name} == {(128, 2048, 768)}


def _tensors_on_paper(shape: toy_moe.MoeShape) -> dict[str, CheckpointTensor]:
    single = toy_moe.random_weights(toy_moe.MoeShape(num_hidden_layers=2, num_experts=2))
    lengths: dict[int, int] = {64: 2048, 96: 6912, 40: 768, 128: 4096, 32: 128, toy.VOCAB_SIZE: shape.vocab_size}
    tensors: dict[str, CheckpointTensor] = {}
    for name, value in single.items():
        lengths_of: tuple[int, ...] = tuple(lengths.get(int(length), int(length)) for length in value.shape)
        if "k_proj" in name or "v_proj" in name:
            lengths_of = (512, 2048)
        if "router" in name or "expert_bias" in name:
            lengths_of = (128, *lengths_of[1:])
        for copy in _copies(name, shape):
            tensors[copy] = CheckpointTensor(copy, "BF16", lengths_of, Path("model.safetensors"), 0, 0)
    return tensors


def _copies(name: str, shape: toy_moe.MoeShape) -> list[str]:
    """The names that one tensor of a toy with one dense and one sparse layer stands for."""
    if "layers.1." not in name or ".experts.1." in name:
        return [] if ".experts.1." in name else [name]
    layers = [name.replace("layers.1.", f"layers.{number}.") for number in range(1, shape.num_hidden_layers)]
    if ".experts.0." not in name:
        return layers
    return [layer.replace("experts.0.", f"experts.{expert}.") for layer in layers for expert in range(128)]


@pytest.fixture
def tokens() -> list[int]:
    return [toy.BOS, *np.random.default_rng(1).integers(0, toy.VOCAB_SIZE, 199).tolist()]


GEOMETRIES = {
    "wide-queries": SHAPE,
    "two-shared-experts": toy_moe.MoeShape(num_shared_experts=2, num_experts_per_tok=3, num_hidden_layers=2),
    "head-of-128": toy_moe.MoeShape(head_dim=128, num_attention_heads=2, num_key_value_heads=1, num_experts=4),
}


@pytest.mark.llama
@pytest.mark.parametrize("shape", GEOMETRIES.values(), ids=GEOMETRIES)
def test_logits_equal_those_of_transformers(tmp_path: Path, tokens: list[int], shape: toy_moe.MoeShape) -> None:
    toy_moe.write_checkpoint(tmp_path / "toy", shape)
    difference, agreement = compare(
        gguf_logits(tmp_path / "toy", tokens, tmp_path), transformers_logits(tmp_path / "toy", tokens)
    )
    assert difference <= TOLERANCE
    assert agreement == 1.0


@pytest.mark.llama
def test_bf16_shards_saved_by_transformers_convert(folder: Path, tmp_path: Path, tokens: list[int]) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "saved", max_shard_size="200KB")
    toy.write_tokenizer(tmp_path / "saved")
    assert len(list((tmp_path / "saved").glob("*.safetensors"))) > 1
    difference, agreement = compare(
        gguf_logits(tmp_path / "saved", tokens, tmp_path), transformers_logits(tmp_path / "saved", tokens)
    )
    assert difference <= TOLERANCE
    assert agreement == 1.0


def _swap(first: str, second: str) -> Any:
    def change(weights: toy.Weights) -> toy.Weights:
        one, other = (f"model.layers.1.mlp.{name}" for name in (first, second))
        return {**weights, one: weights[other], other: weights[one]}

    return change


def _zero_bias(weights: toy.Weights) -> toy.Weights:
    return {**weights, "model.layers.1.mlp.expert_bias": np.zeros(8, dtype=np.float32)}


def _swap_norms(weights: toy.Weights) -> toy.Weights:
    one, other = (f"model.layers.1.self_attn.{name}_norm.weight" for name in "qk")
    return {**weights, one: weights[other], other: weights[one]}


def _permute_queries(weights: toy.Weights) -> toy.Weights:
    return permuted_rows(weights, "model.layers.1.self_attn.q_proj.weight", head_dim=SHAPE.head_dim)


MISTAKES = {
    "two experts swapped": (_swap("experts.0.up_proj.weight", "experts.5.up_proj.weight"), {}),
    "gate and up swapped": (_swap("experts.3.gate_proj.weight", "experts.3.up_proj.weight"), {}),
    "shared expert's gate and up swapped": (_swap("shared_mlp.gate_proj.weight", "shared_mlp.up_proj.weight"), {}),
    # Before the rotation each norm weighs other pairs of values: here, unlike in the dense models, a swap shows.
    "query and key norm swapped": (_swap_norms, {}),
    "rows of the queries permuted": (_permute_queries, {}),
    "no selection bias": (_zero_bias, {}),
    "wrong scale": (dict, {"router_scaling_factor": 1.0}),
    "one expert less": (dict, {"num_experts_per_tok": 1}),
    "wrong rotation": (dict, {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}),
}


@pytest.mark.llama
@pytest.mark.parametrize(("change", "settings"), MISTAKES.values(), ids=MISTAKES)
def test_the_comparison_sees_a_mistake(
    folder: Path, tmp_path: Path, tokens: list[int], change: Any, settings: dict[str, Any]
) -> None:
    expected = transformers_logits(folder, tokens)
    write_weights(folder, change(toy_moe.random_weights(SHAPE)))
    toy.edit_json(folder / "config.json", **settings)
    difference, agreement = compare(gguf_logits(folder, tokens, tmp_path), expected)
    assert difference > 1e-2
    assert agreement < 1.0


REFUSED: list[tuple[dict[str, Any], type[ModelError], str]] = [
    ({"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn"}}, UnsupportedModelError, r"\['yarn'\], not default"),
    ({"rope_scaling": {"type": "dynamic", "alpha": 1000.0}}, UnsupportedModelError, r"'dynamic'"),
    ({"rope_scaling": {"factor": 4.0}}, UnsupportedModelError, r"factor = 4.0"),
    ({"rope_theta": 1e4}, ModelFileError, "two values of rope_theta"),
    ({"rope_parameters": {}}, ModelFileError, "rope_theta = None"),
    ({"partial_rotary_factor": 0.5}, UnsupportedModelError, "unknown key partial_rotary_factor"),
    ({"qk_norm": False}, UnsupportedModelError, "qk_norm = False"),
    ({"route_norm": False}, UnsupportedModelError, "route_norm = False"),
    ({"moe_router_use_sigmoid": False}, UnsupportedModelError, "moe_router_use_sigmoid = False"),
    ({"n_group": 8}, UnsupportedModelError, "unknown key n_group"),
    ({"router_scaling_factor": None}, ModelFileError, "router_scaling_factor = None"),
    ({"num_shared_experts": 0}, ModelFileError, "num_shared_experts = 0"),
    ({"num_experts_per_tok": 9}, UnsupportedModelError, "uses 9 of 8 experts"),
    ({"num_local_experts": 4}, ModelFileError, "two values of num_experts: 8 and 4"),
    ({"expert_hidden_dim": 41}, ModelFileError, "two values of moe_intermediate_size"),
    ({"moe_intermediate_size": ..., "expert_hidden_dim": ...}, ModelFileError, "moe_intermediate_size = None"),
    ({"first_k_dense_replace": 4}, ModelFileError, "first_k_dense_replace = 4 for 3 layers"),
    ({"first_k_dense_replace": 0}, ModelFileError, "no tensor model.layers.0.mlp.gate.weight"),
    ({"mlp_layer_types": ["sparse"] * 3}, ModelFileError, "two values of which layers are dense"),
    ({"mlp_layer_types": ["dense"]}, ModelFileError, "not 3 times dense or sparse"),
    ({"num_nextn_predict_layers": -1}, ModelFileError, "num_nextn_predict_layers = -1"),
    ({"num_experts": 7}, ModelFileError, r"mlp.router.gate.weight has the shape \[8, 64\]"),
    ({"moe_intermediate_size": 20, "expert_hidden_dim": 20}, ModelFileError, r"experts.0.gate_proj.weight has"),
]


@pytest.mark.parametrize(("changes", "error", "message"), REFUSED, ids=[case[2] for case in REFUSED])
def test_a_configuration_is_refused(
    folder: Path, changes: dict[str, Any], error: type[ModelError], message: str
) -> None:
    toy.edit_json(folder / "config.json", **changes)
    with pytest.raises(error, match=message):
        plan(folder)


@pytest.mark.parametrize(
    ("changes", "dense"),
    [
        ({"first_k_dense_replace": ...}, 1),
        ({"first_k_dense_replace": ..., "mlp_layer_types": ["dense", "sparse", "sparse"]}, 1),
        ({"num_experts": ..., "num_local_experts": 8}, 1),
        ({"rope_parameters": ..., "rope_theta": 11158840.0, "rope_scaling": None}, 1),
        ({"rope_parameters": {"rope_theta": 11158840.0}}, 1),
    ],
)
def test_other_ways_to_say_the_same(folder: Path, changes: dict[str, Any], dense: int) -> None:
    before = plan(folder)
    toy.edit_json(folder / "config.json", **changes)
    after = plan(folder)
    assert (after.metadata, after.tensors) == (before.metadata, before.tensors)
    assert sum("ffn_gate.weight" in tensor.name for tensor in after.tensors) == dense


def _without(weights: toy.Weights, name: str) -> toy.Weights:
    return {key: value for key, value in weights.items() if key != name}


@pytest.mark.parametrize("naming", ["published", "fused"])
def test_a_missing_expert_is_named(folder: Path, naming: str) -> None:
    weights = toy_moe.random_weights(SHAPE)
    if naming == "fused":
        name = "model.layers.1.mlp.experts.down_proj"
        weights = toy_moe.fused(weights, SHAPE)
    else:
        name = "model.layers.1.mlp.experts.7.up_proj.weight"
    write_weights(folder, _without(weights, name))
    with pytest.raises(ModelFileError, match=f"no tensor {name}"):
        plan(folder)


def test_two_names_for_one_tensor_are_refused(folder: Path) -> None:
    weights = toy_moe.random_weights(SHAPE)
    router = weights["model.layers.1.mlp.router.gate.weight"]
    write_weights(folder, {**weights, "model.layers.1.mlp.gate.weight": router})
    with pytest.raises(ModelFileError, match=r"same tensor twice: model.layers.1.mlp.gate.weight and"):
        plan(folder)


def test_an_expert_too_many_is_refused(folder: Path) -> None:
    weights = toy_moe.random_weights(SHAPE)
    extra = weights["model.layers.1.mlp.experts.0.up_proj.weight"]
    write_weights(folder, {**weights, "model.layers.1.mlp.experts.8.up_proj.weight": extra})
    with pytest.raises(ModelFileError, match=r"unexpected tensor model.layers.1.mlp.experts.8.up_proj.weight"):
        plan(folder)


def test_prediction_layers_are_left_out_with_a_warning(folder: Path) -> None:
    before = plan(folder)
    weights = toy_moe.random_weights(SHAPE)
    extra = {name.replace("layers.2.", "layers.3."): value for name, value in weights.items() if "layers.2." in name}
    write_weights(folder, {**weights, **extra, "model.layers.3.eh_proj.weight": np.ones((64, 128), dtype=np.float32)})
    with pytest.raises(ModelFileError, match=r"unexpected tensor model.layers.3"):
        plan(folder)
    toy.edit_json(folder / "config.json", num_nextn_predict_layers=1)
    after = plan(folder)
    assert [tensor.name for tensor in after.tensors] == [tensor.name for tensor in before.tensors]
    assert after.warnings == (f"{len(extra) + 1} tensors of layers that predict further tokens are left out",)
