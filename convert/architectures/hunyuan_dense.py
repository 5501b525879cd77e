"""HunYuanDenseV1: every dense model of the family, 0.5B to 7B.

Attention has per-head norms on queries and keys after the rotation, NeoX halves, no biases; the head is tied to the
embedding in all published models. What llama.cpp reads is in its loader of `hunyuan-dense`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from hymt_convert.architectures import MetadataValue, ModelPlan, TensorPlan, register
from hymt_convert.checkpoint import Checkpoint
from hymt_convert.safetensors_file import CheckpointTensor
from hymt_local.errors import ModelFileError, UnsupportedModelError

ARCHITECTURE = "hunyuan-dense"
LAYER_LIMIT = 512
"""llama.cpp aborts on more."""

SHAPE_KEYS = (
    "hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads", "head_dim", "vocab_size",
    "max_position_embeddings",
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
"""Keys that select other mathematics: absent, null, or one of these."""

NEUTRAL_KEYS = frozenset({
    # read elsewhere
    "architectures", "num_key_value_heads", "attention_head_dim", "rms_norm_eps", "rope_theta", "rope_scaling",
    "rope_parameters", "tie_word_embeddings", *SHAPE_KEYS,
    # training, bookkeeping, and ids that belong to the tokenizer (`eod_token_id` is wrong in published files)
    "attention_dropout", "initializer_range", "use_cache", "dtype", "torch_dtype", "transformers_version", "auto_map",
    "_name_or_path", "bos_token_id", "eos_token_id", "eod_token_id", "pad_token_id", "sep_token_id", "pad_id",
    "im_start_id", "im_end_id", "im_newline_id", "text_start_id", "text_end_id", "mask_init_id", "org_vocab_size",
    # of heads and layers that a causal language model does not have: `use_cla`, classification, pooling
    "cla_share_factor", "class_num", "dense_list", "pool_type", "skip_cls_token",
})  # fmt: skip
NEUTRAL_ROPE_KEYS = frozenset({"rope_theta", "alpha", "type", "rope_type", "beta_fast", "beta_slow"})

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
    _check_keys(config)
    size = {key: _count(config, key) for key in SHAPE_KEYS}
    if size["num_hidden_layers"] > LAYER_LIMIT:
        raise UnsupportedModelError(
            f"config.json has {size['num_hidden_layers']} layers, llama.cpp takes {LAYER_LIMIT}"
        )
    size["num_key_value_heads"] = _key_value_heads(config, size)
    metadata: dict[str, MetadataValue] = {
        "context_length": size["max_position_embeddings"],
        "embedding_length": size["hidden_size"],
        "block_count": size["num_hidden_layers"],
        "feed_forward_length": size["intermediate_size"],
        "attention.head_count": size["num_attention_heads"],
        "attention.head_count_kv": size["num_key_value_heads"],
        "attention.key_length": size["head_dim"],
        "attention.value_length": size["head_dim"],
        "attention.layer_norm_rms_epsilon": _positive(config, "rms_norm_eps"),
        "rope.freq_base": rope_base(config, size["head_dim"]),
        "rope.scaling.type": "none",  # alpha is in the base already: a scaling key would apply it twice
        "vocab_size": size["vocab_size"],
    }
    keyed = {f"{ARCHITECTURE}.{key}": value for key, value in metadata.items()}
    return ModelPlan(ARCHITECTURE, keyed, tuple(_plan_tensors(checkpoint, size)), size["vocab_size"])


def rope_base(config: Mapping[str, object], head_dim: int) -> float:
    """Return the static base `theta * alpha ** (d / (d - 2))` that the family calls dynamic scaling.

    Raises:
        UnsupportedModelError: alpha is missing, or another kind of scaling is asked for.
        ModelFileError: two places of config.json contradict each other.
    """
    rope = _rope_table(config)
    kinds = {rope[key] for key in ("type", "rope_type") if rope.get(key) is not None}
    if kinds != {"dynamic"}:
        raise UnsupportedModelError(
            f"config.json asks for the RoPE scaling {sorted(map(str, kinds)) or None}, not dynamic"
        )
    if not isinstance(rope.get("alpha"), int | float):
        raise UnsupportedModelError(
            "config.json gives no RoPE alpha", hint="It differs between models of the family and cannot be guessed."
        )
    for key, value in rope.items():
        if key not in NEUTRAL_ROPE_KEYS and value not in (None, 1, 1.0):  # factor, mscale, mscale_all_dim
            raise UnsupportedModelError(f"config.json has the RoPE setting {key} = {value!r}, which is not supported")
    theta = _agreeing(rope.get("rope_theta"), config.get("rope_theta"), what="rope_theta")
    checked = {"rope_theta": theta, "alpha": rope["alpha"]}
    return float(_positive(checked, "rope_theta") * _positive(checked, "alpha") ** (head_dim / (head_dim - 2)))


def _rope_table(config: Mapping[str, object]) -> dict[str, object]:
    tables = [config[key] for key in ("rope_parameters", "rope_scaling") if config.get(key)]
    merged: dict[str, object] = {}
    for table in tables:
        if not isinstance(table, dict):
            raise ModelFileError("the RoPE settings of config.json are not a table")
        for key, value in table.items():
            merged[key] = _agreeing(merged.get(key), value, what=f"RoPE {key}")
    return merged


def _agreeing(first: object, second: object, *, what: str) -> object:
    if first is not None and second is not None and first != second:
        raise ModelFileError(f"config.json gives two values of {what}: {first!r} and {second!r}")
    return second if first is None else first


def _check_keys(config: Mapping[str, object]) -> None:
    for key, value in config.items():
        if key in REQUIRED_VALUES:
            if value is not None and value not in REQUIRED_VALUES[key]:
                raise UnsupportedModelError(
                    f"config.json has {key} = {value!r}, which this architecture does not cover"
                )
        elif key not in NEUTRAL_KEYS and value:  # an unknown feature that is off changes nothing
            raise UnsupportedModelError(
                f"config.json has the unknown key {key} = {value!r}",
                hint="It may change the mathematics, so it is not ignored. Set it to null if it does not.",
            )


def _count(config: Mapping[str, object], key: str) -> int:
    value = config.get(key)
    if type(value) is not int or not 0 < value < 1 << 31:
        raise ModelFileError(f"config.json has {key} = {value!r}, not a positive count")
    return value


def _positive(config: Mapping[str, object], key: str) -> float:
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise ModelFileError(f"config.json has {key} = {value!r}, not a positive number")
    return float(value)


def _key_value_heads(config: Mapping[str, object], size: Mapping[str, int]) -> int:
    if config.get("attention_head_dim") not in (None, size["head_dim"]):
        raise ModelFileError(
            f"config.json has head_dim {size['head_dim']} but attention_head_dim {config['attention_head_dim']!r}"
        )
    if size["head_dim"] < 4 or size["head_dim"] % 2:
        raise UnsupportedModelError(f"config.json has head_dim {size['head_dim']}: it must be even and at least 4")
    heads = size["num_attention_heads"]
    groups = heads if config.get("num_key_value_heads") is None else _count(config, "num_key_value_heads")
    if heads % groups:
        raise ModelFileError(f"config.json has {heads} attention heads, not a multiple of {groups} key-value heads")
    return groups


def _plan_tensors(checkpoint: Checkpoint, size: Mapping[str, int]) -> Iterator[TensorPlan]:
    left = dict(checkpoint.tensors)
    shapes = _layer_shapes(size)
    embedding = _take(left, "model.embed_tokens.weight", (size["vocab_size"], size["hidden_size"]))
    yield TensorPlan.copy_of("token_embd.weight", embedding, full_precision=False)
    yield from _plan_head(checkpoint.config, left, embedding)
    yield _norm("output_norm.weight", _take(left, "model.norm.weight", (size["hidden_size"],)))
    for number in range(size["num_hidden_layers"]):
        for name, result in LAYER_TENSORS.items():
            source = _take(left, f"model.layers.{number}.{name}.weight", shapes[name])
            is_norm = len(source.shape) == 1
            yield TensorPlan.copy_of(f"blk.{number}.{result}.weight", source, full_precision=is_norm)
    if left:
        raise ModelFileError(f"the checkpoint has the unexpected tensor {min(left)}")


def _layer_shapes(size: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    hidden, inner, dim = size["hidden_size"], size["intermediate_size"], size["head_dim"]
    wide, narrow = size["num_attention_heads"] * dim, size["num_key_value_heads"] * dim
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


def _plan_head(
    config: Mapping[str, object], left: dict[str, CheckpointTensor], embedding: CheckpointTensor
) -> Iterator[TensorPlan]:
    """A tied model may repeat the embedding as its head; only a repetition may be dropped."""
    name = "lm_head.weight"
    if config.get("tie_word_embeddings") is not True:
        yield TensorPlan.copy_of("output.weight", _take(left, name, embedding.shape), full_precision=False)
    elif name in left and not _equal(_take(left, name, embedding.shape), embedding):
        raise ModelFileError(
            f"config.json ties the head to the embedding, but {name} holds other values",
            hint="One of them is wrong: the checkpoint is damaged or its tie_word_embeddings is.",
        )


def _equal(first: CheckpointTensor, second: CheckpointTensor) -> bool:
    if first.dtype != second.dtype:
        return False
    return all(one == other for one, other in zip(first.raw_blocks(), second.raw_blocks(), strict=True))


def _norm(name: str, source: CheckpointTensor) -> TensorPlan:
    return TensorPlan.copy_of(name, source, full_precision=True)


def _take(left: dict[str, CheckpointTensor], name: str, shape: tuple[int, ...]) -> CheckpointTensor:
    tensor = left.pop(name, None)
    if tensor is None:
        raise ModelFileError(
            f"the checkpoint has no tensor {name}", hint="A shard is missing, or config.json is of another model."
        )
    if tensor.shape != shape:
        raise ModelFileError(f"tensor {name} has the shape {list(tensor.shape)}, config.json asks for {list(shape)}")
    tensor.check_readable()
    return tensor
