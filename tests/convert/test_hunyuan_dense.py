"""The architecture module: what config.json and the tensors must say, and that nothing is guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hymt_convert.architectures import MODULES, ModelPlan, get_architecture
from hymt_convert.architectures.hunyuan_dense import rope_base
from hymt_convert.checkpoint import open_checkpoint
from hymt_local.errors import ModelError, ModelFileError, UnsupportedModelError
from tests.convert import toy_checkpoint as toy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    toy.write_checkpoint(tmp_path)
    return tmp_path


def plan(folder: Path) -> ModelPlan:
    checkpoint = open_checkpoint(folder)
    return get_architecture(checkpoint.config)(checkpoint)


@pytest.mark.parametrize(
    ("alpha", "head_dim", "base"),
    # The first is in the published Hy-MT2 files, the second in a third-party test of Hunyuan-MT-7B.
    [(1000.0, 128, 11158840.0), (100000.0, 128, 1200508032.0), (1000.0, 64, 12496091.0)],
)
def test_the_rope_base_is_that_of_published_files(alpha: float, head_dim: int, base: float) -> None:
    computed = rope_base(toy.config(toy.Shape(head_dim=head_dim), alpha=alpha), head_dim)
    assert computed == pytest.approx(base, rel=1e-7)


def test_rope_settings_of_transformers_5_mean_the_same() -> None:
    old = toy.config(toy.Shape())
    rope = old["rope_scaling"]
    new = {**old, "rope_scaling": None, "rope_theta": None}
    new["rope_parameters"] = {**rope, "type": None, "rope_type": "dynamic", "rope_theta": 10000.0}
    assert rope_base(new, 32) == rope_base(old, 32)


def _rope(**changes: object) -> dict[str, Any]:
    rope = {**toy.config(toy.Shape())["rope_scaling"], **changes}
    return {"rope_scaling": {key: value for key, value in rope.items() if value is not ...}}


REFUSED: list[tuple[dict[str, Any], type[ModelError], str]] = [
    (_rope(alpha=...), UnsupportedModelError, "no RoPE alpha"),
    (_rope(alpha=0), ModelFileError, "alpha = 0, not a positive number"),
    (_rope(type="yarn"), UnsupportedModelError, "RoPE scaling \\['yarn'\\], not dynamic"),
    (_rope(rope_type="linear"), UnsupportedModelError, "\\['dynamic', 'linear'\\]"),
    (_rope(factor=4.0), UnsupportedModelError, "factor = 4.0"),
    (_rope(xdrope_section=[1, 2]), UnsupportedModelError, "xdrope_section"),
    ({"rope_scaling": None}, UnsupportedModelError, "RoPE scaling None"),
    ({"rope_theta": ...}, ModelFileError, "rope_theta = None"),
    ({"rope_parameters": {"alpha": 50.0}}, ModelFileError, "two values of RoPE alpha"),
    ({"rope_parameters": {"rope_theta": 5e5}}, ModelFileError, "two values of rope_theta"),
    ({"head_dim": None}, ModelFileError, "head_dim = None"),
    ({"head_dim": 31}, ModelFileError, "head_dim 31 but attention_head_dim 32"),
    ({"num_attention_heads": 3}, ModelFileError, "3 attention heads, not a multiple of 2"),
    ({"num_hidden_layers": 513}, UnsupportedModelError, "513 layers"),
    ({"num_hidden_layers": 3}, ModelFileError, "no tensor model.layers.2.input_layernorm.weight"),
    ({"num_hidden_layers": 1}, ModelFileError, "unexpected tensor model.layers.1"),
    ({"intermediate_size": 95}, ModelFileError, "mlp.gate_proj.weight has the shape \\[96, 64\\]"),
    ({"rms_norm_eps": "1e-5"}, ModelFileError, "rms_norm_eps = '1e-5'"),
    ({"rms_norm_eps": float("nan")}, ModelFileError, "rms_norm_eps = nan"),
    ({"hidden_act": "gelu"}, UnsupportedModelError, "hidden_act = 'gelu'"),
    ({"attention_bias": True}, UnsupportedModelError, "attention_bias = True"),
    ({"use_qk_norm": False}, UnsupportedModelError, "use_qk_norm = False"),
    ({"use_cla": True}, UnsupportedModelError, "use_cla = True"),
    ({"num_experts": 64}, UnsupportedModelError, "num_experts = 64"),
    ({"sliding_window": 4096}, UnsupportedModelError, "unknown key sliding_window"),
    ({"tie_word_embeddings": False}, ModelFileError, "no tensor lm_head.weight"),
    ({"architectures": ["LlamaForCausalLM"]}, UnsupportedModelError, "LlamaForCausalLM, which cannot be converted"),
    ({"architectures": ...}, UnsupportedModelError, "architecture None"),
]


@pytest.mark.parametrize(("changes", "error", "message"), REFUSED, ids=[str(case[2])[:30] for case in REFUSED])
def test_a_configuration_is_refused(
    folder: Path, changes: dict[str, Any], error: type[ModelError], message: str
) -> None:
    toy.edit_json(folder / "config.json", **changes)
    with pytest.raises(error, match=message):
        plan(folder)


def test_an_unknown_feature_that_is_off_is_no_reason_to_refuse(folder: Path) -> None:
    toy.edit_json(folder / "config.json", use_something_new=False, other=None, list_of=[])
    assert plan(folder).vocab_size == toy.VOCAB_SIZE


def test_a_head_equal_to_the_embedding_is_dropped(folder: Path) -> None:
    weights = toy.random_weights(toy.Shape())
    repeated = {**weights, "lm_head.weight": weights["model.embed_tokens.weight"]}
    toy.write_safetensors(folder / "model.safetensors", repeated)
    assert "output.weight" not in {tensor.name for tensor in plan(folder).tensors}


def test_a_head_that_differs_from_the_tied_embedding_is_refused(folder: Path) -> None:
    weights = toy.random_weights(toy.Shape())
    head = weights["model.embed_tokens.weight"].copy()
    head[-1, -1] += 1e-3
    toy.write_safetensors(folder / "model.safetensors", {**weights, "lm_head.weight": head})
    with pytest.raises(ModelFileError, match=r"lm_head.weight holds other values"):
        plan(folder)


def test_norms_stay_f32_and_matrices_follow_the_file(folder: Path) -> None:
    kept = {tensor.name: tensor.full_precision for tensor in plan(folder).tensors}
    assert {name for name, is_full in kept.items() if is_full} == {name for name in kept if "norm" in name}


def test_an_fp8_tensor_is_refused_with_its_name(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = toy.random_weights(toy.Shape())
    norm = weights.pop("model.norm.weight")
    toy.write_safetensors(path, weights)
    header = {"model.norm.weight": {"dtype": "F8_E4M3", "shape": list(norm.shape), "data_offsets": [0, norm.size]}}
    toy.write_raw_safetensors(folder / "second.safetensors", header, bytes(norm.size))
    with pytest.raises(UnsupportedModelError, match=r"quantized already \(tensor model.norm.weight, F8_E4M3\)"):
        plan(folder)


@pytest.mark.parametrize("name", MODULES)
def test_every_listed_architecture_has_a_builder(name: str) -> None:
    assert callable(get_architecture({"architectures": [name]}))


def test_the_real_configuration_of_hy_mt2_7b_has_only_known_keys(tmp_path: Path) -> None:
    published = {
        "add_classification_head": False, "attention_dropout": 0.1, "class_num": 0, "dense_list": [4096, 0],
        "torch_dtype": "bfloat16", "im_end_id": 5, "im_newline_id": 11, "im_start_id": 4, "initializer_range": 0.02,
        "mask_init_id": 12, "mlp_bias": False, "norm_type": "rms", "org_vocab_size": 128167, "pad_id": 127961,
        "pad_token_id": 127961, "pool_type": "last", "pretraining_tp": 1, "text_end_id": 7, "text_start_id": 6,
        "transformers_version": "4.57.6", "use_cache": True, "use_rotary_pos_emb": True,
    }  # fmt: skip
    toy.write_checkpoint(tmp_path)
    toy.edit_json(tmp_path / "config.json", **published)
    assert plan(tmp_path).architecture == "hunyuan-dense"


def test_weights_in_float64_are_refused(folder: Path) -> None:
    value = np.ones(64)
    header = {"model.norm.weight": {"dtype": "F64", "shape": [64], "data_offsets": [0, 512]}}
    weights = toy.random_weights(toy.Shape())
    del weights["model.norm.weight"]
    toy.write_safetensors(folder / "model.safetensors", weights)
    toy.write_raw_safetensors(folder / "second.safetensors", header, value.tobytes())
    with pytest.raises(UnsupportedModelError, match="is F64"):
        plan(folder)
