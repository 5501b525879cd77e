"""SentencePiece BPE from tokenizer.model (llama.cpp calls it `llama`).

llama.cpp applies no normalization to such a vocabulary and merges by score, so only BPE models with byte fallback and
the identity normalization are accepted. The library judges whether the file is sound; settings and piece types are read
from the file itself, because the library does not show them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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

_BPE = 2
_UNUSED_SCORE = -1000.0
"""Of padding: lower than any piece, so that no text merges into it."""
_PIECE, _TRAINER_SPEC, _NORMALIZER_SPEC = 1, 2, 3


@dataclass(frozen=True, slots=True)
class _Settings:
    """The fields that change how text is split; numbers are those of sentencepiece_model.proto."""

    model_type: int
    byte_fallback: bool
    whitespace_as_suffix: bool
    has_normalization: bool
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    escape_whitespaces: bool


def read_sentencepiece_vocabulary(
    checkpoint: Checkpoint, *, vocab_size: int, expected: ExpectedTokens | None = None
) -> Vocabulary:
    """Read tokenizer.model; see `vocabulary.read_vocabulary`."""
    content = checkpoint.read_bytes("tokenizer.model") or b""
    processor = _load(content)
    settings = _read_settings(content)
    _check(settings)
    pieces = _read_pieces(content)
    if settings.add_dummy_prefix and any(kind is TokenType.USER_DEFINED for _, kind, _ in pieces):
        raise refuse("puts a space in front of texts and has user-defined symbols, behind which llama.cpp adds another")
    _check_control_unspellable(pieces)
    tokens = pad_tokens({number: piece[:2] for number, piece in enumerate(pieces)}, vocab_size=vocab_size)
    scores = [score for _, _, score in pieces]
    declared = {"bos": processor.bos_id(), "eos": processor.eos_id(), "padding": processor.pad_id()}
    fallback = {name: number if number >= 0 else None for name, number in declared.items()}
    special = special_ids(checkpoint, tokens, fallback=fallback, expected=expected)
    unused = [_UNUSED_SCORE] * (vocab_size - len(scores))
    return Vocabulary(
        model="llama",
        pre="default",
        tokens=tuple(text for text, _ in tokens),
        types=tuple(kind for _, kind in tokens),
        special_ids={**special.ids, "unknown": processor.unk_id()},
        scores=(*scores, *unused),
        chat_template=read_chat_template(checkpoint),
        settings={"add_space_prefix": settings.add_dummy_prefix},
        warnings=special.warnings,
    )


def _load(content: bytes) -> Any:
    from sentencepiece import SentencePieceProcessor

    try:
        return SentencePieceProcessor(model_proto=content)
    except (RuntimeError, OSError, ValueError, TypeError) as error:
        raise ModelFileError(f"tokenizer.model is damaged: {error}", hint="Download it again.") from error


def _read_pieces(content: bytes) -> list[tuple[str, TokenType, float]]:
    try:
        messages = [dict(_fields(value)) for number, value in _fields(content) if number == _PIECE]
        return [_piece(message) for message in messages]
    except (IndexError, ValueError, TypeError, struct.error) as error:
        raise ModelFileError(f"tokenizer.model has a damaged piece: {error}", hint="Download it again.") from error


def _piece(message: dict[int, int | bytes]) -> tuple[str, TokenType, float]:
    text, score, kind = message.get(1, b""), message.get(2, bytes(4)), message.get(3, TokenType.NORMAL)
    if not isinstance(text, bytes) or not isinstance(score, bytes) or not isinstance(kind, int):
        raise ValueError("a field has the wrong type")
    return text.decode("utf-8"), TokenType(kind), struct.unpack("<f", score)[0]


def _check_control_unspellable(pieces: list[tuple[str, TokenType, float]]) -> None:
    """Refuse a vocabulary in which two plain pieces join to the text of a control token.

    SentencePiece never joins them, llama.cpp does: the user's text would then hold a control token.
    """
    plain = {text for text, kind, _ in pieces if kind in (TokenType.NORMAL, TokenType.USER_DEFINED)}
    for text, kind, _ in pieces:
        if kind not in (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.BYTE):
            continue
        for place in range(1, len(text)):
            left, right = text[:place], text[place:]
            if (len(left) == 1 or left in plain) and (len(right) == 1 or right in plain):
                raise refuse(f"can join the pieces {left!r} and {right!r} to the control token {text!r}")


def _check(settings: _Settings) -> None:
    if settings.model_type != _BPE:
        raise refuse("in tokenizer.model is not BPE")
    if not settings.byte_fallback:
        raise refuse("has no byte fallback: characters outside its vocabulary would be lost")
    if settings.has_normalization or settings.remove_extra_whitespaces:
        raise refuse("normalizes text or removes whitespace")
    if settings.whitespace_as_suffix or not settings.escape_whitespaces:
        raise refuse("treats whitespace in a way of its own")


def _read_settings(content: bytes) -> _Settings:
    try:
        sections = dict(_fields(content))
        trainer = dict(_fields(sections.get(_TRAINER_SPEC, b"")))
        normalizer = dict(_fields(sections.get(_NORMALIZER_SPEC, b"")))
        return _Settings(
            model_type=_number(trainer, 3, 1),
            byte_fallback=bool(_number(trainer, 35, 0)),
            whitespace_as_suffix=bool(_number(trainer, 24, 0)),
            has_normalization=bool(normalizer.get(2) or normalizer.get(6)),
            add_dummy_prefix=bool(_number(normalizer, 3, 1)),
            remove_extra_whitespaces=bool(_number(normalizer, 4, 1)),
            escape_whitespaces=bool(_number(normalizer, 5, 1)),
        )
    except (IndexError, ValueError) as error:
        raise ModelFileError(f"tokenizer.model is damaged: {error}", hint="Download it again.") from error


def _number(message: dict[int, int | bytes], field: int, default: int) -> int:
    value = message.get(field, default)
    if not isinstance(value, int):
        raise ValueError(f"field {field} is no number")
    return value


def _fields(message: int | bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of every field of a protocol buffer message; the last of a repeated field counts."""
    if not isinstance(message, bytes):
        raise ValueError("a number stands in place of a message")
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(message, place)
            yield key >> 3, value
            continue
        if kind == 2:
            length, place = _varint(message, place)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"unknown wire type {kind}")
        if place + length > len(message):
            raise ValueError("a field ends behind the file")
        yield key >> 3, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError("a number does not end")
