"""Small checkpoint folders with random weights, written without torch, transformers or tokenizers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hymt_convert.bpe_vocabulary import byte_symbols

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROL_TOKENS = ("<|startoftext|>", "<|extra_0|>", "<|eos|>", "<|pad|>")
MERGES = (("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"))
VOCAB_SIZE = 256 + len(MERGES) + len(CONTROL_TOKENS)
BOS, TURN_END, EOS, PAD = range(VOCAB_SIZE - 4, VOCAB_SIZE)

Weights = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Shape:
    """The names follow config.json."""

    hidden_size: int = 64
    num_hidden_layers: int = 2
    intermediate_size: int = 96
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 32
    vocab_size: int = VOCAB_SIZE
    max_position_embeddings: int = 256
    rms_norm_eps: float = 1e-5
    tie_word_embeddings: bool = True


def config(shape: Shape, *, alpha: float = 1000.0) -> dict[str, Any]:
    """A config.json with the decoys of published ones."""
    rope = {"type": "dynamic", "alpha": alpha, "factor": 1.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0}
    return {
        "architectures": ["HunYuanDenseV1ForCausalLM"],
        "model_type": "hunyuan_v1_dense",
        "hidden_act": "silu",
        "rope_theta": 10000.0,
        "rope_scaling": rope | {"mscale_all_dim": 1.0},
        "attention_head_dim": shape.head_dim,
        "attention_bias": False,
        "use_qk_norm": True,
        "use_cla": False,
        "cla_share_factor": 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "eod_token_id": 3,
        "sep_token_id": TURN_END,
        **asdict(shape),
    }


def random_weights(shape: Shape, *, seed: int = 0) -> Weights:
    """Matrices that keep the scale of what they multiply; norms far from 1, so that their order matters."""
    random = np.random.default_rng(seed)
    return {
        name: (
            random.uniform(0.4, 1.6, lengths) if len(lengths) == 1 else random.normal(0, lengths[-1] ** -0.5, lengths)
        ).astype(np.float32)
        for name, lengths in weight_shapes(shape).items()
    }


def weight_shapes(shape: Shape) -> dict[str, tuple[int, ...]]:
    hidden, inner, dim = shape.hidden_size, shape.intermediate_size, shape.head_dim
    wide, narrow = shape.num_attention_heads * dim, shape.num_key_value_heads * dim
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (shape.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not shape.tie_word_embeddings:
        shapes["lm_head.weight"] = (shape.vocab_size, hidden)
    for number in range(shape.num_hidden_layers):
        shapes |= {
            f"model.layers.{number}.{name}.weight": lengths
            for name, lengths in {
                "input_layernorm": (hidden,),
                "post_attention_layernorm": (hidden,),
                "self_attn.q_proj": (wide, hidden),
                "self_attn.k_proj": (narrow, hidden),
                "self_attn.v_proj": (narrow, hidden),
                "self_attn.o_proj": (hidden, wide),
                "self_attn.query_layernorm": (dim,),
                "self_attn.key_layernorm": (dim,),
                "mlp.gate_proj": (inner, hidden),
                "mlp.up_proj": (inner, hidden),
                "mlp.down_proj": (hidden, inner),
            }.items()
        }
    return shapes


def write_safetensors(path: Path, weights: Mapping[str, NDArray[np.float32]], *, dtype: str = "F32") -> None:
    """Write one file; BF16 cuts the lower half of every value off."""
    encoded = {name: _encode(value, dtype) for name, value in weights.items()}
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, data in encoded.items():
        header[name] = {
            "dtype": dtype,
            "shape": list(weights[name].shape),
            "data_offsets": [offset, offset + len(data)],
        }
        offset += len(data)
    write_raw_safetensors(path, header, b"".join(encoded.values()))


def write_raw_safetensors(path: Path, header: object, data: bytes) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def _encode(value: NDArray[np.float32], dtype: str) -> bytes:
    if dtype == "BF16":
        return (np.ascontiguousarray(value).view(np.uint32) >> 16).astype("<u2").tobytes()
    return value.astype("<f2" if dtype == "F16" else "<f4").tobytes()


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def tokenizer_json(*, merges: Iterable[tuple[str, str]] = MERGES) -> dict[str, Any]:
    """A tokenizer.json with the split of the 7B family, made by hand."""
    merges = list(merges)
    pieces = [*sorted(byte_symbols().values()), *(left + right for left, right in merges)]
    return {
        "version": "1.0",
        "added_tokens": [
            {
                "id": len(pieces) + number,
                "content": text,
                "special": True,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for number, text in enumerate(CONTROL_TOKENS)
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {piece: number for number, piece in enumerate(pieces)},
            "merges": [list(merge) for merge in merges],
        },
    }


def write_tokenizer(folder: Path) -> None:
    write_json(folder / "tokenizer.json", tokenizer_json())
    names = {
        "bos_token": CONTROL_TOKENS[0],
        "eos_token": {"content": CONTROL_TOKENS[2]},
        "pad_token": CONTROL_TOKENS[3],
    }
    write_json(folder / "tokenizer_config.json", {**names, "chat_template": "{{ messages }}"})


def write_checkpoint(
    folder: Path, shape: Shape | None = None, *, alpha: float = 1000.0, dtype: str = "F32", seed: int = 0
) -> Weights:
    """Write a whole folder with one safetensors file; returns its weights."""
    shape = shape or Shape()
    folder.mkdir(parents=True, exist_ok=True)
    weights = random_weights(shape, seed=seed)
    write_json(folder / "config.json", config(shape, alpha=alpha))
    write_safetensors(folder / "model.safetensors", weights, dtype=dtype)
    write_tokenizer(folder)
    return weights


def split_into_shards(
    folder: Path, weights: Mapping[str, NDArray[np.float32]], names: list[str], *, dtype: str
) -> None:
    """Replace model.safetensors by the shards `names` and an index."""
    (folder / "model.safetensors").unlink()
    weight_map: dict[str, str] = {}
    for number, name in enumerate(names):
        part = dict(list(weights.items())[number :: len(names)])
        write_safetensors(folder / name, part, dtype=dtype)
        weight_map |= dict.fromkeys(part, name)
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


def edit_json(path: Path, **changes: object) -> None:
    """Change keys of a JSON table; `...` removes one."""
    table = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    write_json(path, {key: value for key, value in table.items() if value is not ...})
