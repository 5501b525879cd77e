"""What kills or deceives a process that trusts llama.cpp, and is neither in `test_misuse` nor in `test_gguf_file`."""

import asyncio
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from hymt_local.engine import llama
from hymt_local.engine.base import GenerationRequest, TokensGenerated
from hymt_local.engine.gguf_file import read_header
from hymt_local.engine.llama import open_llama_backend
from hymt_local.engine.options import LlamaOptions
from hymt_local.engine.slots import Run
from hymt_local.errors import DecodeError, EngineLoadError
from tests.llama_backends import PROMPT, answer, open_toy, play
from tests.toy_models import ToyGeometry, ToyModel, write_toy_model

pytestmark = pytest.mark.llama


def test_a_tensor_of_another_shape_is_an_error_with_its_name(toy_path: Path, tmp_path: Path) -> None:
    data = bytearray(toy_path.read_bytes())
    name = b"blk.0.ffn_gate.weight"
    place = data.index(name) + len(name) + 4
    assert struct.unpack_from("<QQ", data, place) == (64, 128)
    struct.pack_into("<QQ", data, place, 128, 64)
    path = tmp_path / "toy.gguf"
    path.write_bytes(data)
    with pytest.raises(EngineLoadError, match=r"blk\.0\.ffn_gate\.weight"):
        open_toy(path)


def test_a_first_token_outside_of_the_vocabulary_is_not_used(toy_path: Path, tmp_path: Path) -> None:
    """This program builds its prompts itself."""
    data = bytearray(toy_path.read_bytes())
    key = b"tokenizer.ggml.bos_token_id"
    struct.pack_into("<I", data, data.index(key) + len(key) + 4, 1 << 30)
    path = tmp_path / "toy.gguf"
    path.write_bytes(data)
    backend, sound = open_toy(path), open_toy(toy_path)
    assert answer(backend, GenerationRequest(PROMPT, 5)) == answer(sound, GenerationRequest(PROMPT, 5))
    backend.close()
    sound.close()


def test_weights_that_were_overwritten_are_an_error_and_not_nul_bytes(toy_path: Path, tmp_path: Path) -> None:
    data = bytearray(toy_path.read_bytes())
    start = read_header(toy_path).data_offset
    data[start:] = b"\xff" * (len(data) - start)
    path = tmp_path / "toy.gguf"
    path.write_bytes(data)
    backend = open_toy(path)
    with pytest.raises(DecodeError, match="NaN"):
        play(backend, GenerationRequest(PROMPT, 5))
    backend.close()


def test_without_a_mapping_a_file_may_shrink(toy_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "toy.gguf"
    path.write_bytes(toy_path.read_bytes())
    backend = open_toy(path, LlamaOptions(use_mmap=False))
    path.write_bytes(b"")
    assert len(answer(backend, GenerationRequest(PROMPT, 5))) == 5
    backend.close()


def test_more_tokens_than_a_context_has_room_for_are_refused_and_change_nothing(toy_path: Path) -> None:
    backend = open_toy(toy_path, LlamaOptions(context_length=256, slots=1))
    context = backend._context
    assert context is not None
    context.decode([Run(0, 0, (1,) * 250, 0)])
    with pytest.raises(DecodeError, match="do not fit a context of 256"):
        context.decode([Run(0, 250, (1,) * 7, 1)])
    assert context.n_held(0) == 250
    assert context.decode([Run(0, 250, (1,) * 6, 1)])
    backend.close()


async def test_contexts_of_several_threads_answer_alike(toy_path: Path) -> None:
    def work() -> list[int]:
        backend = open_toy(toy_path)
        ids = answer(backend, GenerationRequest(PROMPT, 20))
        backend.close()
        return ids

    first, *others = await asyncio.gather(*(asyncio.to_thread(work) for _ in range(4)))
    assert others == [first] * 3


def test_an_exception_in_a_progress_callback_ends_the_loading_and_is_raised(toy_path: Path) -> None:
    """C cannot carry it: ctypes would print it, and go on."""

    def fail(fraction: float) -> bool:
        raise ConnectionResetError("the program is gone")

    with pytest.raises(ConnectionResetError, match="gone"):
        open_llama_backend(toy_path)(fail)


def test_an_exception_in_a_log_handler_harms_nothing(toy_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = llama.load_library()
    backend = open_toy(toy_path)
    expected = answer(backend, GenerationRequest(PROMPT, 9))
    backend.close()

    def fail(*_: object) -> None:
        raise ValueError("a handler that fails")

    monkeypatch.setattr(llama._logger, "debug", fail)
    library.log(1, b"a line\n", None)
    backend = open_toy(toy_path)
    assert answer(backend, GenerationRequest(PROMPT, 9)) == expected
    backend.close()


def test_memory_that_is_really_short_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = write_toy_model(tmp_path / "toy.gguf", ToyModel(ToyGeometry(context_length=1 << 22)))
    program = f"""
import resource
from pathlib import Path
from hymt_local.engine.llama import load_library, open_llama_backend
from hymt_local.engine.options import LlamaOptions
from hymt_local.errors import EngineMemoryError

load_library()
limit = 1 << 30
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    open_llama_backend(Path({str(path)!r}), LlamaOptions(context_length=1 << 22, threads=1))(lambda fraction: True)
except EngineMemoryError as error:
    print(error.message)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert "could not create a context of 4194304 tokens" in ended.stdout, ended.stderr


def test_text_that_is_no_text_is_tokenized_and_comes_back(toy_path: Path) -> None:
    backend = open_toy(toy_path)
    for text, expected in (("a\0b", b"a\0b"), ("\ud800", "�".encode()), ("\ud83d\ude00", "😀".encode())):
        assert b"".join(map(backend._vocabulary.piece, backend.tokenize(text))) == expected
    events = play(backend, GenerationRequest(backend.tokenize("a\0b"), 4))
    assert any(isinstance(event, TokensGenerated) for event in events)
    backend.close()
