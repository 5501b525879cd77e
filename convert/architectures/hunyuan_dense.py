"""HunYuanDenseV1: every dense model of the family, 0.5B to 7B.

Attention has per-head norms on queries and keys after the rotation, NeoX halves, no biases; the head is tied to the
embedding in all published models. What llama.cpp reads is in its loader of `hunyuan-dense`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hymt_convert.architectures import MetadataValue, ModelPlan, TensorPlan, register
from hymt_convert.architectures.configuration import (
    check_keys,
    check_rope,
    count,
    key_value_heads,
    layer_count,
    positive,
    rope_table,
)
from hymt_convert.architectures.weights import Weights
from hymt_convert.checkpoint import Checkpoint
from hymt_local.errors import UnsupportedModelError

ARCHITECTURE = "hunyuan-dense"

SHAPE_KEYS = (
    "hidden_size", "intermediate_size", "num_attention_heads", "head_dim", "vocab_size", "max_position_embeddings",
)  # fmt: skip

REQUIRED_VALUES: Mapping[str, tuple[object, ...]] = {
    "model_type": ("hunyuan_v1_dense",),
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "use_cla": (False,),
    "use_qk_norm": (True,),
    "use_rotary_pos_emb": (True,),
    "norm_type": ("rms", "hf_rms"),
    "add_classification_head": (False,),
    "num_experts": (1,),
    "pretraining_tp": (1,),
    "position_embedding_xdrope": (False,),
}
READ_KEYS = frozenset({
    "architectures", "num_hidden_layers", "num_key_value_heads", "attention_head_dim", "rms_norm_eps", "rope_theta",
    "rope_scaling", "rope_parameters", "tie_word_embeddings", *SHAPE_KEYS,
    # of heads and layers that a causal language model does not have: `use_cla`, classification, pooling
    "cla_share_factor", "class_num", "dense_list", "pool_type", "skip_cls_token",
})  # fmt: skip
NEUTRAL_ROPE_KEYS = frozenset({"rope_theta", "alpha", "type", "rope_type", "beta_fast", "beta_slow"})
"""Besides these there are factor, mscale and mscale_all_dim, which must be 1."""

LAYER_TENSORS: Mapping[str, str] = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.query_layernorm": "attn_q_norm",
    "self_attn.key_layernorm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Checkpoint name inside a layer -> GGUF name inside `blk.N.`."""


@register("HunYuanDenseV1ForCausalLM")
def build_plan(checkpoint: Checkpoint) -> ModelPlan:
    """Return header keys and tensors.

    Raises:
        ModelFileError: a key or tensor is missing, contradicts another or has the wrong shape.
        UnsupportedModelError: the configuration asks for mathematics that the result would not have.
    """
    config = checkpoint.config
    check_keys(config, required_values=REQUIRED_VALUES, read_keys=READ_KEYS)
    size = {key: count(config, key) for key in SHAPE_KEYS}
    layers = layer_count(config)
    size["key_value_heads"] = key_value_heads(config, heads=size["num_attention_heads"], head_dim=size["head_dim"])
    metadata: dict[str, MetadataValue] = {
        "context_length": size["max_position_embeddings"],
        "embedding_length": size["hidden_size"],
        "block_count": layers,
        "feed_forward_length": size["intermediate_size"],
        "attention.head_count": size["num_attention_heads"],
        "attention.head_count_kv": size["key_value_heads"],
        "attention.key_length": size["head_dim"],
        "attention.value_length": size["head_dim"],
        "attention.layer_norm_rms_epsilon": positive(config, "rms_norm_eps"),
        "rope.freq_base": rope_base(config, size["head_dim"]),
        "rope.scaling.type": "none",  # alpha is in the base already: a scaling key would apply it twice
        "vocab_size": size["vocab_size"],
    }
    keyed = {f"{ARCHITECTURE}.{key}": value for key, value in metadata.items()}
    tensors = tuple(_plan_tensors(checkpoint, size, layers=layers))
    return ModelPlan(ARCHITECTURE, keyed, tensors, size["vocab_size"])


def rope_base(config: Mapping[str, object], head_dim: int) -> float:
    """Return the static base `theta * alpha ** (d / (d - 2))` that the family calls dynamic scaling.

    Raises:
        UnsupportedModelError: alpha is missing, or another kind of scaling is asked for.
        ModelFileError: two places of config.json contradict each other.
    """
    rope = rope_table(config)
    check_rope(rope, kinds=("dynamic",), neutral_keys=NEUTRAL_ROPE_KEYS)
    if not isinstance(rope.get("alpha"), int | float):
        raise UnsupportedModelError(
            "config.json gives no RoPE alpha", hint="It differs between models of the family and cannot be guessed."
        )
    return float(positive(rope, "rope_theta") * positive(rope, "alpha") ** (head_dim / (head_dim - 2)))


def _plan_tensors(checkpoint: Checkpoint, size: Mapping[str, int], *, layers: int) -> Iterator[TensorPlan]:
    weights = Weights(checkpoint.tensors)
    shapes = _layer_shapes(size)
    embedding = weights.take("model.embed_tokens.weight", (size["vocab_size"], size["hidden_size"]))
    yield TensorPlan.copy_of("token_embd.weight", embedding, full_precision=False)
    yield from weights.head(embedding, is_tied=checkpoint.config.get("tie_word_embeddings") is True)
    norm = weights.take("model.norm.weight", (size["hidden_size"],))
    yield TensorPlan.copy_of("output_norm.weight", norm, full_precision=True)
    for number in range(layers):
        for name, result in LAYER_TENSORS.items():
            source = weights.take(f"model.layers.{number}.{name}.weight", shapes[name])
            is_norm = len(source.shape) == 1
            yield TensorPlan.copy_of(f"blk.{number}.{result}.weight", source, full_precision=is_norm)
    weights.check_empty()


def _layer_shapes(size: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    hidden, inner, dim = size["hidden_size"], size["intermediate_size"], size["head_dim"]
    wide, narrow = size["num_attention_heads"] * dim, size["key_value_heads"] * dim
    return {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (wide, hidden),
        "self_attn.k_proj": (narrow, hidden),
        "self_attn.v_proj": (narrow, hidden),
        "self_attn.o_proj": (hidden, wide),
        "self_attn.query_layernorm": (dim,),
        "self_attn.key_layernorm": (dim,),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
