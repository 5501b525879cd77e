"""Random Hunyuan models, written in a moment: real files with the family's control tokens and no sense in them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter, TokenType
from gguf.quants import quantize

CONTROL_TOKENS = (
    "<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>",
    "<|extra_0|>", "<|extra_1|>", "<|extra_2|>", "<|extra_3|>", "<|extra_4|>",
)  # fmt: skip
"""In the order of the 7B family's vocabulary; they follow the text tokens."""
MERGES = ("Ġ t", "h e", "Ġt he", "i n", "e r", "o n")
PIECES = {"▁": -1.0, "t": -2.0, "h": -2.0, "e": -2.0, "▁t": -0.5, "he": -0.4, "▁the": -0.1}
"""Of the SentencePiece vocabulary, with their scores."""
N_BYTES = 256
N_EXPERTS = 4
EXPERT_FEED_FORWARD = 32
DOLLAR = ord("$")


@dataclass(frozen=True)
class ToyGeometry:
    """Sizes of a toy. The default is two thin layers; `heads * head_dim` need not be `hidden`."""

    hidden: int = 64
    layers: int = 2
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 32
    feed_forward: int = 128
    n_filler_tokens: int = 0
    """Text tokens that nothing merges into, to make the vocabulary as large as a real one."""
    context_length: int = 1024
    tensor_type: GGMLQuantizationType = GGMLQuantizationType.F32


@dataclass(frozen=True)
class ToyModel:
    """What `write_toy_model` writes; the defaults are sound."""

    geometry: ToyGeometry = field(default_factory=ToyGeometry)
    architecture: str = "hunyuan-dense"
    """With `hy_v3` all blocks but the first are mixtures of experts."""
    name: str = "toy"
    """`general.name`."""
    pre_tokenizer: str = "hunyuan"
    tokenizer: Literal["gpt2", "llama"] = "gpt2"
    """Byte-level BPE, or SentencePiece with byte fallback and a leading space."""
    eos_token: str = "<|eos|>"
    """Text of the token that the header calls EOS; `$` reproduces the published fault."""
    control_tokens: tuple[str, ...] = CONTROL_TOKENS
    seed: int = 0
    skipped_keys: frozenset[str] = frozenset()
    skipped_tensors: frozenset[str] = frozenset()
    scale: float = 1.0
    """Multiplies the weights; NaN makes every logit NaN."""


def control_id(
    text: str, *, geometry: ToyGeometry | None = None, control_tokens: tuple[str, ...] = CONTROL_TOKENS
) -> int:
    """Return the id of a control token."""
    filler = geometry.n_filler_tokens if geometry else 0
    return N_BYTES + len(MERGES) + filler + control_tokens.index(text)


def write_toy_model(path: Path, model: ToyModel | None = None) -> Path:
    """Write a GGUF file; under 0.1 s for the default."""
    model = model or ToyModel()
    writer = _Writer(str(path), model.architecture)
    writer.skipped = model.skipped_keys
    _add_hyperparameters(writer, model)
    if model.architecture == "hy_v3":
        _add_experts(writer)
    _add_vocabulary(writer, model)
    for name, shape in _tensor_shapes(model).items():
        if name not in model.skipped_tensors:
            _add_tensor(writer, name, shape, model=model)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_hollow_model(path: Path, model: ToyModel, *, vocabulary_type: GGMLQuantizationType) -> Path:
    """Write a file whose weights are a hole: all zeros, no room on the disk, in memory as large as they say.

    Matrices have the geometry's tensor type, which may be one that `gguf` cannot quantize to; the vocabulary's rows
    have one of their own, as in published files.
    """
    writer = _Writer(str(path), model.architecture)
    _add_hyperparameters(writer, model)
    _add_vocabulary(writer, model)
    n_bytes = 0
    for name, shape in _tensor_shapes(model).items():
        kind = vocabulary_type if name == "token_embd.weight" else model.geometry.tensor_type
        if len(shape) == 1:
            kind = GGMLQuantizationType.F32
        n_weights, block_bytes = GGML_QUANT_SIZES[kind]
        size = int(np.prod(shape)) // n_weights * block_bytes
        writer.add_tensor_info(name, shape, np.dtype(np.float32), size, raw_dtype=kind)
        n_bytes += writer.ggml_pad(size, writer.data_alignment)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    header_bytes = writer.ggml_pad(path.stat().st_size, writer.data_alignment)
    os.truncate(path, header_bytes + n_bytes)
    return path


class _Writer(GGUFWriter):
    skipped: frozenset[str] = frozenset()

    def add_key_value(self, key: str, *arguments: object, **options: object) -> None:
        if key not in self.skipped:
            super().add_key_value(key, *arguments, **options)


def _add_hyperparameters(writer: GGUFWriter, model: ToyModel) -> None:
    geometry = model.geometry
    writer.add_name(model.name)
    writer.add_file_type(0)
    writer.add_context_length(geometry.context_length)
    writer.add_embedding_length(geometry.hidden)
    writer.add_block_count(geometry.layers)
    writer.add_feed_forward_length(geometry.feed_forward)
    writer.add_head_count(geometry.heads)
    writer.add_head_count_kv(geometry.kv_heads)
    writer.add_key_length(geometry.head_dim)
    writer.add_value_length(geometry.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(11158840.0)


def _add_experts(writer: GGUFWriter) -> None:
    writer.add_expert_count(N_EXPERTS)
    writer.add_expert_used_count(2)
    writer.add_expert_feed_forward_length(EXPERT_FEED_FORWARD)
    writer.add_expert_shared_feed_forward_length(EXPERT_FEED_FORWARD)
    writer.add_expert_weights_norm(True)
    writer.add_expert_weights_scale(2.5)


def _add_vocabulary(writer: GGUFWriter, model: ToyModel) -> None:
    if model.tokenizer == "llama":
        _add_sentencepiece_vocabulary(writer, model)
        return
    tokens = text_tokens(model.geometry)
    everything = [*tokens, *model.control_tokens]
    types = [TokenType.NORMAL] * len(tokens) + [TokenType.CONTROL] * len(model.control_tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(model.pre_tokenizer)
    writer.add_token_list(everything)
    writer.add_token_types(types)
    writer.add_token_merges(list(MERGES))
    writer.add_eos_token_id(everything.index(model.eos_token))
    for key, text in (("bos", "<|startoftext|>"), ("pad", "<|pad|>")):
        if text in model.control_tokens:
            getattr(writer, f"add_{key}_token_id")(everything.index(text))


def _add_sentencepiece_vocabulary(writer: GGUFWriter, model: ToyModel) -> None:
    fallback = [f"<0x{byte:02X}>" for byte in range(N_BYTES)]
    tokens = ["<unk>", *fallback, *PIECES, *model.control_tokens]
    types = [
        TokenType.UNKNOWN,
        *[TokenType.BYTE] * N_BYTES,
        *[TokenType.NORMAL] * len(PIECES),
        *[TokenType.CONTROL] * len(model.control_tokens),
    ]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * (1 + N_BYTES) + list(PIECES.values()) + [0.0] * len(model.control_tokens))
    writer.add_token_types(types)
    writer.add_eos_token_id(tokens.index(model.eos_token))


def text_tokens(geometry: ToyGeometry) -> list[str]:
    """Return the text vocabulary: the 256 bytes in their byte-level spelling, ids 0 to 255, then merges and filler."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    spelled = {byte: chr(byte) for byte in printable}
    for byte in range(N_BYTES):
        spelled.setdefault(byte, chr(N_BYTES + len(spelled) - len(printable)))
    merged = [merge.replace(" ", "") for merge in MERGES]
    return [*(spelled[byte] for byte in range(N_BYTES)), *merged, *(f"~{i}~" for i in range(geometry.n_filler_tokens))]


def _tensor_shapes(model: ToyModel) -> dict[str, tuple[int, ...]]:
    geometry = model.geometry
    n_text_tokens = 1 + N_BYTES + len(PIECES) if model.tokenizer == "llama" else len(text_tokens(geometry))
    hidden = geometry.hidden
    queries, keys = geometry.heads * geometry.head_dim, geometry.kv_heads * geometry.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (n_text_tokens + len(model.control_tokens), hidden),
        "output_norm": (hidden,),
    }
    for layer in range(geometry.layers):
        parts: dict[str, tuple[int, ...]] = {
            "attn_norm": (hidden,),
            "attn_q": (queries, hidden),
            "attn_k": (keys, hidden),
            "attn_v": (keys, hidden),
            "attn_output": (hidden, queries),
            "attn_q_norm": (geometry.head_dim,),
            "attn_k_norm": (geometry.head_dim,),
            "ffn_norm": (hidden,),
        }
        is_moe = model.architecture == "hy_v3" and layer > 0
        parts |= _expert_shapes(hidden) if is_moe else _feed_forward_shapes(hidden, geometry.feed_forward)
        shapes |= {f"blk.{layer}.{part}": shape for part, shape in parts.items()}
    return {f"{name}.weight": shape for name, shape in shapes.items()}


def _feed_forward_shapes(hidden: int, feed_forward: int, *, suffix: str = "") -> dict[str, tuple[int, ...]]:
    shapes = {"ffn_gate": (feed_forward, hidden), "ffn_up": (feed_forward, hidden), "ffn_down": (hidden, feed_forward)}
    return {f"{name}{suffix}": shape for name, shape in shapes.items()}


def _expert_shapes(hidden: int) -> dict[str, tuple[int, ...]]:
    shapes = _feed_forward_shapes(hidden, EXPERT_FEED_FORWARD, suffix="_exps")
    experts = {name: (N_EXPERTS, *shape) for name, shape in shapes.items()}
    shared = _feed_forward_shapes(hidden, EXPERT_FEED_FORWARD, suffix="_shexp")
    return {"ffn_gate_inp": (N_EXPERTS, hidden), **experts, **shared}


def _add_tensor(writer: GGUFWriter, name: str, shape: tuple[int, ...], *, model: ToyModel) -> None:
    layer_free_name = ".".join(part for part in name.split(".") if not part.isdigit())
    seed = [model.seed, *layer_free_name.encode()]  # all layers share their weights: large toys are written fast
    weights = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) * np.float32(model.scale)
    if len(shape) == 1:
        writer.add_tensor(name, 1 + 0.1 * weights)
        return
    weights *= np.float32(shape[-1] ** -0.5)
    tensor_type = model.geometry.tensor_type
    writer.add_tensor(name, quantize(weights, tensor_type), raw_dtype=tensor_type)
