"""HunYuanDenseV1 in a few lines of numpy: what goes into every matrix of every layer, computed independently."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hymt_convert.architectures.hunyuan_dense import rope_base
from tests.convert import toy_checkpoint as toy

Array = NDArray[np.float64]


def matrix_inputs(weights: toy.Weights, shape: toy.Shape, tokens: Sequence[int]) -> dict[str, Array]:
    """Return GGUF tensor name -> its inputs for a text: shape [n_tokens, n_columns]."""
    inputs: dict[str, Array] = {}
    hidden = weights["model.embed_tokens.weight"].astype(np.float64)[list(tokens)]
    for layer in range(shape.num_hidden_layers):
        weight = {
            name.removeprefix(f"model.layers.{layer}.").removesuffix(".weight"): value.astype(np.float64)
            for name, value in weights.items()
            if name.startswith(f"model.layers.{layer}.")
        }
        normed = _rms_norm(hidden, weight["input_layernorm"], shape)
        attended = _attention(normed, weight, shape)
        hidden = hidden + attended @ weight["self_attn.o_proj"].T
        body = _rms_norm(hidden, weight["post_attention_layernorm"], shape)
        gate = body @ weight["mlp.gate_proj"].T
        inner = gate / (1 + np.exp(-gate)) * (body @ weight["mlp.up_proj"].T)
        hidden = hidden + inner @ weight["mlp.down_proj"].T
        inputs |= {f"blk.{layer}.attn_{name}.weight": normed for name in "qkv"}
        inputs |= {f"blk.{layer}.attn_output.weight": attended, f"blk.{layer}.ffn_down.weight": inner}
        inputs |= {f"blk.{layer}.ffn_{name}.weight": body for name in ("gate", "up")}
    return inputs


def _rms_norm(values: Array, weight: Array, shape: toy.Shape) -> Array:
    scale = np.sqrt((values**2).mean(axis=-1, keepdims=True) + shape.rms_norm_eps)
    return np.asarray(values / scale * weight)


def _attention(normed: Array, weight: dict[str, Array], shape: toy.Shape) -> Array:
    n_tokens, dim = len(normed), shape.head_dim
    queries, keys, values = (
        (normed @ weight[f"self_attn.{name}_proj"].T).reshape(n_tokens, -1, dim).transpose(1, 0, 2) for name in "qkv"
    )
    queries = _rms_norm(_rotated(queries, shape), weight["self_attn.query_layernorm"], shape)
    keys = _rms_norm(_rotated(keys, shape), weight["self_attn.key_layernorm"], shape)
    groups = shape.num_attention_heads // shape.num_key_value_heads
    keys, values = keys.repeat(groups, axis=0), values.repeat(groups, axis=0)
    scores = queries @ keys.transpose(0, 2, 1) / np.sqrt(dim)
    scores = np.where(np.tri(n_tokens, dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return np.asarray((shares @ values).transpose(1, 0, 2).reshape(n_tokens, -1))


def _rotated(heads: Array, shape: toy.Shape) -> Array:
    dim = shape.head_dim
    frequencies = rope_base(toy.config(shape), dim) ** (-np.arange(0, dim, 2) / dim)
    angles = np.arange(heads.shape[1])[:, None] * frequencies
    cosine, sine = np.tile(np.cos(angles), 2), np.tile(np.sin(angles), 2)
    swapped = np.concatenate([-heads[..., dim // 2 :], heads[..., : dim // 2]], axis=-1)
    return np.asarray(heads * cosine + swapped * sine)
