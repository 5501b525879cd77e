"""Reading config.json strictly: every key is known to be harmless, or has a value that this converter covers.

A key that is not known might change the mathematics, so it is refused and not ignored.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from hymt_local.errors import ModelFileError, UnsupportedModelError

LAYER_LIMIT = 512
"""llama.cpp aborts on more."""

NEUTRAL_KEYS = frozenset({
    # training, bookkeeping, and ids that belong to the tokenizer (`eod_token_id` is wrong in published files)
    "attention_dropout", "initializer_range", "use_cache", "dtype", "torch_dtype", "transformers_version", "auto_map",
    "_name_or_path", "bos_token_id", "eos_token_id", "eod_token_id", "pad_token_id", "sep_token_id", "pad_id",
    "im_start_id", "im_end_id", "im_newline_id", "text_start_id", "text_end_id", "mask_init_id", "org_vocab_size",
})  # fmt: skip
"""Keys that change nothing in any architecture of the family."""


def check_keys(
    config: Mapping[str, object], *, required_values: Mapping[str, tuple[object, ...]], read_keys: Collection[str]
) -> None:
    """Refuse a configuration with a key that is not understood.

    Args:
        config: The table of config.json.
        required_values: Keys that select other mathematics: absent, null, or one of these values.
        read_keys: Keys that the caller looks at itself, or that change nothing for it.

    Raises:
        UnsupportedModelError: with the key and its value.
    """
    for key, value in config.items():
        if key in required_values:
            if value is not None and value not in required_values[key]:
                raise UnsupportedModelError(
                    f"config.json has {key} = {value!r}, which this architecture does not cover"
                )
        elif key not in read_keys and key not in NEUTRAL_KEYS and value:  # an unknown feature that is off is no matter
            raise UnsupportedModelError(
                f"config.json has the unknown key {key} = {value!r}",
                hint="It may change the mathematics, so it is not ignored. Set it to null if it does not.",
            )


def count(config: Mapping[str, object], key: str) -> int:
    """Return a positive whole number.

    Raises:
        ModelFileError: it is missing or something else.
    """
    value = config.get(key)
    if type(value) is not int or not 0 < value < 1 << 31:
        raise ModelFileError(f"config.json has {key} = {value!r}, not a positive count")
    return value


def positive(config: Mapping[str, object], key: str) -> float:
    """Return a positive number.

    Raises:
        ModelFileError: it is missing or something else.
    """
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise ModelFileError(f"config.json has {key} = {value!r}, not a positive number")
    return float(value)


def agreeing(first: object, second: object, *, what: str) -> object:
    """Return the one value that two places give, None when neither does.

    Raises:
        ModelFileError: they give different ones.
    """
    if first is not None and second is not None and first != second:
        raise ModelFileError(f"config.json gives two values of {what}: {first!r} and {second!r}")
    return second if first is None else first


def layer_count(config: Mapping[str, object]) -> int:
    """Return the number of layers.

    Raises:
        ModelFileError: it is missing.
        UnsupportedModelError: llama.cpp cannot take so many.
    """
    layers = count(config, "num_hidden_layers")
    if layers > LAYER_LIMIT:
        raise UnsupportedModelError(f"config.json has {layers} layers, llama.cpp takes {LAYER_LIMIT}")
    return layers


def key_value_heads(config: Mapping[str, object], *, heads: int, head_dim: int) -> int:
    """Return the number of key-value heads, after a look at the shape of the others.

    Raises:
        ModelFileError: the numbers contradict each other.
        UnsupportedModelError: heads that cannot be rotated.
    """
    if config.get("attention_head_dim") not in (None, head_dim):
        raise ModelFileError(
            f"config.json has head_dim {head_dim} but attention_head_dim {config['attention_head_dim']!r}"
        )
    if head_dim < 4 or head_dim % 2:
        raise UnsupportedModelError(f"config.json has head_dim {head_dim}: it must be even and at least 4")
    groups = heads if config.get("num_key_value_heads") is None else count(config, "num_key_value_heads")
    if heads % groups:
        raise ModelFileError(f"config.json has {heads} attention heads, not a multiple of {groups} key-value heads")
    return groups


def rope_table(config: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of `rope_parameters` and `rope_scaling` in one table, with `rope_theta` in it.

    Raises:
        ModelFileError: two places contradict each other.
    """
    merged: dict[str, object] = {}
    for name in ("rope_parameters", "rope_scaling"):
        table = config.get(name) or {}
        if not isinstance(table, dict):
            raise ModelFileError("the RoPE settings of config.json are not a table")
        for key, value in table.items():
            merged[key] = agreeing(merged.get(key), value, what=f"RoPE {key}")
    merged["rope_theta"] = agreeing(merged.get("rope_theta"), config.get("rope_theta"), what="rope_theta")
    return merged


def check_rope(rope: Mapping[str, object], *, kinds: Collection[str], neutral_keys: Collection[str]) -> None:
    """Refuse other kinds of rotation than `kinds`; unknown settings must have the value 1.

    Raises:
        UnsupportedModelError: with the setting.
    """
    found = {rope[key] for key in ("type", "rope_type") if rope.get(key) is not None}
    if not found <= set(kinds) or (not found and "default" not in kinds):
        raise UnsupportedModelError(
            f"config.json asks for the RoPE scaling {sorted(map(str, found)) or None}, not {' or '.join(kinds)}"
        )
    for key, value in rope.items():
        if key not in neutral_keys and value not in (None, 1, 1.0):
            raise UnsupportedModelError(f"config.json has the RoPE setting {key} = {value!r}, which is not supported")
