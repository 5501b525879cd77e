"""Misuse and faults that would kill the process are errors of a llama backend."""

import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hymt_local.engine import llama
from hymt_local.engine.base import GenerationRequest
from hymt_local.engine.llama import LlamaBackend
from hymt_local.engine.options import KvType, LlamaOptions
from hymt_local.engine.sampling import Sampled
from hymt_local.engine.slots import Run
from hymt_local.errors import DecodeError, EngineError, EngineMemoryError, ModelFileError
from hymt_local.events import Priority, SamplingParams
from tests.llama_backends import PROMPT, answer, never, open_toy, play
from tests.toy_models import ToyModel, write_toy_model

pytestmark = pytest.mark.llama


def test_an_engine_that_was_closed_refuses_work(toy_path: Path) -> None:
    backend = open_toy(toy_path)
    running = iter(backend.generate(GenerationRequest(PROMPT, 5), never))
    next(running)
    backend.close()
    backend.close()
    uses: list[Callable[[], object]] = [
        lambda: backend.tokenize("a"),
        lambda: backend.open(GenerationRequest(PROMPT, 5)),
        lambda: backend.can_open(GenerationRequest(PROMPT, 5)),
        backend.step,
        lambda: list(running),
    ]
    for use in uses:
        with pytest.raises(EngineError, match="closed"):
            use()


def test_another_thread_is_refused_but_for_tokenizing(backend: LlamaBackend) -> None:
    errors: list[EngineError] = []
    ids: list[tuple[int, ...]] = []

    def use() -> None:
        ids.append(backend.tokenize("a"))
        try:
            backend.step()
        except EngineError as error:
            errors.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert ids == [backend.tokenize("a")]
    assert "another thread" in errors[0].message


def test_a_forked_child_is_refused_instead_of_hanging(backend: LlamaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(EngineError, match="another thread or process"):
        play(backend, GenerationRequest(PROMPT, 5))


def test_more_generations_than_slots_are_refused(toy_path: Path) -> None:
    backend = open_toy(toy_path, LlamaOptions(slots=2))
    document = GenerationRequest(PROMPT, 5, priority=Priority.DOCUMENT)
    interactive = GenerationRequest(PROMPT, 5, priority=Priority.INTERACTIVE)
    backend.open(document)
    backend.open(document)
    assert not backend.can_open(document)
    assert backend.can_open(interactive)
    backend.open(interactive)
    with pytest.raises(EngineError, match="slots are taken"):
        backend.open(interactive)
    backend.close()


@pytest.mark.parametrize("prompt", [(), (-1,), (300_000,), (1 << 40,)])
def test_a_prompt_that_llama_cpp_would_reject_is_refused(backend: LlamaBackend, prompt: tuple[int, ...]) -> None:
    with pytest.raises(DecodeError):
        play(backend, GenerationRequest(prompt, 5))
    assert len(answer(backend, GenerationRequest(PROMPT, 5))) == 5


@pytest.mark.parametrize(
    "runs",
    [
        [],
        [Run(0, 0, (), 0)],
        [Run(0, 0, (1,) * 257, 1)],
        [Run(0, 0, (1,) * 200, 1), Run(1, 0, (1,) * 57, 1)],
        [Run(0, 1, (1,), 1)],
        [Run(0, 0, (-1,), 1)],
        [Run(0, 0, (300_000,), 1)],
        [Run(0, 0, (1,) * 100, 100)],
        [Run(0, 0, (1,), 2)],
        [Run(0, 0, (1, 2), 0), Run(0, 0, (3,), 1)],
        [Run(-1, 0, (1,), 1)],
        [Run(33, 0, (1,), 1)],
    ],
)
def test_a_batch_beyond_its_bounds_is_refused(backend: LlamaBackend, runs: list[Run]) -> None:
    context = backend._context
    assert context is not None
    with pytest.raises(DecodeError):
        context.decode(runs)
    assert len(answer(backend, GenerationRequest(PROMPT, 5))) == 5


def test_logits_that_were_not_computed_are_an_error(backend: LlamaBackend) -> None:
    context = backend._context
    assert context is not None
    context.decode([Run(0, 0, PROMPT, 0)])
    for row in (-1, 0, len(PROMPT) - 1, len(PROMPT)):
        with pytest.raises(DecodeError, match="no logits"):
            context.logits(row)


def test_a_copy_that_would_mix_two_sequences_is_refused(backend: LlamaBackend) -> None:
    context = backend._context
    assert context is not None
    context.decode([Run(0, 0, PROMPT, 0), Run(1, 0, PROMPT, 0)])
    for source, target, n_tokens in ((0, 1, 3), (0, 0, 3), (0, 2, len(PROMPT) + 1)):
        with pytest.raises(DecodeError, match="cannot take"):
            context.copy(source, target, n_tokens)


@pytest.mark.parametrize("slot", [-1, 33, 1 << 40])
def test_a_sequence_that_is_not_there_is_refused(backend: LlamaBackend, slot: int) -> None:
    context = backend._context
    assert context is not None
    context.decode([Run(0, 0, PROMPT, 0)])
    uses: list[Callable[[], object]] = [
        lambda: context.truncate(slot, 0),
        lambda: context.copy(0, slot, 1),
        lambda: context.copy(slot, 1, 1),
        lambda: context.state(slot, 1),
        lambda: context.restore(slot, b"", n_tokens=1),
    ]
    for use in uses:
        with pytest.raises(DecodeError, match="there is no sequence"):
            use()


def test_a_sampler_that_llama_cpp_could_not_make_never_joins_the_chain(backend: LlamaBackend) -> None:
    library = backend._library.api

    class Without:
        def __getattr__(self, name: str) -> object:
            return (lambda *_: None) if name == "llama_sampler_init_top_k" else getattr(library, name)

    with pytest.raises(DecodeError, match="could not make a sampler"):
        Sampled(Without(), None, sampling=SamplingParams(temperature=1.0), n_vocab=300)


def test_a_context_that_memory_has_no_room_for_is_an_error_that_says_so(
    toy_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama.load_library().api, "llama_init_from_model", lambda *_: None)
    with pytest.raises(EngineMemoryError, match="could not create a context of 4092 tokens") as caught:
        open_toy(toy_path)
    assert "context_length" in caught.value.hint


@pytest.mark.parametrize("kv_type", ["f16", "bf16", "q8_0", "q4_0"])
def test_every_type_of_cache_answers(toy_path: Path, kv_type: KvType) -> None:
    """Quantized values need flash attention, which is always on: without it llama.cpp creates no context."""
    backend = open_toy(toy_path, LlamaOptions(kv_type=kv_type))
    assert len(answer(backend, GenerationRequest(PROMPT, 12))) == 12
    backend.close()


@pytest.mark.parametrize("context_length", [1, 0, -1])
def test_a_context_of_nothing_is_not_the_longest_one(toy_path: Path, context_length: int) -> None:
    backend = open_toy(toy_path, LlamaOptions(context_length=context_length, slots=1))
    assert backend.info.context_length == 1
    backend.close()


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_model_that_computes_nan_is_an_error_and_not_gibberish(tmp_path: Path, temperature: float) -> None:
    backend = open_toy(write_toy_model(tmp_path / "toy.gguf", ToyModel(scale=math.nan)))
    with pytest.raises(DecodeError, match="NaN"):
        play(backend, GenerationRequest(PROMPT, 5, SamplingParams(temperature=temperature)))
    backend.close()


def test_a_file_that_shrinks_under_the_mapping_is_an_error_and_not_a_bus_error(toy_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "toy.gguf"
    path.write_bytes(toy_path.read_bytes())
    backend = open_toy(path)
    os.truncate(path, 4096)
    with pytest.raises(ModelFileError, match="cut short"):
        play(backend, GenerationRequest(PROMPT, 5))
    backend.close()


def test_a_file_that_is_replaced_while_in_use_is_fine(toy_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "toy.gguf"
    path.write_bytes(toy_path.read_bytes())
    backend = open_toy(path)
    (tmp_path / "new.gguf").write_bytes(b"short")
    (tmp_path / "new.gguf").replace(path)
    assert len(answer(backend, GenerationRequest(PROMPT, 5))) == 5
    backend.close()


def test_a_program_that_ends_in_the_middle_of_a_generation_ends_cleanly(toy_path: Path) -> None:
    program = f"""
import asyncio, sys
from pathlib import Path
from hymt_local.engine.base import GenerationRequest
from hymt_local.engine.llama import open_llama_backend
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.engine.slots import Run

engine = ThreadedEngine(open_llama_backend(Path({str(toy_path)!r})), "toy")

async def first():
    async for event in engine.generate(GenerationRequest(tuple(range(50, 90)), 900)):
        sys.exit(7)

asyncio.run(first())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, b"", b"")
