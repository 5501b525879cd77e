"""hy.tiktoken: the merges that the file does not hold are found again, and llama.cpp splits text by them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers

from hymt_convert import tiktoken_vocabulary
from hymt_convert.bpe_vocabulary import byte_symbols
from hymt_convert.checkpoint import open_checkpoint
from hymt_convert.conversion import ConversionRequest, convert
from hymt_convert.tiktoken_vocabulary import FILE_NAME, NAMED_CONTROL_TOKENS
from hymt_convert.verify import ReferenceModel
from hymt_convert.vocabulary import TokenType, Vocabulary, read_vocabulary
from hymt_local.errors import ModelError, ModelFileError, UnsupportedModelError
from tests.convert import toy_checkpoint as toy
from tests.convert.test_vocabulary import SENTENCES, TEXTS

N_EXTRA = 7
UNMERGEABLE = (b"q\xc3\x28", b"\xff\xfe\xfd", b"zq\x00z")
"""Of several bytes, and no part of them of two bytes is a token."""


def train(*, vocab_size: int = 600) -> tokenizers.Tokenizer:
    """A byte-level BPE with the split of the 7B family."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(toy.SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([*SENTENCES] * 3, trainer)
    return tokenizer


def ranks_of(tokenizer: tokenizers.Tokenizer) -> dict[bytes, int]:
    values = {symbol: value for value, symbol in byte_symbols().items()}
    return {
        bytes(values[symbol] for symbol in text): number
        for text, number in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    }


def write_tiktoken(folder: Path, ranks: Mapping[bytes, int]) -> None:
    """A whole folder whose vocabulary is in hy.tiktoken; the tokenizer class beside it must not matter."""
    vocab_size = len(ranks) + len(NAMED_CONTROL_TOKENS) + N_EXTRA
    toy.write_checkpoint(folder, toy.Shape(vocab_size=vocab_size))
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    lines = (base64.b64encode(token) + f" {rank}\n".encode() for token, rank in ranks.items())
    (folder / FILE_NAME).write_bytes(b"".join(lines))
    (folder / "tokenization_hy.py").write_text("raise SystemExit('this must never run')")


def encode(text: str, ranks: Mapping[bytes, int]) -> list[int]:
    """The reference: in every piece, merge what makes the token of the lowest rank, until nothing does."""
    from tokenizers import Regex, pre_tokenizers

    ids: list[int] = []
    for piece, _ in pre_tokenizers.Split(Regex(toy.SPLIT), "isolated").pre_tokenize_str(text):
        parts = [bytes([value]) for value in piece.encode()]
        while len(parts) > 1:
            best = min((ranks.get(left + right, 1 << 30), place) for place, (left, right) in enumerate(pairwise(parts)))
            if best[0] == 1 << 30:
                break
            parts[best[1] : best[1] + 2] = [parts[best[1]] + parts[best[1] + 1]]
        ids += [ranks[part] for part in parts]
    return ids


@pytest.fixture(scope="module")
def trained() -> tokenizers.Tokenizer:
    return train()


@pytest.fixture
def ranks(trained: tokenizers.Tokenizer) -> dict[bytes, int]:
    return ranks_of(trained)


def vocabulary(folder: Path) -> Vocabulary:
    checkpoint = open_checkpoint(folder)
    return read_vocabulary(checkpoint, vocab_size=checkpoint.tensors["model.embed_tokens.weight"].shape[0])


def test_the_merges_are_those_of_the_training(
    tmp_path: Path, trained: tokenizers.Tokenizer, ranks: dict[bytes, int]
) -> None:
    write_tiktoken(tmp_path, ranks)
    merges = [" ".join(merge) for merge in json.loads(trained.to_str())["model"]["merges"]]
    assert len(merges) > 300
    assert list(vocabulary(tmp_path).merges) == merges


@pytest.mark.llama
def test_llama_cpp_splits_like_the_ranks(tmp_path: Path, ranks: dict[bytes, int]) -> None:
    write_tiktoken(tmp_path / "toy", ranks)
    file = convert(ConversionRequest(tmp_path / "toy", tmp_path, ("F16",))).files[0]
    with ReferenceModel(file.path) as model:
        for text in TEXTS:
            assert model.tokenize(text) == encode(text, ranks), text
        assert model.bos_id == len(ranks) + 1
        assert len(ranks) + 3 in model.end_ids
        assert model.tokenize("<|extra_0|>", special=True) == [len(ranks) + 5]


def test_the_control_tokens_are_the_familys(tmp_path: Path, ranks: dict[bytes, int]) -> None:
    write_tiktoken(tmp_path, ranks)
    read = vocabulary(tmp_path)
    first = len(ranks)
    extras = tuple(f"<|extra_{number}|>" for number in range(N_EXTRA))
    assert read.tokens[first:] == (*NAMED_CONTROL_TOKENS, *extras)
    assert set(read.types[first:]) == {TokenType.CONTROL}
    assert set(read.types[:first]) == {TokenType.NORMAL}
    assert read.special_ids == {"bos": first + 1, "eos": first + 3, "padding": first + 4}
    assert read.pre == "hunyuan"


def test_the_second_end_token_of_published_files_becomes_the_end_of_turn(
    tmp_path: Path, ranks: dict[bytes, int]
) -> None:
    write_tiktoken(tmp_path, ranks)
    ends = [len(ranks) + 3, len(ranks) + 10]
    toy.write_json(tmp_path / "generation_config.json", {"eos_token_id": ends, "pad_token_id": len(ranks) + 4})
    assert vocabulary(tmp_path).special_ids["eot"] == ends[1]


def test_rows_behind_the_last_extra_token_are_unused(
    tmp_path: Path, ranks: dict[bytes, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiktoken_vocabulary, "EXTRA_CONTROL_TOKENS", 2)
    write_tiktoken(tmp_path, ranks)
    read = vocabulary(tmp_path)
    assert read.tokens[-N_EXTRA:][:2] == ("<|extra_0|>", "<|extra_1|>")
    assert set(read.types[2 - N_EXTRA :]) == {TokenType.UNUSED}


def test_tokens_that_no_merges_lead_to_are_kept_and_reported(tmp_path: Path, ranks: dict[bytes, int]) -> None:
    merges = len(ranks) - 256
    ranks |= {token: len(ranks) + number for number, token in enumerate(UNMERGEABLE)}
    write_tiktoken(tmp_path, ranks)
    read = vocabulary(tmp_path)
    assert read.warnings == (f"3 tokens of the vocabulary are never used by llama.cpp, such as {UNMERGEABLE[0]!r}",)
    assert len(read.merges) == merges
    assert read.types[len(ranks) - 1] is TokenType.NORMAL


def test_a_vocabulary_that_is_not_made_by_merging_is_refused(
    tmp_path: Path, ranks: dict[bytes, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiktoken_vocabulary, "UNMERGED_LIMIT", 2)
    write_tiktoken(tmp_path, ranks | {token: len(ranks) + number for number, token in enumerate(UNMERGEABLE)})
    with pytest.raises(UnsupportedModelError, match="3 tokens that no merges lead to"):
        vocabulary(tmp_path)


def test_a_tokenizer_json_beside_it_wins(tmp_path: Path, ranks: dict[bytes, int]) -> None:
    write_tiktoken(tmp_path, ranks)
    toy.write_tokenizer(tmp_path)
    assert vocabulary(tmp_path).tokens[256] == "he"


def test_the_declared_added_tokens_must_agree(tmp_path: Path, ranks: dict[bytes, int]) -> None:
    write_tiktoken(tmp_path, ranks)
    first = len(ranks)
    declared = {str(first): {"content": "<|endoftext|>"}, str(first + 1): {"content": "<|startoftext|>"}}
    toy.write_json(tmp_path / "tokenizer_config.json", {"added_tokens_decoder": declared})
    assert vocabulary(tmp_path).special_ids["bos"] == first + 1
    declared[str(first + 2)] = {"content": "<|eos|>"}
    toy.write_json(tmp_path / "tokenizer_config.json", {"added_tokens_decoder": declared})
    with pytest.raises(ModelFileError, match=rf"gives '<\|eos\|>' the id {first + 2}, .* puts it at {first + 3}"):
        vocabulary(tmp_path)


DAMAGE: list[tuple[Callable[[bytes], bytes], type[ModelError], str]] = [
    (lambda content: content[:-3] + b"x\n", ModelFileError, "is not a token in base64 and its rank"),
    (lambda content: b"????? 0\n" + content, ModelFileError, "line 1 of hy.tiktoken is not"),
    (lambda content: b"", UnsupportedModelError, "no token for the byte 0x00"),
    (lambda content: content.split(b"\n", 1)[1], ModelFileError, "ranks of hy.tiktoken are not 0, 1, 2"),
    (lambda content: content + content.splitlines()[0] + b"\n", ModelFileError, "ranks of hy.tiktoken are not"),
    (lambda content: content + b"AAAA 5\n", ModelFileError, "ranks of hy.tiktoken are not"),
    (
        lambda content: content + b"".join(base64.b64encode(b"~%d" % n) + b" %d\n" % (600 + n) for n in range(99)),
        ModelFileError,
        "leaves no room for the control tokens",
    ),
]


@pytest.mark.parametrize(("change", "error", "message"), DAMAGE, ids=[str(number) for number in range(len(DAMAGE))])
def test_a_damaged_file_is_refused(
    tmp_path: Path, ranks: dict[bytes, int], change: Callable[[bytes], bytes], error: type[ModelError], message: str
) -> None:
    write_tiktoken(tmp_path, ranks)
    path = tmp_path / FILE_NAME
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(error, match=message):
        vocabulary(tmp_path)
