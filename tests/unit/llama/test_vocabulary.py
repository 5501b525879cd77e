"""Text and tokens of a llama backend."""

import threading
from pathlib import Path

import pytest

from hymt_local.engine.base import GenerationRequest
from hymt_local.engine.llama import LlamaBackend
from tests.llama_backends import answer, open_toy
from tests.toy_models import ToyModel, write_toy_model

pytestmark = pytest.mark.llama


def test_the_text_of_a_control_token_stays_text(backend: LlamaBackend) -> None:
    ids = backend.tokenize("a<|eos|>b")
    assert not set(ids) & set(backend.info.control_tokens.values())
    assert b"".join(backend._vocabulary.piece(token) for token in ids) == b"a<|eos|>b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the other", "the other"),
        ("é\0ü", "é\0ü"),
        ("zwölf  Boxkämpfer\n\n", "zwölf  Boxkämpfer\n\n"),
        ("火车" * 600, "火车" * 600),
        ("a" * 5000, "a" * 5000),
        ("\ud800x", "\ufffdx"),
    ],
)
def test_tokens_stand_for_the_bytes_of_the_text(backend: LlamaBackend, text: str, expected: str) -> None:
    data = b"".join(backend._vocabulary.piece(token) for token in backend.tokenize(text))
    assert data.decode() == expected


def test_control_tokens_stand_for_no_bytes(backend: LlamaBackend) -> None:
    assert {backend._vocabulary.piece(token) for token in backend.info.control_tokens.values()} == {b""}


def test_a_piece_longer_than_the_buffer_comes_whole(backend: LlamaBackend) -> None:
    token = backend.tokenize(" the")[0]
    assert backend._vocabulary._read_piece(token, 1) == b" the"


def test_runs_that_overflow_the_tokenizers_stack_are_cut_first(tmp_path: Path) -> None:
    path = write_toy_model(tmp_path / "toy.gguf", ToyModel(pre_tokenizer="hunyuan-dense"))
    lengths: list[int] = []

    def tokenize() -> None:
        backend = open_toy(path)
        lengths.extend(len(backend.tokenize(character * 20_000)) for character in "aก火 \n-é")
        backend.close()

    previous = threading.stack_size(512 << 10)  # what a thread has on macOS: 1,600 characters of a run kill it
    thread = threading.Thread(target=tokenize)
    thread.start()
    threading.stack_size(previous)
    thread.join()
    assert len(lengths) == 7


def test_a_sentencepiece_vocabulary_spells_unknown_characters_in_bytes(tmp_path: Path) -> None:
    backend = open_toy(write_toy_model(tmp_path / "toy.gguf", ToyModel(tokenizer="llama")))
    ids = backend.tokenize("the é" + "t" * 2000)
    assert b"".join(backend._vocabulary.piece(token) for token in ids).decode() == " the é" + "t" * 2000
    assert backend.info.stop_ids == {backend.info.control_tokens[text] for text in ("<|eos|>", "<|endoftext|>")}
    assert len(answer(backend, GenerationRequest(ids[:20], 5))) == 5
    backend.close()
