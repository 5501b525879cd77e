"""Byte-level BPE from hy.tiktoken: tokens in the order in which merging makes them, without the merges themselves.

llama.cpp wants the merges, so they are found again: what a token's bytes merge to before its own rank is reached is the
pair that makes it. The file says neither how text is split nor what the control tokens are; both are those of the
family (the 7B models are the only ones published with such a file). Its tokenizer class, a program, is never run.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from itertools import pairwise

from hymt_convert.bpe_vocabulary import byte_symbols
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

FILE_NAME = "hy.tiktoken"
NAMED_CONTROL_TOKENS = ("<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>")
"""They follow the ranks directly; `<|extra_0|>` and so on follow them."""
EXTRA_CONTROL_TOKENS = 205
UNMERGED_LIMIT = 8
"""The published vocabulary has 3 tokens of several bytes that no merges lead to."""
_FALLBACK = {"bos": "<|startoftext|>", "eos": "<|eos|>", "padding": "<|pad|>"}


def read_tiktoken_vocabulary(
    checkpoint: Checkpoint, *, vocab_size: int, expected: ExpectedTokens | None = None
) -> Vocabulary:
    """Read hy.tiktoken; see `vocabulary.read_vocabulary`."""
    ranks = _read_ranks(checkpoint.read_bytes(FILE_NAME) or b"")
    pairs = {token: _last_pair(token, ranks) for token in ranks if len(token) > 1}
    unmerged = [token for token, pair in pairs.items() if pair is None]
    if len(unmerged) > UNMERGED_LIMIT:
        raise refuse(f"in {FILE_NAME} has {len(unmerged)} tokens that no merges lead to, such as {unmerged[0]!r}")
    symbols = byte_symbols()
    control = _control_tokens(len(ranks), vocab_size)
    _check_declared(checkpoint, control)
    numbered = {rank: (_spelled(token, symbols), TokenType.NORMAL) for token, rank in ranks.items()}
    numbered |= {number: (text, TokenType.CONTROL) for text, number in control.items()}
    tokens = pad_tokens(numbered, vocab_size=vocab_size)
    fallback = {name: control[text] for name, text in _FALLBACK.items()}
    special = special_ids(checkpoint, tokens, fallback=fallback, expected=expected)
    merges = (" ".join(_spelled(part, symbols) for part in pair) for pair in pairs.values() if pair is not None)
    return Vocabulary(
        model="gpt2",
        pre="hunyuan",
        tokens=tuple(text for text, _ in tokens),
        types=tuple(kind for _, kind in tokens),
        special_ids=special.ids,
        merges=tuple(merges),
        chat_template=read_chat_template(checkpoint),
        warnings=(*special.warnings, *_warnings(unmerged)),
    )


def _read_ranks(content: bytes) -> dict[bytes, int]:
    """Return rank by token, in the order of the ranks."""
    by_rank = sorted(_lines(content), key=lambda line: line[1])
    ranks = dict(by_rank)
    if len(ranks) < len(by_rank) or [rank for _, rank in by_rank] != list(range(len(by_rank))):
        raise ModelFileError(f"the ranks of {FILE_NAME} are not 0, 1, 2 ... with a token of its own each")
    missing = [value for value in range(256) if bytes([value]) not in ranks]
    if missing:
        raise refuse(f"in {FILE_NAME} has no token for the byte {missing[0]:#04x}")
    return ranks


def _lines(content: bytes) -> Iterator[tuple[bytes, int]]:
    for number, line in enumerate(content.splitlines(), start=1):
        encoded, _, rank = line.partition(b" ")
        try:
            token = base64.b64decode(encoded, validate=True)
            yield token, int(rank)
        except (binascii.Error, ValueError) as error:
            raise ModelFileError(
                f"line {number} of {FILE_NAME} is not a token in base64 and its rank: {line[:60]!r}",
                hint="Download it again.",
            ) from error


def _last_pair(token: bytes, ranks: Mapping[bytes, int]) -> tuple[bytes, bytes] | None:
    """Merge a token's bytes by all lower ranks; return the two parts that are left, None when there are more."""
    parts = [token[place : place + 1] for place in range(len(token))]
    own = ranks[token]
    while len(parts) > 2:
        rank, place = min((ranks.get(left + right, own), place) for place, (left, right) in enumerate(pairwise(parts)))
        if rank >= own:
            return None
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return parts[0], parts[1]


def _spelled(token: bytes, symbols: Mapping[int, str]) -> str:
    return "".join(symbols[value] for value in token)


def _control_tokens(first: int, vocab_size: int) -> dict[str, int]:
    extras = min(vocab_size - first - len(NAMED_CONTROL_TOKENS), EXTRA_CONTROL_TOKENS)
    if extras < 0:
        raise ModelFileError(
            f"{FILE_NAME} has {first} tokens, which leaves no room for the control tokens in {vocab_size} rows",
            hint="The tokenizer files belong to another model.",
        )
    texts = (*NAMED_CONTROL_TOKENS, *(f"<|extra_{number}|>" for number in range(extras)))
    return {text: number for number, text in enumerate(texts, start=first)}


def _check_declared(checkpoint: Checkpoint, control: Mapping[str, int]) -> None:
    """Compare with the table of added tokens that some published folders have."""
    declared = (checkpoint.read_json("tokenizer_config.json") or {}).get("added_tokens_decoder") or {}
    for number, entry in declared.items() if isinstance(declared, dict) else ():
        text = entry.get("content") if isinstance(entry, dict) else None
        if control.get(str(text)) != _number(number):
            raise ModelFileError(
                f"tokenizer_config.json gives {text!r} the id {number}, {FILE_NAME} puts it at "
                f"{control.get(str(text), 'no place')}",
                hint="The tokenizer files belong to different models.",
            )


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isdecimal() else None


def _warnings(unmerged: list[bytes]) -> tuple[str, ...]:
    if not unmerged:
        return ()
    return (f"{len(unmerged)} tokens of the vocabulary are never used by llama.cpp, such as {unmerged[0]!r}",)
