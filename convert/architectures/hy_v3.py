"""HYV3: the mixture-of-experts model of the family, 30B-A3B.

Attention has per-head norms on queries and keys before the rotation, NeoX halves, no biases. The first layers are
dense; the others add one always active expert to those that a sigmoid router chooses. The head is not tied to the
embedding. What llama.cpp reads is in its loader of `hy_v3`; it tells dense layers from the others by their tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hymt_convert.architectures import MetadataValue, ModelPlan, TensorPlan, register
from hymt_convert.architectures.configuration import (
    agreeing,
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
from hymt_convert.safetensors_file import CheckpointTensor
from hymt_local.errors import ModelFileError, UnsupportedModelError

ARCHITECTURE = "hy_v3"
SIGMOID = 2
"""`expert_gating_func` (llama.cpp's enum llama_expert_gating_func_type)."""
EXPERT_LIMIT = 512
"""llama.cpp aborts on more."""

SHAPE_KEYS = (
    "hidden_size", "intermediate_size", "num_attention_heads", "head_dim", "vocab_size", "max_position_embeddings",
    "num_experts", "num_experts_per_tok", "num_shared_experts", "moe_intermediate_size",
)  # fmt: skip
REQUIRED_VALUES: Mapping[str, tuple[object, ...]] = {
    "model_type": ("hy_v3",),
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "qk_norm": (True,),
    "route_norm": (True,),
    "moe_router_use_sigmoid": (True,),
    "moe_router_enable_expert_bias": (True,),
}
READ_KEYS = frozenset({
    "architectures", "num_hidden_layers", "num_key_value_heads", "attention_head_dim", "rms_norm_eps", "rope_theta",
    "rope_scaling", "rope_parameters", "tie_word_embeddings", "num_local_experts", "expert_hidden_dim",
    "first_k_dense_replace", "mlp_layer_types", "router_scaling_factor", "num_nextn_predict_layers", *SHAPE_KEYS,
    # how exactly sums are kept, and what training reports
    "enable_lm_head_fp32", "enable_attention_fp32_softmax", "enable_moe_fp32_combine", "output_router_logits",
    "router_aux_loss_coef", "use_grouped_mm",
})  # fmt: skip
NEUTRAL_ROPE_KEYS = frozenset({"rope_theta", "type", "rope_type"})

ATTENTION_TENSORS: Mapping[str, str] = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
}
"""Checkpoint name inside a layer -> GGUF name inside `blk.N.`."""
ROUTER_NAMES = ("mlp.gate.weight", "mlp.router.gate.weight")
BIAS_NAMES = ("mlp.e_score_correction_bias", "mlp.expert_bias", "mlp.gate.e_score_correction_bias")
"""Names of one and the same tensor: transformers uses the first in memory, published files use the second."""
SHARED_EXPERT_NAMES = ("mlp.shared_experts", "mlp.shared_mlp")
FUSED_NAME = "mlp.experts.gate_up_proj"
_PROJECTIONS = ("gate", "up", "down")


@dataclass(frozen=True, slots=True)
class _Experts:
    """The routed experts of every layer."""

    number: int
    hidden: int
    inner: int

    def shape(self, projection: str) -> tuple[int, int]:
        """Return the shape of one matrix of one expert."""
        return (self.hidden, self.inner) if projection == "down" else (self.inner, self.hidden)


@register("HYV3ForCausalLM")
def build_plan(checkpoint: Checkpoint) -> ModelPlan:
    """Return header keys and tensors.

    Raises:
        ModelFileError: a key or tensor is missing, contradicts another or has the wrong shape.
        UnsupportedModelError: the configuration asks for mathematics that the result would not have.
    """
    config = _with_aliases(checkpoint.config)
    check_keys(config, required_values=REQUIRED_VALUES, read_keys=READ_KEYS)
    size = {key: count(config, key) for key in SHAPE_KEYS}
    if not size["num_experts_per_tok"] <= size["num_experts"] <= EXPERT_LIMIT or size["num_experts"] < 2:
        raise UnsupportedModelError(
            f"config.json uses {size['num_experts_per_tok']} of {size['num_experts']} experts, "
            f"llama.cpp takes 2 to {EXPERT_LIMIT}"
        )
    size["key_value_heads"] = key_value_heads(config, heads=size["num_attention_heads"], head_dim=size["head_dim"])
    metadata: dict[str, MetadataValue] = {
        "context_length": size["max_position_embeddings"],
        "embedding_length": size["hidden_size"],
        "block_count": layer_count(config),
        "feed_forward_length": size["intermediate_size"],
        "attention.head_count": size["num_attention_heads"],
        "attention.head_count_kv": size["key_value_heads"],
        "attention.key_length": size["head_dim"],
        "attention.value_length": size["head_dim"],
        "attention.layer_norm_rms_epsilon": positive(config, "rms_norm_eps"),
        "rope.freq_base": rope_base(config),
        "rope.scaling.type": "none",
        "expert_count": size["num_experts"],
        "expert_used_count": size["num_experts_per_tok"],
        "expert_feed_forward_length": size["moe_intermediate_size"],
        "expert_shared_feed_forward_length": size["moe_intermediate_size"] * size["num_shared_experts"],
        "expert_gating_func": SIGMOID,
        "expert_weights_norm": True,
        "expert_weights_scale": positive(config, "router_scaling_factor"),
        "vocab_size": size["vocab_size"],
    }
    keyed = {f"{ARCHITECTURE}.{key}": value for key, value in metadata.items()}
    weights = Weights(checkpoint.tensors)
    warnings = _drop_prediction_layers(config, weights)
    tensors = tuple(_plan_tensors(config, weights, size))
    return ModelPlan(ARCHITECTURE, keyed, tensors, size["vocab_size"], warnings)


def rope_base(config: Mapping[str, object]) -> float:
    """Return the base of the rotation, which nothing scales.

    Raises:
        UnsupportedModelError: a scaling is asked for.
        ModelFileError: the base is missing, or two places of config.json contradict each other.
    """
    rope = rope_table(config)
    check_rope(rope, kinds=("default",), neutral_keys=NEUTRAL_ROPE_KEYS)
    return positive(rope, "rope_theta")


def _with_aliases(config: Mapping[str, object]) -> dict[str, object]:
    """Join the two names under which published files give some sizes."""
    named = dict(config)
    for name, alias in (("num_experts", "num_local_experts"), ("moe_intermediate_size", "expert_hidden_dim")):
        named[name] = agreeing(config.get(name), config.get(alias), what=name)
    return named


def _is_sparse(config: Mapping[str, object]) -> list[bool]:
    """Return for every layer whether it has experts."""
    layers, kinds, dense = layer_count(config), config.get("mlp_layer_types"), config.get("first_k_dense_replace")
    if dense is not None and (type(dense) is not int or not 0 <= dense <= layers):
        raise ModelFileError(f"config.json has first_k_dense_replace = {dense!r} for {layers} layers")
    by_number = None if dense is None else [number >= dense for number in range(layers)]
    by_kind = None
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != layers or not set(kinds) <= {"dense", "sparse"}:
            raise ModelFileError(f"config.json has mlp_layer_types = {kinds!r:.80}, not {layers} times dense or sparse")
        by_kind = [kind == "sparse" for kind in kinds]
    agreed = agreeing(by_kind, by_number, what="which layers are dense")
    return list(agreed) if isinstance(agreed, list) else [number > 0 for number in range(layers)]


def _drop_prediction_layers(config: Mapping[str, object], weights: Weights) -> tuple[str, ...]:
    """Leave out the layers behind the last one, which guess further tokens ahead and change no answer."""
    extra = config.get("num_nextn_predict_layers") or 0
    if type(extra) is not int or extra < 0:
        raise ModelFileError(f"config.json has num_nextn_predict_layers = {extra!r}")
    first = layer_count(config)
    dropped = sum(weights.drop(f"model.layers.{number}.") for number in range(first, first + extra))
    return (f"{dropped} tensors of layers that predict further tokens are left out",) if dropped else ()


def _plan_tensors(config: Mapping[str, object], weights: Weights, size: Mapping[str, int]) -> Iterator[TensorPlan]:
    embedding = weights.take("model.embed_tokens.weight", (size["vocab_size"], size["hidden_size"]))
    yield TensorPlan.copy_of("token_embd.weight", embedding, full_precision=False)
    yield from weights.head(embedding, is_tied=config.get("tie_word_embeddings") is True)
    norm = weights.take("model.norm.weight", (size["hidden_size"],))
    yield TensorPlan.copy_of("output_norm.weight", norm, full_precision=True)
    for number, is_sparse in enumerate(_is_sparse(config)):
        source, result = f"model.layers.{number}", f"blk.{number}"
        yield from _attention(weights, source, result, size)
        if is_sparse:
            yield from _router(weights, source, result, size)
            yield from _routed_experts(weights, source, result, size)
            shared = weights.find([f"{source}.{name}.gate_proj.weight" for name in SHARED_EXPERT_NAMES])
            inner = size["moe_intermediate_size"] * size["num_shared_experts"]
            prefix = shared.removesuffix(".gate_proj.weight")
            yield from _feed_forward(weights, prefix, result, size["hidden_size"], inner=inner, suffix="_shexp")
        else:
            inner = size["intermediate_size"]
            yield from _feed_forward(weights, f"{source}.mlp", result, size["hidden_size"], inner=inner, suffix="")
    weights.check_empty()


def _attention(weights: Weights, source: str, result: str, size: Mapping[str, int]) -> Iterator[TensorPlan]:
    hidden, dim = size["hidden_size"], size["head_dim"]
    wide, narrow = size["num_attention_heads"] * dim, size["key_value_heads"] * dim
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (wide, hidden),
        "self_attn.k_proj": (narrow, hidden),
        "self_attn.v_proj": (narrow, hidden),
        "self_attn.o_proj": (hidden, wide),
        "self_attn.q_norm": (dim,),
        "self_attn.k_norm": (dim,),
        "post_attention_layernorm": (hidden,),
    }
    for name, short in ATTENTION_TENSORS.items():
        tensor = weights.take(f"{source}.{name}.weight", shapes[name])
        yield TensorPlan.copy_of(f"{result}.{short}.weight", tensor, full_precision=len(tensor.shape) == 1)


def _router(weights: Weights, source: str, result: str, size: Mapping[str, int]) -> Iterator[TensorPlan]:
    router = weights.find([f"{source}.{name}" for name in ROUTER_NAMES])
    bias = weights.find([f"{source}.{name}" for name in BIAS_NAMES])
    matrix = weights.take(router, (size["num_experts"], size["hidden_size"]))
    yield TensorPlan.copy_of(f"{result}.ffn_gate_inp.weight", matrix, full_precision=True)
    vector = weights.take(bias, (size["num_experts"],))
    yield TensorPlan.copy_of(f"{result}.exp_probs_b", vector, full_precision=True)


def _routed_experts(weights: Weights, source: str, result: str, size: Mapping[str, int]) -> Iterator[TensorPlan]:
    experts = _Experts(size["num_experts"], size["hidden_size"], size["moe_intermediate_size"])
    is_fused = f"{source}.{FUSED_NAME}" in weights
    parts = _fused_parts(weights, source, experts) if is_fused else _single_parts(weights, source, experts)
    for projection in _PROJECTIONS:
        shape = (experts.number, *experts.shape(projection))
        name = f"{result}.ffn_{projection}_exps.weight"
        yield TensorPlan(name, parts[projection], shape, full_precision=False)


def _fused_parts(weights: Weights, source: str, experts: _Experts) -> dict[str, tuple[CheckpointTensor, ...]]:
    """Cut the fused matrices into gate and up: each expert has the rows of its gate first, then those of `up`."""
    both = weights.take(f"{source}.{FUSED_NAME}", (experts.number, 2 * experts.inner, experts.hidden))
    down = weights.take(f"{source}.mlp.experts.down_proj", (experts.number, *experts.shape("down")))
    half = experts.inner * experts.hidden
    starts = range(0, 2 * half * experts.number, 2 * half)
    return {
        "gate": tuple(both.section(start, start + half) for start in starts),
        "up": tuple(both.section(start + half, start + 2 * half) for start in starts),
        "down": (down,),
    }


def _single_parts(weights: Weights, source: str, experts: _Experts) -> dict[str, tuple[CheckpointTensor, ...]]:
    return {
        projection: tuple(
            weights.take(f"{source}.mlp.experts.{number}.{projection}_proj.weight", experts.shape(projection))
            for number in range(experts.number)
        )
        for projection in _PROJECTIONS
    }


def _feed_forward(
    weights: Weights, source: str, result: str, hidden: int, *, inner: int, suffix: str
) -> Iterator[TensorPlan]:
    for projection in _PROJECTIONS:
        shape = (hidden, inner) if projection == "down" else (inner, hidden)
        tensor = weights.take(f"{source}.{projection}_proj.weight", shape)
        yield TensorPlan.copy_of(f"{result}.ffn_{projection}{suffix}.weight", tensor, full_precision=False)
