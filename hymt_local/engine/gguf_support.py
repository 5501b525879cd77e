"""Judging by its header whether this program can run a model, so that llama.cpp never dies of one.

llama.cpp refuses some files without a reason and aborts the process on others: both are said here, before it is asked.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from hymt_local.engine.gguf_file import BLOCK_SIZES, GgufHeader, array_length, corruption, count_distinct, read_array
from hymt_local.errors import UnsupportedModelError

MAX_EXPERTS = 512
"""llama.cpp aborts the process above it (LLAMA_MAX_EXPERTS)."""
DENSE_ARCHITECTURE = "hunyuan-dense"
MOE_ARCHITECTURE = "hy_v3"
ARCHITECTURES = (DENSE_ARCHITECTURE, MOE_ARCHITECTURE)

FOREIGN_TYPES: Mapping[int, str] = {
    40: "Q2_0C, the 2-bit format of Hy-MT2-1.8B-2Bit",
    42: "STQ1_0, the 1.25-bit format of Hy-MT2-1.8B-1.25Bit",
}
"""Type ids this model family uses for formats of its own; llama.cpp has since given them to others (NVFP4, Q2_0)."""

_ATTENTION_TENSORS = (
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "attn_q_norm",
    "attn_k_norm",
    "ffn_norm",
)
_DENSE_TENSORS = ("ffn_gate", "ffn_up", "ffn_down")
_EXPERT_TENSORS = ("ffn_down_exps", "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp")
_POSITIVE_KEYS = (
    "block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
)  # fmt: skip
_ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
_NOT_WEIGHTS = frozenset(range(24, 29))
"""Integers and F64: no matrix product takes them."""


def check_supported(header: GgufHeader) -> None:
    """Make sure that the engine can run this model.

    Raises:
        UnsupportedModelError: another architecture, tensor type or tokenizer.
        ModelFileError: keys or tensors are missing or contradict each other.
    """
    _check_architecture(header)
    _check_types(header)
    _check_keys(header)
    _check_tokenizer(header)
    _check_tensors(header)


def _check_architecture(header: GgufHeader) -> None:
    if header.architecture not in ARCHITECTURES:
        named = f"architecture {header.architecture!r}" if header.architecture else "no architecture"
        raise UnsupportedModelError(
            f"{header.path.name} has {named}; this program runs {' and '.join(ARCHITECTURES)}",
            hint="`hymt models list` names the models it knows",
        )
    kind, n_parts = header.metadata.get("general.type", "model"), header.metadata.get("split.count", 1)
    if kind != "model" or n_parts not in (0, 1):
        what = f"one of {n_parts} parts of a model" if kind == "model" else f"not a model but of type {kind!r}"
        raise UnsupportedModelError(f"{header.path.name} is {what}", hint="get the model as a single file")


def _check_types(header: GgufHeader) -> None:
    for tensor in header.tensors:
        is_matrix = len(tensor.shape) > 1
        if tensor.type_id in BLOCK_SIZES and (tensor.type_id not in _NOT_WEIGHTS if is_matrix else tensor.type_id == 0):
            continue
        kind = FOREIGN_TYPES.get(tensor.type_id, "a kind this program cannot compute with")
        raise UnsupportedModelError(
            f"{header.path.name} stores {tensor.name} as tensor type {tensor.type_id}: {kind}",
            hint="use a Q4_K_M, Q6_K or Q8_0 file of the same model",
        )


def _check_keys(header: GgufHeader) -> None:
    for name in _POSITIVE_KEYS:
        _count(header, name)
    epsilon = header.of_architecture("attention.layer_norm_rms_epsilon")
    if not isinstance(epsilon, float) or not 0 < epsilon < 1:
        raise corruption(header.path, f"{header.architecture}.attention.layer_norm_rms_epsilon = {epsilon!r}")
    _check_heads(header)
    _check_rope(header)
    _check_experts(header)
    if header.of_architecture("attention.causal") is False:
        raise UnsupportedModelError(f"{header.path.name} does not generate text: its attention is not causal")


def _check_heads(header: GgufHeader) -> None:
    n_heads = _count(header, "attention.head_count")
    n_kv_heads = _count(header, "attention.head_count_kv", default=n_heads)
    if n_heads % n_kv_heads:
        raise corruption(header.path, f"{n_heads} heads for {n_kv_heads} key-value heads")
    key_length = _count(header, "attention.key_length", default=_count(header, "embedding_length") // n_heads)
    for name in ("attention.value_length", "rope.dimension_count"):  # llama.cpp aborts when they differ
        if _count(header, name, default=key_length) != key_length or key_length % 2:
            raise corruption(header.path, f"key length {key_length}, {name} {header.of_architecture(name)!r}")


def _check_rope(header: GgufHeader) -> None:
    scaling = header.of_architecture("rope.scaling.type")
    if scaling is not None and scaling not in _ROPE_SCALINGS:
        raise UnsupportedModelError(f"{header.path.name} scales positions by {scaling!r}, which is unknown here")
    if any(read_array(header, f"{header.architecture}.rope.dimension_sections")):
        raise UnsupportedModelError(f"{header.path.name} is a vision model", hint="this program translates text")


def _check_experts(header: GgufHeader) -> None:
    n_experts, n_used, n_groups, n_layers = (
        _count(header, name, default=0, minimum=0)
        for name in ("expert_count", "expert_used_count", "expert_group_count", "nextn_predict_layers")
    )
    is_moe = header.architecture == MOE_ARCHITECTURE
    if not is_moe <= n_used <= n_experts <= MAX_EXPERTS or (n_experts > 1) != is_moe:
        raise corruption(header.path, f"{n_used} of {n_experts} experts used")
    if n_groups > is_moe:
        raise UnsupportedModelError(f"{header.path.name} groups its experts, which is unknown for {MOE_ARCHITECTURE}")
    if n_layers >= _count(header, "block_count"):
        raise corruption(header.path, f"{n_layers} prediction layers in all its blocks")


def _check_tokenizer(header: GgufHeader) -> None:
    model = header.metadata.get("tokenizer.ggml.model")
    n_tokens = array_length(header, "tokenizer.ggml.tokens")
    if model is None or not n_tokens:
        raise UnsupportedModelError(
            f"{header.path.name} has no tokenizer", hint="get a complete conversion of the model"
        )
    if model not in ("gpt2", "llama"):
        raise UnsupportedModelError(
            f"{header.path.name} has a tokenizer of kind {model!r}; this program reads gpt2 and llama"
        )
    if model == "gpt2" and not array_length(header, "tokenizer.ggml.merges"):
        raise corruption(header.path, "no tokenizer.ggml.merges")
    if model == "llama":
        _check_byte_tokens(header)
    n_types = array_length(header, "tokenizer.ggml.token_type")
    if n_types not in (0, n_tokens):
        raise corruption(header.path, f"{n_types} token types for {n_tokens} tokens")
    if count_distinct(header, "tokenizer.ggml.tokens") < n_tokens:  # llama.cpp aborts
        raise corruption(header.path, "a token twice in its vocabulary")


def _check_byte_tokens(header: GgufHeader) -> None:
    missing = {f"<0x{byte:02X}>" for byte in range(256)}.difference(read_array(header, "tokenizer.ggml.tokens"))
    if missing:  # llama.cpp aborts on the first character that needs one
        raise UnsupportedModelError(f"{header.path.name} has a SentencePiece vocabulary without {min(missing)}")


def _check_tensors(header: GgufHeader) -> None:
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    for name in _required_tensors(header, shapes):
        if name not in shapes:
            raise corruption(header.path, f"no tensor {name}")
    expected = (_count(header, "embedding_length"), array_length(header, "tokenizer.ggml.tokens"))
    if shapes["token_embd.weight"] != expected:
        raise corruption(header.path, f"token_embd.weight of shape {shapes['token_embd.weight']}, not {expected}")


def _required_tensors(header: GgufHeader, present: Container[str]) -> Iterator[str]:
    yield from ("token_embd.weight", "output_norm.weight")
    n_prediction_blocks = _count(header, "nextn_predict_layers", default=0, minimum=0)  # not used, may be missing
    for block in range(_count(header, "block_count") - n_prediction_blocks):
        parts = (*_ATTENTION_TENSORS, *_feed_forward_tensors(f"blk.{block}", present))
        yield from (f"blk.{block}.{part}.weight" for part in parts)


def _feed_forward_tensors(block: str, present: Container[str]) -> tuple[str, ...]:
    if f"{block}.ffn_gate_inp.weight" not in present:
        return _DENSE_TENSORS
    if f"{block}.ffn_gate_up_exps.weight" in present:
        return _EXPERT_TENSORS
    return (*_EXPERT_TENSORS, "ffn_gate_exps", "ffn_up_exps")


def _count(header: GgufHeader, name: str, *, default: int | None = None, minimum: int = 1) -> int:
    value = header.of_architecture(name)
    if value is None and default is not None:
        return default
    if isinstance(value, int) and not isinstance(value, bool) and minimum <= value < 1 << 31:
        return value
    raise corruption(header.path, f"{header.architecture}.{name} = {value!r}")
