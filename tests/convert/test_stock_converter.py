"""Beside llama.cpp's own converter: the same tensors, and no difference in the header but the documented ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import quantize
from numpy.typing import NDArray

from hymt_convert.architectures import hunyuan_dense
from hymt_convert.verify import read_file_facts
from tests.bench.stock_converter import GOLDEN, TOYS, header_of, our_file
from tests.convert import toy_checkpoint as toy
from tests.convert import toy_moe
from tests.convert.test_parity import permuted_rows

README = Path(__file__).resolve().parents[2] / "convert" / "README.md"
ROW = re.compile(r"^\| `([\w.]+)` \| (both|hunyuan-dense|hy_v3) \|")
MOE_NAMES = {
    "mlp.router.gate.weight": "ffn_gate_inp.weight",
    "mlp.expert_bias": "exp_probs_b",
    "mlp.shared_mlp.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_mlp.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_mlp.down_proj.weight": "ffn_down_shexp.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
}
"""What gguf's own map, which is the dense models', does not know."""


def golden(architecture: str) -> dict[str, Any]:
    table: dict[str, Any] = json.loads((GOLDEN / f"stock-{architecture}.json").read_text(encoding="utf-8"))
    return table


def documented(architecture: str) -> set[str]:
    rows = [ROW.match(line) for line in README.read_text(encoding="utf-8").splitlines()]
    return {row[1].replace("ARCH", architecture) for row in rows if row and row[2] in ("both", architecture)}


@pytest.mark.parametrize("architecture", TOYS)
def test_the_headers_differ_in_the_documented_keys_only(tmp_path: Path, architecture: str) -> None:
    TOYS[architecture](tmp_path / "toy")
    ours, stock = header_of(our_file(tmp_path / "toy", tmp_path, "BF16")), golden(architecture)["header"]
    different = {key for key in ours.keys() | stock.keys() if ours.get(key) != stock.get(key)}
    assert different == documented(architecture)


@pytest.mark.parametrize("architecture", TOYS)
def test_the_tensors_have_the_same_names_types_and_shapes(tmp_path: Path, architecture: str) -> None:
    TOYS[architecture](tmp_path / "toy")
    facts = read_file_facts(our_file(tmp_path / "toy", tmp_path, "BF16"))
    ours = {name: [kind, list(facts.tensor_shapes[name])] for name, kind in facts.tensor_types.items()}
    assert ours == golden(architecture)["tensors"]


def reference(architecture: str, float_type: str) -> dict[str, bytes]:
    """The bytes of every tensor by gguf's name map and numpy alone."""
    weights = toy.random_weights(toy.Shape()) if architecture == "hunyuan-dense" else stacked()
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.HUNYUAN_DENSE, 3)
    result: dict[str, bytes] = {}
    for name, value in weights.items():
        mapped = names.get_name(name, try_suffixes=(".weight",)) or moe_name(name)
        rounded = (value.view(np.uint32) >> 16 << 16).view(np.float32)  # the checkpoint is in bf16
        is_full = value.ndim == 1 or mapped.endswith("ffn_gate_inp.weight")
        kind = gguf.GGMLQuantizationType["F32" if is_full else float_type]
        result[mapped] = quantize(rounded, kind).tobytes()
    return result


def unequal(folder: Path, architecture: str, float_type: str, output: Path) -> set[str]:
    """The tensors that hold other bytes than the reference."""
    reader = gguf.GGUFReader(our_file(folder, output, float_type))
    ours = {tensor.name: np.asarray(tensor.data).tobytes() for tensor in reader.tensors}
    expected = reference(architecture, float_type)
    assert ours.keys() == expected.keys()
    return {name for name in ours if ours[name] != expected[name]}


def stacked() -> dict[str, NDArray[np.float32]]:
    shape = toy_moe.MoeShape()
    weights = toy_moe.random_weights(shape)
    singles = {name: value for name, value in weights.items() if ".mlp.experts." not in name}
    for layer in range(1, shape.num_hidden_layers):
        for projection in ("gate", "up", "down"):
            prefix = f"model.layers.{layer}.mlp.experts"
            parts = [weights[f"{prefix}.{expert}.{projection}_proj.weight"] for expert in range(shape.num_experts)]
            singles[f"{prefix}.{projection}"] = np.stack(parts)
    return singles


def moe_name(name: str) -> str:
    _, _, layer, rest = name.split(".", 3)
    expert = re.fullmatch(r"mlp\.experts\.(\w+)", rest)
    return f"blk.{layer}.{f'ffn_{expert[1]}_exps.weight' if expert else MOE_NAMES[rest]}"


@pytest.mark.parametrize("float_type", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("architecture", TOYS)
def test_every_tensor_holds_the_bytes_of_a_plain_cast(tmp_path: Path, architecture: str, float_type: str) -> None:
    TOYS[architecture](tmp_path / "toy")
    assert unequal(tmp_path / "toy", architecture, float_type, tmp_path) == set()


def test_swapped_query_and_key_norms_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a dense model no logit can show it (see test_parity.py): bytes do."""
    names = dict(hunyuan_dense.LAYER_TENSORS)
    query, key = "self_attn.query_layernorm", "self_attn.key_layernorm"
    names[query], names[key] = names[key], names[query]
    monkeypatch.setattr(hunyuan_dense, "LAYER_TENSORS", names)
    TOYS["hunyuan-dense"](tmp_path / "toy")
    layers = range(toy.Shape().num_hidden_layers)
    swapped = {f"blk.{layer}.attn_{name}_norm.weight" for layer in layers for name in "qk"}
    assert unequal(tmp_path / "toy", "hunyuan-dense", "F32", tmp_path) == swapped


def test_a_permuted_tensor_shows(tmp_path: Path) -> None:
    TOYS["hunyuan-dense"](tmp_path / "toy")
    name = "model.layers.1.self_attn.q_proj.weight"
    weights = toy.random_weights(toy.Shape())
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    permuted = permuted_rows(weights, name, head_dim=toy.Shape().head_dim)
    toy.write_safetensors(tmp_path / "toy" / "model.safetensors", permuted, dtype="BF16")
    assert unequal(tmp_path / "toy", "hunyuan-dense", "F32", tmp_path) == {"blk.1.attn_q.weight"}
