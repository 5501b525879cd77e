"""The vocabulary of a checkpoint as GGUF header keys: tokens, types, merges or scores, special ids, chat template.

Special ids come from the tokenizer's own files and are checked against the vocabulary. The ids in config.json are not
used: in published files of this family they are decoys. No separator key is written (a loader that honours it appends
that token to prompts) and no add-BOS key (prompts carry their own control ids).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from hymt_convert.architectures import MetadataValue
from hymt_convert.checkpoint import Checkpoint
from hymt_local.errors import ModelFileError, UnsupportedModelError

CHAT_TEMPLATE_LIMIT = 1 << 18


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens in the order of their ids, as long as the embedding has rows."""

    model: Literal["gpt2", "llama"]
    """`tokenizer.ggml.model`: byte-level BPE, or SentencePiece BPE with byte fallback."""
    pre: str
    """`tokenizer.ggml.pre`: the name of the pre-tokenizer."""
    tokens: tuple[str, ...]
    types: tuple[TokenType, ...]
    special_ids: Mapping[str, int] = field(default_factory=dict)
    """Of bos, eos, eot, padding, unknown: those that exist."""
    merges: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    chat_template: str | None = None
    settings: Mapping[str, MetadataValue] = field(default_factory=dict)
    """Further keys below `tokenizer.ggml.`."""
    warnings: tuple[str, ...] = ()
    """What the user should know; one line each."""

    def metadata(self) -> dict[str, MetadataValue]:
        """Return the header keys."""
        keys: dict[str, MetadataValue] = {"model": self.model, "pre": self.pre, "tokens": self.tokens}
        keys["token_type"] = [int(kind) for kind in self.types]
        if self.merges:
            keys["merges"] = self.merges
        if self.scores:
            keys["scores"] = self.scores
        keys.update({f"{name}_token_id": number for name, number in self.special_ids.items()})
        keys.update(self.settings)
        table = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
        if self.chat_template:
            table["tokenizer.chat_template"] = self.chat_template
        return table


@dataclass(frozen=True, slots=True)
class ExpectedTokens:
    """What is known of a model's control tokens from elsewhere."""

    model: str
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """bos, eos, padding -> the token's text; any of several will do."""
    ids: Mapping[str, int] = field(default_factory=dict)
    """Id by text."""


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """The ids of bos, eos, eot and padding that were found."""

    ids: Mapping[str, int]
    warnings: tuple[str, ...] = ()


def read_vocabulary(checkpoint: Checkpoint, *, vocab_size: int, expected: ExpectedTokens | None = None) -> Vocabulary:
    """Read the vocabulary: tokenizer.json when there is one, else hy.tiktoken, else tokenizer.model.

    Args:
        checkpoint: The opened folder.
        vocab_size: Rows of the embedding; the vocabulary is padded with unused tokens up to it.
        expected: What the tokenizer must agree with.

    Raises:
        ModelFileError: the tokenizer files are missing, damaged, or contradict each other or what is expected.
        UnsupportedModelError: a kind of tokenizer that llama.cpp would not reproduce.
    """
    if (checkpoint.folder / "tokenizer.json").exists():
        from hymt_convert.bpe_vocabulary import read_bpe_vocabulary

        return read_bpe_vocabulary(checkpoint, vocab_size=vocab_size, expected=expected)
    if (checkpoint.folder / "hy.tiktoken").exists():
        from hymt_convert.tiktoken_vocabulary import read_tiktoken_vocabulary

        return read_tiktoken_vocabulary(checkpoint, vocab_size=vocab_size, expected=expected)
    if (checkpoint.folder / "tokenizer.model").exists():
        from hymt_convert.sentencepiece_vocabulary import read_sentencepiece_vocabulary

        return read_sentencepiece_vocabulary(checkpoint, vocab_size=vocab_size, expected=expected)
    raise ModelFileError(
        f"{checkpoint.folder} has none of tokenizer.json, hy.tiktoken and tokenizer.model",
        hint="Download the tokenizer files too.",
    )


def pad_tokens(tokens: Mapping[int, tuple[str, TokenType]], *, vocab_size: int) -> list[tuple[str, TokenType]]:
    """Return `vocab_size` tokens by id, gaps filled with unused ones.

    Raises:
        ModelFileError: there are more tokens than rows in the embedding, or two tokens of one text.
    """
    if tokens and max(tokens) >= vocab_size:
        raise ModelFileError(
            f"the tokenizer has the id {max(tokens)}, but the embedding has {vocab_size} rows",
            hint="The tokenizer files belong to another model.",
        )
    padded = [tokens.get(number, (f"[PAD{number}]", TokenType.UNUSED)) for number in range(vocab_size)]
    seen: set[str] = set()
    for text, _ in padded:
        if text in seen:  # llama.cpp aborts the process
            raise ModelFileError(f"the vocabulary holds the token {text!r} twice")
        seen.add(text)
    return padded


def special_ids(
    checkpoint: Checkpoint,
    tokens: list[tuple[str, TokenType]],
    *,
    fallback: Mapping[str, int | None],
    expected: ExpectedTokens | None,
) -> SpecialIds:
    """Return the ids of bos, eos, eot and padding from tokenizer_config.json and generation_config.json.

    `eot` is a second end token of generation_config.json. `fallback` gives ids by the same names for a tokenizer that
    declares its own. What the tokenizer does not say is taken from `expected`; what it says must agree with it.

    Raises:
        ModelFileError: BOS or EOS is missing, is not a control token, or the files contradict each other.
    """
    declared = checkpoint.read_json("tokenizer_config.json") or {}
    generation = checkpoint.read_json("generation_config.json") or {}
    if generation.get("_from_model_config"):  # a copy of config.json, made by transformers when it saves
        generation = {}
    if expected is not None:
        _check_expected_ids(expected, tokens)
    ends = _id_list(generation, "eos_token_id")
    found: dict[str, int] = {}
    warnings: list[str] = []
    for name, key in (("bos", "bos_token"), ("eos", "eos_token"), ("padding", "pad_token")):
        number = _declared_id(declared, key, tokens)
        number = fallback.get(name) if number is None else number
        known = _expected_id(name, number, expected, tokens)
        generated = ends if name == "eos" else _id_list(generation, f"{key}_id")
        number = next((choice for choice in (number, known, *generated) if choice is not None), None)
        if number is None:
            continue
        if generated and number not in generated:
            warnings.append(_contradiction(key, number, generated, is_certain=known is not None))
        found[name] = number
    other_ends = [number for number in ends if number != found.get("eos")]
    if other_ends:
        found["eot"] = other_ends[0]
    _check_control(found, tokens)
    return SpecialIds(found, tuple(warnings))


def _check_expected_ids(expected: ExpectedTokens, tokens: list[tuple[str, TokenType]]) -> None:
    for text, number in expected.ids.items():
        found = tokens[number] if number < len(tokens) else ("nothing", TokenType.UNUSED)
        if found != (text, TokenType.CONTROL):
            raise ModelFileError(
                f"the tokenizer has {found[0]!r} at the id {number}, {expected.model} has the control token {text!r}",
                hint="The tokenizer files belong to another model.",
            )


def _expected_id(
    name: str, number: int | None, expected: ExpectedTokens | None, tokens: list[tuple[str, TokenType]]
) -> int | None:
    """Return the id that a special token must have; None when nothing is known of it."""
    texts = expected.texts.get(name, ()) if expected is not None else ()
    if expected is None or not texts:
        return None
    known = [place for place, (text, kind) in enumerate(tokens) if text in texts and kind == TokenType.CONTROL]
    if not known:
        raise ModelFileError(
            f"the tokenizer has no control token {texts[0]!r}, the {name.upper()} token of {expected.model}",
            hint="The tokenizer files belong to another model.",
        )
    if number is not None and number not in known:
        text = tokens[number][0] if 0 <= number < len(tokens) else ""
        raise ModelFileError(
            f"the tokenizer's {name.upper()} token is {number} {text!r}, that of {expected.model} is {texts[0]!r}",
            hint="If it is another model after all, say so with --as none.",
        )
    return number if number is not None else known[0]


def _contradiction(key: str, number: int, generated: list[int], *, is_certain: bool) -> str:
    message = f"the tokenizer's {key} is {number}, but generation_config.json says {', '.join(map(str, generated))}"
    if is_certain:
        return f"{message}, which is ignored"
    raise ModelFileError(message)


def _declared_id(declared: Mapping[str, object], key: str, tokens: list[tuple[str, TokenType]]) -> int | None:
    value = declared.get(key)
    text = value.get("content") if isinstance(value, dict) else value
    if text is None:
        return None
    matches = [number for number, (token, kind) in enumerate(tokens) if token == text and kind != TokenType.UNUSED]
    if not matches:
        raise ModelFileError(f"tokenizer_config.json has {key} = {text!r}, which is not in the vocabulary")
    return matches[0]


def _id_list(table: Mapping[str, object], key: str) -> list[int]:
    value = table.get(key)
    numbers = value if isinstance(value, list) else [value]
    return [number for number in numbers if type(number) is int]


def _check_control(found: Mapping[str, int], tokens: list[tuple[str, TokenType]]) -> None:
    for name in ("bos", "eos"):
        if name not in found:
            raise ModelFileError(
                f"neither tokenizer_config.json nor generation_config.json gives the {name.upper()} token",
                hint="The ids in config.json are wrong in published files of this family and are not used.",
            )
    for name, number in found.items():
        if not 0 <= number < len(tokens):
            raise ModelFileError(f"the {name.upper()} id {number} is outside the vocabulary of {len(tokens)} tokens")
        text, kind = tokens[number]
        if kind not in (TokenType.CONTROL, TokenType.UNKNOWN):
            raise ModelFileError(
                f"the {name.upper()} id {number} is the ordinary token {text!r}, not a control token",
                hint="Generation would end, or begin, at a piece of plain text.",
            )


def read_chat_template(checkpoint: Checkpoint) -> str | None:
    """Return the Jinja template of chat_template.jinja or tokenizer_config.json, None when there is none.

    Raises:
        ModelFileError: it is not UTF-8 or longer than any real template.
    """
    content = checkpoint.read_bytes("chat_template.jinja")
    if content is not None:
        try:
            template: object = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ModelFileError(f"chat_template.jinja is not UTF-8 at byte {error.start}") from error
    else:
        template = (checkpoint.read_json("tokenizer_config.json") or {}).get("chat_template")
    if isinstance(template, list):  # named templates
        named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
        template = named.get("default")
    if not isinstance(template, str) or not template:
        return None
    if len(template) > CHAT_TEMPLATE_LIMIT:
        raise ModelFileError(f"the chat template has {len(template)} characters")
    return template


def refuse(what: str) -> UnsupportedModelError:
    """Return the error for a tokenizer that llama.cpp would not reproduce."""
    return UnsupportedModelError(
        f"the tokenizer {what}", hint="llama.cpp would split text differently from the model's own tokenizer."
    )
