"""Byte-level BPE from tokenizer.json (llama.cpp calls it `gpt2`).

llama.cpp knows pre-tokenizers by name only, so the one in the file is compared piece by piece with the two of this
family and refused when it is neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, cast

from hymt_convert.checkpoint import Checkpoint
from hymt_convert.vocabulary import (
    ExpectedTokens,
    TokenType,
    Vocabulary,
    pad_tokens,
    read_chat_template,
    refuse,
    special_ids,
)
from hymt_local.errors import ModelFileError

_ENGLISH_ENDINGS = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)", "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])")
_WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_DENSE = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
PRE_TOKENIZERS: Mapping[tuple[str, ...], str] = {
    **{(endings + _WORDS,): "hunyuan" for endings in _ENGLISH_ENDINGS},
    _DENSE: "hunyuan-dense",
}
"""Successive split patterns -> llama.cpp's name for them."""

_RARE = 1000
"""One such token in so many is a curiosity, more are another tokenizer."""
_FORBIDDEN_MODEL_SETTINGS = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")


def read_bpe_vocabulary(
    checkpoint: Checkpoint, *, vocab_size: int, expected: ExpectedTokens | None = None
) -> Vocabulary:
    """Read tokenizer.json; see `vocabulary.read_vocabulary`."""
    file = cast("Mapping[str, Any]", checkpoint.read_json("tokenizer.json") or {})
    model = file.get("model")
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE" or not isinstance(model.get("vocab"), dict):
        kind = model.get("type") if isinstance(model, dict) else None
        raise refuse(f"in tokenizer.json is {kind}, not BPE")
    pre = _pre_tokenizer_name(file.get("pre_tokenizer"))
    _check_normalizer(file.get("normalizer"))
    merges = list(_merges(model))
    _check_model(model, merges)
    numbered = _collect_tokens(model["vocab"], _added_tokens(file))
    _check_control_unspellable(numbered, merges)
    # llama.cpp only merges here, so a file that also looks up whole words must not depend on it.
    unmerged = _unmerged_tokens(numbered, merges) if model.get("ignore_merges") else []
    tokens = pad_tokens(numbered, vocab_size=vocab_size)
    special = special_ids(checkpoint, tokens, fallback={}, expected=expected)
    return Vocabulary(
        model="gpt2",
        pre=pre,
        tokens=tuple(text for text, _ in tokens),
        types=tuple(kind for _, kind in tokens),
        special_ids=special.ids,
        merges=tuple(f"{left} {right}" for left, right in merges),
        chat_template=read_chat_template(checkpoint),
        warnings=(*special.warnings, *_whole_word_warnings(unmerged, len(numbered))),
    )


def byte_symbols() -> dict[int, str]:
    """Return the printable stand-in of every byte value, as GPT-2 defined it."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    symbols = {value: chr(value) for value in printable}
    for value in range(256):
        if value not in symbols:
            symbols[value] = chr(256 + len(symbols) - len(printable))
    return symbols


def _pre_tokenizer_name(pre_tokenizer: object) -> str:
    patterns: list[str] = []
    for step in _steps(pre_tokenizer, "pretokenizers"):
        if step.get("type") == "Split" and step.get("behavior") == "Isolated" and not step.get("invert"):
            patterns.append(_pattern(step))
        elif step.get("type") != "ByteLevel" or step.get("add_prefix_space") or step.get("use_regex", True):
            raise refuse(f"has the unknown pre-tokenizer step {step.get('type')}")
    name = PRE_TOKENIZERS.get(tuple(patterns))
    if name is None:
        raise refuse(f"splits text by unknown patterns: {patterns!r:.200}")
    return name


def _pattern(step: Mapping[str, Any]) -> str:
    pattern = step.get("pattern")
    text = pattern.get("Regex") if isinstance(pattern, dict) else None
    # Published files write line ends inside the classes both as escapes and as the characters themselves.
    return text.replace("\r", r"\r").replace("\n", r"\n") if isinstance(text, str) else ""


def _steps(value: object, inner: str) -> Iterator[Mapping[str, Any]]:
    if not isinstance(value, dict):
        return
    if value.get("type") == "Sequence":
        for step in value.get(inner) or []:
            yield from _steps(step, inner)
    else:
        yield value


def _check_normalizer(normalizer: object) -> None:
    for step in _steps(normalizer, "normalizers"):
        if step.get("type") != "NFC":  # NFC is the caller's duty: the catalog says for which models
            raise refuse(f"normalizes text with {step.get('type')}")


def _check_model(model: Mapping[str, Any], merges: list[tuple[str, str]]) -> None:
    for key in _FORBIDDEN_MODEL_SETTINGS:
        if model.get(key):
            raise refuse(f"has {key} = {model[key]!r}")
    vocab = model["vocab"]
    missing = [value for value, symbol in byte_symbols().items() if symbol not in vocab]
    if missing:
        raise refuse(f"has no token for the byte {missing[0]:#04x}")
    for left, right in merges:
        if not {left, right, left + right} <= vocab.keys():
            raise ModelFileError(f"tokenizer.json merges {left!r} and {right!r}, which are not all tokens")


def _unmerged_tokens(tokens: Mapping[int, tuple[str, TokenType]], merges: list[tuple[str, str]]) -> list[str]:
    """Return the tokens that merging never yields: only a tokenizer that looks up whole words can emit them."""
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    return [text for text, kind in tokens.values() if kind is TokenType.NORMAL and not _merges_whole(text, ranks)]


def _merges_whole(text: str, ranks: Mapping[tuple[str, str], int]) -> bool:
    parts = list(text)
    while len(parts) > 1:
        rank, place = min((ranks.get(pair, len(ranks)), place) for place, pair in enumerate(pairwise(parts)))
        if rank == len(ranks):
            return False
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return True


def _whole_word_warnings(unmerged: list[str], total: int) -> tuple[str, ...]:
    if not unmerged:
        return ()
    if len(unmerged) * _RARE > total:
        raise refuse(
            f"looks up whole words (ignore_merges): no merges lead to {unmerged[0]!r} and {len(unmerged)} more"
        )
    return (f"{len(unmerged)} tokens of the vocabulary are never used by llama.cpp, such as {unmerged[0]!r}",)


def _merges(model: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    merges = model.get("merges")
    if not isinstance(merges, list):
        raise ModelFileError("tokenizer.json has no merges")
    for merge in merges:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) and part for part in pair):
            raise ModelFileError(f"tokenizer.json has the malformed merge {merge!r}")
        yield pair[0], pair[1]


def _collect_tokens(vocab: Mapping[str, int], added: list[Mapping[str, Any]]) -> dict[int, tuple[str, TokenType]]:
    alphabet = set(byte_symbols().values())
    tokens: dict[int, tuple[str, TokenType]] = {}
    special = {item["content"]: _added_type(item) for item in added}
    own = [(item["content"], item.get("id")) for item in added]
    pairs = [*vocab.items(), *((text, number) for text, number in own if vocab.get(text) != number)]
    for text, number in pairs:
        if type(number) is not int or number < 0:
            raise ModelFileError(f"tokenizer.json gives {text!r} the id {number!r}")
        if number in tokens:
            raise ModelFileError(f"tokenizer.json gives the id {number} to {text!r} and to {tokens[number][0]!r}")
        kind = special.get(text, TokenType.NORMAL)
        if kind is TokenType.NORMAL and not alphabet.issuperset(text):
            raise ModelFileError(f"tokenizer.json has the token {text!r}, which is not made of byte symbols")
        tokens[number] = (text, kind)
    return tokens


def _added_tokens(file: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    added = file.get("added_tokens") or []
    for item in added if isinstance(added, list) else [added]:
        if not isinstance(item, dict) or not isinstance(item.get("content"), str) or not item["content"]:
            raise ModelFileError(f"tokenizer.json has the malformed added token {item!r:.80}")
    return cast("list[Mapping[str, Any]]", added)


def _check_control_unspellable(tokens: Mapping[int, tuple[str, TokenType]], merges: list[tuple[str, str]]) -> None:
    control = {text for text, kind in tokens.values() if kind is TokenType.CONTROL}
    for left, right in merges:
        if left + right in control:
            raise refuse(f"merges plain text into the control token {left + right!r}")


def _added_type(item: Mapping[str, Any]) -> TokenType:
    if item.get("special"):
        return TokenType.CONTROL
    if item.get("lstrip") or item.get("rstrip") or item.get("single_word"):
        raise refuse(f"strips whitespace around the added token {item['content']!r}")
    return TokenType.USER_DEFINED
