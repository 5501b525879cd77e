"""Small mixture-of-experts checkpoint folders with random weights, in each of the ways in which tensors are named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.convert import toy_checkpoint as toy


@dataclass(frozen=True)
class MoeShape:
    """The names follow config.json. By default queries are wider than the hidden state."""

    hidden_size: int = 64
    num_hidden_layers: int = 3
    intermediate_size: int = 96
    moe_intermediate_size: int = 40
    num_experts: int = 8
    num_experts_per_tok: int = 2
    num_shared_experts: int = 1
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 32
    vocab_size: int = toy.VOCAB_SIZE
    max_position_embeddings: int = 256
    router_scaling_factor: float = 2.826


def config(shape: MoeShape) -> dict[str, Any]:
    """A config.json with the keys of the published one."""
    return {
        "architectures": ["HYV3ForCausalLM"],
        "model_type": "hy_v3",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": 11158840.0, "rope_type": "default"},
        "first_k_dense_replace": 1,
        "expert_hidden_dim": shape.moe_intermediate_size,
        "moe_router_enable_expert_bias": True,
        "moe_router_use_sigmoid": True,
        "route_norm": True,
        "qk_norm": True,
        "attention_bias": False,
        "enable_lm_head_fp32": True,
        "enable_attention_fp32_softmax": False,
        "enable_moe_fp32_combine": False,
        "output_router_logits": False,
        "tie_word_embeddings": False,
        "use_cache": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "eod_token_id": 3,
        "pad_token_id": 4,
        "sep_token_id": toy.TURN_END,
        **{name: getattr(shape, name) for name in shape.__dataclass_fields__},
    }


def random_weights(shape: MoeShape, *, seed: int = 0) -> toy.Weights:
    """Weights under the published names: one tensor per expert."""
    random = np.random.default_rng(seed)

    def draw(*lengths: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        if len(lengths) == 1:
            return random.uniform(0.4, 1.6, lengths).astype(np.float32)
        return random.normal(0, lengths[-1] ** -0.5, lengths).astype(np.float32)

    weights = {
        "model.embed_tokens.weight": draw(shape.vocab_size, shape.hidden_size),
        "model.norm.weight": draw(shape.hidden_size),
        "lm_head.weight": draw(shape.vocab_size, shape.hidden_size),
    }
    for number in range(shape.num_hidden_layers):
        prefix = f"model.layers.{number}"
        weights |= {f"{prefix}.{name}.weight": draw(*lengths) for name, lengths in _attention(shape).items()}
        if number == 0:
            weights |= _feed_forward(f"{prefix}.mlp", shape.hidden_size, shape.intermediate_size, draw)
            continue
        weights[f"{prefix}.mlp.router.gate.weight"] = draw(shape.num_experts, shape.hidden_size)
        weights[f"{prefix}.mlp.expert_bias"] = random.normal(0, 0.3, shape.num_experts).astype(np.float32)
        inner = shape.moe_intermediate_size
        for expert in range(shape.num_experts):
            weights |= _feed_forward(f"{prefix}.mlp.experts.{expert}", shape.hidden_size, inner, draw)
        weights |= _feed_forward(f"{prefix}.mlp.shared_mlp", shape.hidden_size, inner * shape.num_shared_experts, draw)
    return weights


def _attention(shape: MoeShape) -> dict[str, tuple[int, ...]]:
    hidden, dim = shape.hidden_size, shape.head_dim
    wide, narrow = shape.num_attention_heads * dim, shape.num_key_value_heads * dim
    return {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (wide, hidden),
        "self_attn.k_proj": (narrow, hidden),
        "self_attn.v_proj": (narrow, hidden),
        "self_attn.o_proj": (hidden, wide),
        "self_attn.q_norm": (dim,),
        "self_attn.k_norm": (dim,),
    }


def _feed_forward(prefix: str, hidden: int, inner: int, draw: Any) -> toy.Weights:
    return {
        f"{prefix}.gate_proj.weight": draw(inner, hidden),
        f"{prefix}.up_proj.weight": draw(inner, hidden),
        f"{prefix}.down_proj.weight": draw(hidden, inner),
    }


def fused(weights: toy.Weights, shape: MoeShape) -> toy.Weights:
    """The same weights under the names that transformers uses in memory."""
    renamed: toy.Weights = {}
    for name, value in weights.items():
        if ".mlp.experts." in name:
            continue
        name = name.replace("mlp.router.gate.", "mlp.gate.").replace("mlp.shared_mlp.", "mlp.shared_experts.")
        renamed[name.replace("mlp.expert_bias", "mlp.e_score_correction_bias")] = value
    for number in range(1, shape.num_hidden_layers):
        prefix = f"model.layers.{number}.mlp.experts"
        single = [f"{prefix}.{expert}" for expert in range(shape.num_experts)]
        both = [
            np.concatenate([weights[f"{name}.gate_proj.weight"], weights[f"{name}.up_proj.weight"]]) for name in single
        ]
        renamed[f"{prefix}.gate_up_proj"] = np.stack(both)
        renamed[f"{prefix}.down_proj"] = np.stack([weights[f"{name}.down_proj.weight"] for name in single])
    return renamed


def write_checkpoint(folder: Path, shape: MoeShape | None = None, *, dtype: str = "F32", seed: int = 0) -> toy.Weights:
    """Write a whole folder under the published names; returns its weights."""
    shape = shape or MoeShape()
    folder.mkdir(parents=True, exist_ok=True)
    weights = random_weights(shape, seed=seed)
    toy.write_json(folder / "config.json", config(shape))
    toy.write_safetensors(folder / "model.safetensors", weights, dtype=dtype)
    toy.write_tokenizer(folder)
    return weights
