"""Vocabularies: llama.cpp splits text exactly as the reference library does, or the tokenizer is refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import tokenizers

from hymt_convert.bpe_vocabulary import PRE_TOKENIZERS, byte_symbols
from hymt_convert.checkpoint import open_checkpoint
from hymt_convert.conversion import ConversionRequest, convert
from hymt_convert.verify import ReferenceModel, read_metadata
from hymt_convert.vocabulary import TokenType, Vocabulary, read_vocabulary
from hymt_local.errors import ModelError, ModelFileError, UnsupportedModelError
from tests.convert import toy_checkpoint as toy

SENTENCES = (
    "Good morning! How much does this ticket to the harbour cost, please? It's 1234.50 euros, isn't it?",
    "Guten Morgen, könnten Sie mir bitte sagen, wo der größte Bahnhof ist?",
    "早上好！请问这张去港口的票多少钱？我们三个人，一共2025年。",
    "おはようございます。駅までの切符はいくらですか？カタカナとひらがな。",
    "좋은 아침입니다! 항구로 가는 표는 얼마예요?",
    "Доброе утро! Сколько стоит билет до порта?",
    "صباح الخير! كم ثمن التذكرة إلى الميناء من فضلك؟",
    "सुप्रभात! बंदरगाह का टिकट कितने का है?",
    "สวัสดีตอนเช้า ตั๋วไปท่าเรือราคาเท่าไหร่",
    "Καλημέρα! Πόσο κοστίζει το εισιτήριο για το λιμάνι;",
    "გამარჯობა, რა ღირს ბილეთი?",
)
TEXTS = (
    *SENTENCES,
    " ".join(SENTENCES),
    "",
    " ",
    "  two  spaces, trailing  ",
    "line\n\n  indented\r\n\ttab\t\tend\n",
    "DON'T shout, they'LL hear; l'été, rock'n'roll",
    "a1b22c333d4444 ١٢٣٤ 一二三 ½ Ⅻ",
    "!?… — «guillemets» „quotes“ @#$%^&*()_+=[]{}|\\;:'\",.<>/~`",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 🎉👩‍👩‍👧‍👦🇺🇳 ﷽ \u200b\u202b\ufeff",
    "cafe\u0301 or café; \u1e9b\u0323",
    "<|startoftext|>Ignore this<|extra_0|> <|eos|>!<|pad|>",
    "<s></s><unk><0x41> ▁ <|eos|",
)


def write_trained_bpe(folder: Path, patterns: tuple[str, ...]) -> tokenizers.Tokenizer:
    """Train a byte-level BPE and write a whole checkpoint around it."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=list(toy.CONTROL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*SENTENCES] * 3, trainer)
    toy.write_checkpoint(folder, toy.Shape(vocab_size=tokenizer.get_vocab_size() + 7))
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def train_sentencepiece(**settings: Any) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*SENTENCES] * 3),
        model_writer=model,
        **{
            "vocab_size": 700,
            "model_type": "bpe",
            "byte_fallback": True,
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
            "control_symbols": list(toy.CONTROL_TOKENS),
            "minloglevel": 2,
            **settings,
        },
    )
    return model.getvalue()


def write_sentencepiece(folder: Path, model: bytes) -> None:
    toy.write_checkpoint(folder, toy.Shape(vocab_size=720))
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_bytes(model)


@pytest.mark.llama
@pytest.mark.parametrize(("patterns", "pre"), PRE_TOKENIZERS.items(), ids=["hunyuan", "hunyuan-spelled", "dense"])
def test_llama_cpp_splits_like_tokenizers(tmp_path: Path, patterns: tuple[str, ...], pre: str) -> None:
    reference = write_trained_bpe(tmp_path / "toy", patterns)
    reference.encode_special_tokens = True  # control-token text in a user's text is text
    file = convert(ConversionRequest(tmp_path / "toy", tmp_path, ("F16",))).files[0]
    with ReferenceModel(file.path) as model:
        for text in TEXTS:
            assert model.tokenize(text) == reference.encode(text).ids, text
        control = reference.token_to_id(toy.CONTROL_TOKENS[2])
        assert model.tokenize("x<|eos|>", special=True)[-1] == control
        assert model.end_ids == {control}
        assert model.bos_id == reference.token_to_id(toy.CONTROL_TOKENS[0])
    assert read_metadata(file.path)["tokenizer.ggml.pre"] == pre


@pytest.mark.llama
@pytest.mark.parametrize("add_dummy_prefix", [True, False])
def test_llama_cpp_splits_like_sentencepiece(tmp_path: Path, add_dummy_prefix: bool) -> None:
    symbols = [] if add_dummy_prefix else ["Bahnhof"]
    content = train_sentencepiece(add_dummy_prefix=add_dummy_prefix, user_defined_symbols=symbols)
    write_sentencepiece(tmp_path / "toy", content)
    reference = sentencepiece.SentencePieceProcessor(model_proto=content)
    file = convert(ConversionRequest(tmp_path / "toy", tmp_path, ("F16",))).files[0]
    control = {reference.piece_to_id(text) for text in toy.CONTROL_TOKENS}
    with ReferenceModel(file.path) as model:
        for text in TEXTS:
            ids = model.tokenize(text)
            assert ids == reference.encode(text), text
            assert not control.intersection(ids)
        assert reference.piece_to_id(toy.CONTROL_TOKENS[2]) in model.end_ids
        assert model.bos_id == reference.piece_to_id(toy.CONTROL_TOKENS[0])


@pytest.mark.llama
def test_every_character_of_a_sentencepiece_vocabulary_survives(tmp_path: Path) -> None:
    content = train_sentencepiece()
    write_sentencepiece(tmp_path / "toy", content)
    reference = sentencepiece.SentencePieceProcessor(model_proto=content)
    for text in TEXTS:
        assert reference.unk_id() not in reference.encode(text)


def vocabulary(folder: Path, *, vocab_size: int = toy.VOCAB_SIZE) -> Vocabulary:
    return read_vocabulary(open_checkpoint(folder), vocab_size=vocab_size)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    toy.write_checkpoint(tmp_path)
    return tmp_path


def test_the_stand_ins_of_bytes_are_those_of_the_reference() -> None:
    from tokenizers import pre_tokenizers

    assert sorted(byte_symbols().values()) == sorted(pre_tokenizers.ByteLevel.alphabet())


def test_special_ids_come_from_the_tokenizer_and_not_from_config_json(folder: Path) -> None:
    assert vocabulary(folder).special_ids == {"bos": toy.BOS, "eos": toy.EOS, "padding": toy.PAD}


def test_a_second_end_token_becomes_the_end_of_turn(folder: Path) -> None:
    toy.write_json(folder / "generation_config.json", {"eos_token_id": [toy.EOS, toy.TURN_END]})
    assert vocabulary(folder).special_ids["eot"] == toy.TURN_END


def test_what_transformers_copies_from_config_json_is_ignored(folder: Path) -> None:
    copied = {"_from_model_config": True, "bos_token_id": 1, "eos_token_id": 2}
    toy.write_json(folder / "generation_config.json", copied)
    assert vocabulary(folder).special_ids["eos"] == toy.EOS


def test_generation_config_alone_is_enough(folder: Path) -> None:
    (folder / "tokenizer_config.json").unlink()
    toy.write_json(folder / "generation_config.json", {"bos_token_id": toy.BOS, "eos_token_id": toy.EOS})
    assert vocabulary(folder).special_ids == {"bos": toy.BOS, "eos": toy.EOS}


def test_neither_separator_nor_add_bos_is_written(folder: Path) -> None:
    toy.edit_json(folder / "tokenizer_config.json", sep_token=toy.CONTROL_TOKENS[1], add_bos_token=True)
    keys = vocabulary(folder).metadata()
    assert not [key for key in keys if "sep" in key or "add_bos" in key]


def test_rows_without_a_token_are_unused(folder: Path) -> None:
    padded = vocabulary(folder, vocab_size=toy.VOCAB_SIZE + 2)
    assert padded.types[-2:] == (TokenType.UNUSED, TokenType.UNUSED)
    assert len(padded.tokens) == len(set(padded.tokens)) == toy.VOCAB_SIZE + 2


def test_a_row_name_that_is_taken_is_refused(folder: Path) -> None:
    _edit_tokenizer(folder, lambda table: table["added_tokens"][3].update(content=f"[PAD{toy.VOCAB_SIZE}]"))
    toy.edit_json(folder / "tokenizer_config.json", pad_token=None)
    with pytest.raises(ModelFileError, match="twice"):
        vocabulary(folder, vocab_size=toy.VOCAB_SIZE + 1)


def test_a_template_file_wins_over_the_configuration(folder: Path) -> None:
    assert vocabulary(folder).chat_template == "{{ messages }}"
    (folder / "chat_template.jinja").write_text("{{ other }}")
    assert vocabulary(folder).chat_template == "{{ other }}"


def test_the_default_of_named_templates_is_used(folder: Path) -> None:
    named = [{"name": "tools", "template": "{{ t }}"}, {"name": "default", "template": "{{ d }}"}]
    toy.edit_json(folder / "tokenizer_config.json", chat_template=named)
    assert vocabulary(folder).chat_template == "{{ d }}"


def _edit_tokenizer(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    table = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    change(table)
    toy.write_json(folder / "tokenizer.json", table)


def _split_step(table: dict[str, Any]) -> dict[str, Any]:
    step: dict[str, Any] = table["pre_tokenizer"]["pretokenizers"][0]
    return step


REFUSED: list[tuple[Callable[[dict[str, Any]], object], type[ModelError], str]] = [
    (lambda t: _split_step(t)["pattern"].update(Regex="x"), UnsupportedModelError, "splits text by unknown patterns"),
    (lambda t: _split_step(t).update(behavior="Removed"), UnsupportedModelError, "unknown pre-tokenizer step Split"),
    (lambda t: _split_step(t).update(type="Digits"), UnsupportedModelError, "unknown pre-tokenizer step Digits"),
    (lambda t: t.update(pre_tokenizer=None), UnsupportedModelError, "splits text by unknown patterns"),
    (lambda t: t.update(normalizer={"type": "Lowercase"}), UnsupportedModelError, "normalizes text with Lowercase"),
    (lambda t: t["model"].update(type="Unigram"), UnsupportedModelError, "is Unigram, not BPE"),
    (lambda t: t["model"].update(dropout=0.1), UnsupportedModelError, "dropout = 0.1"),
    (lambda t: t["model"]["vocab"].pop("Ċ"), UnsupportedModelError, "no token for the byte 0x0a"),
    (lambda t: t["model"]["merges"].append(["x", "y"]), ModelFileError, "merges 'x' and 'y'"),
    (lambda t: t["model"]["merges"].append("x"), ModelFileError, "malformed merge 'x'"),
    (lambda t: t["model"].update(merges=None), ModelFileError, "no merges"),
    (lambda t: t["model"]["vocab"].update({"hell": 3}), ModelFileError, "gives the id 3 to"),
    (lambda t: t["model"]["vocab"].update({"hell": "3"}), ModelFileError, "the id '3'"),
    (lambda t: t["model"]["vocab"].update({"好": 300}), ModelFileError, "not made of byte symbols"),
    (lambda t: t["added_tokens"][0].update(id=5000), ModelFileError, "has the id 5000, but the embedding has"),
    (lambda t: t["added_tokens"].append({"id": 9}), ModelFileError, "malformed added token"),
    (
        lambda t: t["added_tokens"].append({"id": 300, "content": "x!", "special": False, "rstrip": True}),
        UnsupportedModelError,
        "strips whitespace around the added token 'x!'",
    ),
    (
        lambda t: t["model"].update(ignore_merges=True, merges=t["model"]["merges"][:1]),
        UnsupportedModelError,
        "looks up whole words",
    ),
    (
        lambda t: t["added_tokens"].append({"id": 258, "content": "hell", "special": True}),
        UnsupportedModelError,
        "merges plain text",
    ),
]


@pytest.mark.parametrize(("change", "error", "message"), REFUSED, ids=[case[2] for case in REFUSED])
def test_a_tokenizer_that_llama_cpp_would_not_reproduce_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], object], error: type[ModelError], message: str
) -> None:
    _edit_tokenizer(folder, change)
    with pytest.raises(error, match=message):
        vocabulary(folder)


def test_a_whole_word_lookup_that_adds_nothing_is_accepted(folder: Path) -> None:
    _edit_tokenizer(folder, lambda table: table["model"].update(ignore_merges=True))
    assert vocabulary(folder).warnings == ()


def test_a_rare_token_without_merges_is_a_warning(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hymt_convert.bpe_vocabulary._RARE", 10)
    _edit_tokenizer(folder, lambda table: table["model"].update(ignore_merges=True))
    _edit_tokenizer(folder, lambda table: table["model"]["merges"].pop())
    assert vocabulary(folder).warnings == ("1 tokens of the vocabulary are never used by llama.cpp, such as 'Ġw'",)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("tokenizer_config.json", {"eos_token": "$"}, "EOS id 3 is the ordinary token '\\$'"),
        ("tokenizer_config.json", {"eos_token": "<|end|>"}, "eos_token = '<|end|>', which is not in the vocabulary"),
        ("tokenizer_config.json", {"eos_token": None}, "gives the EOS token"),
        ("tokenizer_config.json", {"bos_token": None}, "gives the BOS token"),
        ("generation_config.json", {"eos_token_id": 3}, "eos_token is 263, but generation_config.json says 3"),
        ("generation_config.json", {"eos_token_id": [toy.EOS, 3]}, "EOT id 3 is the ordinary token"),
        ("generation_config.json", {"eos_token_id": [toy.EOS, 9999]}, "EOT id 9999 is outside the vocabulary"),
        ("generation_config.json", {"bos_token_id": 7}, "bos_token is 261, but generation_config.json says 7"),
    ],
)
def test_wrong_special_ids_are_refused(folder: Path, name: str, changes: dict[str, Any], message: str) -> None:
    if not (folder / name).exists():
        toy.write_json(folder / name, {})
    toy.edit_json(folder / name, **changes)
    with pytest.raises(ModelFileError, match=message.replace("|", r"\|")):
        vocabulary(folder)


def test_a_folder_without_a_tokenizer_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelFileError, match=r"none of tokenizer.json, hy.tiktoken and tokenizer.model"):
        vocabulary(folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "unigram", "vocab_size": 490}, "is not BPE"),
        ({"byte_fallback": False}, "no byte fallback"),
        ({"normalization_rule_name": "nmt_nfkc"}, "normalizes text"),
        ({"remove_extra_whitespaces": True}, "removes whitespace"),
        ({"user_defined_symbols": ["Bahnhof"]}, "has user-defined symbols"),
        ({"treat_whitespace_as_suffix": True}, "whitespace in a way of its own"),
    ],
)
def test_a_sentencepiece_model_that_llama_cpp_would_not_reproduce_is_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    write_sentencepiece(tmp_path, train_sentencepiece(**settings))
    with pytest.raises(UnsupportedModelError, match=message):
        vocabulary(tmp_path, vocab_size=720)


def test_pieces_that_spell_a_control_token_are_refused(tmp_path: Path) -> None:
    settings = {"user_defined_symbols": ["<|", "eos|>"], "add_dummy_prefix": False}
    write_sentencepiece(tmp_path, train_sentencepiece(**settings))
    with pytest.raises(UnsupportedModelError, match=r"can join the pieces '<\|' and 'eos\|>' to the control token"):
        vocabulary(tmp_path, vocab_size=720)


@pytest.mark.parametrize("cut", [0, 1, 100, 3000])
def test_a_damaged_sentencepiece_model_is_refused(tmp_path: Path, cut: int) -> None:
    write_sentencepiece(tmp_path, train_sentencepiece()[:cut])
    with pytest.raises(ModelError, match="tokenizer"):
        vocabulary(tmp_path, vocab_size=720)


def test_sentencepiece_scores_and_types_are_those_of_the_file(tmp_path: Path) -> None:
    content = train_sentencepiece(user_defined_symbols=["Bahnhof"], add_dummy_prefix=False)
    write_sentencepiece(tmp_path, content)
    reference = sentencepiece.SentencePieceProcessor(model_proto=content)
    read = vocabulary(tmp_path, vocab_size=720)
    assert read.tokens[: len(reference)] == tuple(reference.id_to_piece(list(range(len(reference)))))
    scores = [reference.get_score(number) for number in range(len(reference))]
    assert np.array_equal(read.scores[: len(reference)], scores)
    assert read.types[reference.piece_to_id("Bahnhof")] is TokenType.USER_DEFINED
    assert read.types[reference.piece_to_id("<0x41>")] is TokenType.BYTE
    assert read.types[reference.unk_id()] is TokenType.UNKNOWN
    assert read.types[reference.piece_to_id("<|eos|>")] is TokenType.CONTROL
