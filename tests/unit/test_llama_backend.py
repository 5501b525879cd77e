import asyncio
import logging
import math
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hymt_local.engine import llama, sampling
from hymt_local.engine.base import (
    FinishReason,
    GenerationDone,
    GenerationEvent,
    GenerationRequest,
    PromptRead,
    TokensGenerated,
)
from hymt_local.engine.cancel import CancelFlag
from hymt_local.engine.draft import DraftMeter
from hymt_local.engine.llama import (
    LlamaBackend,
    LogSink,
    open_llama_backend,
)
from hymt_local.engine.llama_vocabulary import stop_ids
from hymt_local.engine.options import KvType, LlamaOptions
from hymt_local.engine.sampling import Greedy, Sampled, check_sampling
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.engine.slots import Run
from hymt_local.errors import (
    ConfigError,
    DecodeError,
    EngineError,
    EngineLoadError,
    EngineMemoryError,
    EngineUnavailableError,
    ModelFileError,
)
from hymt_local.events import Priority, SamplingParams
from tests.toy_models import CONTROL_TOKENS, DOLLAR, ToyGeometry, ToyModel, control_id, write_toy_model

pytestmark = pytest.mark.llama

BOS, SEP = control_id("<|startoftext|>"), control_id("<|extra_0|>")
PROMPT = (BOS, *b"The quick brown fox", SEP)
LONG_PROMPT = tuple(32 + i * 7 % 90 for i in range(700))
NO_PENALTY = SamplingParams(repetition_penalty=1.0)


def never() -> bool:
    return False


@pytest.fixture(scope="module")
def toy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_model(tmp_path_factory.mktemp("toy") / "toy.gguf")


@pytest.fixture
def backend(toy_path: Path) -> Iterator[LlamaBackend]:
    backend = open_toy(toy_path)
    yield backend
    backend.close()


def open_toy(path: Path, options: LlamaOptions | None = None) -> LlamaBackend:
    return open_llama_backend(path, options)(lambda fraction: True)


def play(backend: LlamaBackend, request: GenerationRequest) -> list[GenerationEvent]:
    return list(backend.generate(request, never))


def answer(backend: LlamaBackend, request: GenerationRequest) -> list[int]:
    return [token for event in play(backend, request) if isinstance(event, TokensGenerated) for token in event.ids]


def done(events: list[GenerationEvent]) -> GenerationDone:
    assert isinstance(events[-1], GenerationDone)
    return events[-1]


def logits_after(backend: LlamaBackend, tokens: tuple[int, ...]) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    context = backend._context
    assert context is not None
    for slot in range(context.n_slots):
        context.truncate(slot, 0)
    for start in range(0, len(tokens), context.n_rows):
        part = tokens[start : start + context.n_rows]
        context.decode([Run(0, start, part, 1)])
    logits = context.logits(len(part) - 1).copy()
    context.truncate(0, 0)
    backend._batcher = backend._make_batcher(context)
    return logits


# What the model is


def test_the_info_is_read_from_the_file(backend: LlamaBackend, toy_path: Path) -> None:
    info = backend.info
    assert (info.name, info.architecture, info.quantization) == ("toy", "hunyuan-dense", "F32")
    assert info.context_length == 1024
    assert set(info.control_tokens) == set(CONTROL_TOKENS)
    assert info.control_tokens["<|extra_0|>"] == SEP
    assert info.n_gpu_layers == 0
    assert 0 < info.size_bytes < toy_path.stat().st_size


def test_the_context_is_as_long_as_asked_for_but_not_longer_than_the_model_was_trained_for(toy_path: Path) -> None:
    for asked, given in ((100, 100), (256, 256), (5000, 1024)):
        backend = open_toy(toy_path, LlamaOptions(context_length=asked, name="Toy:F32"))
        assert (backend.info.context_length, backend.info.name) == (given, "Toy:F32")
        fitting = GenerationRequest(LONG_PROMPT[: given - 4], 4)
        assert done(play(backend, fitting)).reason is FinishReason.LENGTH
        backend.close()


def test_without_mmap_the_model_answers_the_same(backend: LlamaBackend, toy_path: Path) -> None:
    copied = open_toy(toy_path, LlamaOptions(use_mmap=False))
    request = GenerationRequest(PROMPT, 10)
    assert answer(copied, request) == answer(backend, request)
    copied.close()


def test_a_mixture_of_experts_runs(tmp_path: Path) -> None:
    backend = open_toy(write_toy_model(tmp_path / "toy.gguf", ToyModel(architecture="hy_v3")))
    assert backend.info.architecture == "hy_v3"
    assert len(answer(backend, GenerationRequest(PROMPT, 5))) == 5
    backend.close()


@pytest.mark.parametrize(
    ("eos", "control_tokens", "expected"),
    [
        ("<|eos|>", CONTROL_TOKENS, {"<|eos|>", "<|endoftext|>"}),
        ("$", CONTROL_TOKENS, {"<|eos|>", "<|endoftext|>"}),
        ("$", ("<|startoftext|>", "<｜hy_place▁holder▁no▁2｜>"), {"<｜hy_place▁holder▁no▁2｜>"}),
        ("<|extra_0|>", CONTROL_TOKENS, {"<|extra_0|>", "<|endoftext|>"}),
    ],
)
def test_the_end_of_a_turn_is_a_control_token_whatever_the_header_says(
    tmp_path: Path, eos: str, control_tokens: tuple[str, ...], expected: set[str]
) -> None:
    model = ToyModel(eos_token=eos, control_tokens=control_tokens)
    backend = open_toy(write_toy_model(tmp_path / "toy.gguf", model))
    stops = {text for text, token in backend.info.control_tokens.items() if token in backend.info.stop_ids}
    assert stops == expected
    assert DOLLAR not in backend.info.stop_ids
    backend.close()


def test_eot_counts_only_when_it_is_a_control_token() -> None:
    control = {"<eos:6124c78e>": 10, "<|other|>": 11}
    assert stop_ids(control, eos=10, eot=11) == {10, 11}
    assert stop_ids(control, eos=10, eot=3) == {10}
    assert stop_ids(control, eos=-1, eot=-1) == {10}


# Text and tokens


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


# Choosing


def test_greedy_follows_the_largest_logit(backend: LlamaBackend) -> None:
    tokens = answer(backend, GenerationRequest(PROMPT, 12, NO_PENALTY))
    for index, token in enumerate(tokens):
        assert int(logits_after(backend, (*PROMPT, *tokens[:index])).argmax()) == token


def test_the_repetition_penalty_counts_generated_tokens_only() -> None:
    greedy = Greedy(2.0)
    steps = [[5.0, 3.0, -1.0], [5.0, 3.0, -1.0], [1.0, 1.5, -1.0], [-1.0, -1.5, -2.5]]
    assert [greedy.choose(np.array(step, dtype=np.float32)) for step in steps] == [0, 1, 1, 0]
    assert greedy.choose(np.array([-2.0, -2.0, -3.0], dtype=np.float32)) == 2


def test_the_repetition_penalty_forgets_old_tokens() -> None:
    greedy = Greedy(10.0)
    n_vocab = sampling.PENALTY_WINDOW + 2
    chosen = []
    for step in range(n_vocab):
        logits = np.ones(n_vocab, dtype=np.float32)
        logits[step] = 2.0
        chosen.append(greedy.choose(logits))
    assert chosen == list(range(n_vocab))
    assert greedy.choose(np.array([2.0] + [1.0] * (n_vocab - 1), dtype=np.float32)) == 0


def test_probabilities_are_those_of_the_model_before_penalties(backend: LlamaBackend) -> None:
    request = GenerationRequest(PROMPT, 3, SamplingParams(repetition_penalty=5.0), probabilities=True)
    events = [event for event in play(backend, request) if isinstance(event, TokensGenerated)]
    tokens: list[int] = []
    for event in events:
        logits = logits_after(backend, (*PROMPT, *tokens)).astype(np.float64)
        expected = math.exp(logits[event.ids[0]]) / np.exp(logits).sum()
        assert event.probabilities[0] == pytest.approx(expected, rel=0.01)
        tokens += event.ids


def test_sampling_is_reproducible_by_its_seed(backend: LlamaBackend) -> None:
    def sampled(seed: int) -> list[int]:
        params = SamplingParams(temperature=1.5, top_k=50, top_p=0.95, seed=seed)
        return answer(backend, GenerationRequest(PROMPT, 20, params))

    assert sampled(1) == sampled(1)
    assert sampled(1) != sampled(2)
    assert len(sampled(0xFFFFFFFF)) == 20


@pytest.mark.parametrize("top_k", [0, 1, 20, 100_000])
@pytest.mark.parametrize("top_p", [0.6, 1.0])
@pytest.mark.parametrize("penalty", [0.9, 1.0, 1.05])
def test_every_valid_sampling_works(backend: LlamaBackend, top_k: int, top_p: float, penalty: float) -> None:
    params = SamplingParams(temperature=0.7, top_k=top_k, top_p=top_p, repetition_penalty=penalty)
    assert len(answer(backend, GenerationRequest(PROMPT, 5, params))) == 5


def test_top_k_one_is_greedy(backend: LlamaBackend) -> None:
    params = SamplingParams(temperature=0.7, top_k=1, repetition_penalty=1.3)
    greedy = SamplingParams(repetition_penalty=1.3)
    sampled_answer = answer(backend, GenerationRequest(PROMPT, 20, params))
    assert sampled_answer == answer(backend, GenerationRequest(PROMPT, 20, greedy))


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_resumed_answer_is_penalized_for_what_was_said_before(backend: LlamaBackend, temperature: float) -> None:
    params = SamplingParams(temperature=temperature, top_k=1, repetition_penalty=9.0)
    request = GenerationRequest(PROMPT, 24, params)
    expected = answer(backend, request)
    assert len(set(expected)) > 8
    for n_answered in (1, 9, 20):
        assert answer(backend, replace(request, answered=tuple(expected[:n_answered]))) == expected[n_answered:]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=-1),
        SamplingParams(temperature=math.nan),
        SamplingParams(top_k=-1),
        SamplingParams(top_p=0),
        SamplingParams(top_p=1.1),
        SamplingParams(repetition_penalty=0),
        SamplingParams(repetition_penalty=math.inf),
    ],
)
def test_sampling_out_of_range_is_refused(params: SamplingParams) -> None:
    with pytest.raises(ConfigError, match="out of range"):
        check_sampling(params)


def test_a_stop_token_ends_the_answer_and_is_not_part_of_it(backend: LlamaBackend) -> None:
    tokens = answer(backend, GenerationRequest(PROMPT, 12, NO_PENALTY))
    stop = tokens[-1]
    events = play(backend, GenerationRequest(PROMPT, 12, NO_PENALTY, stop_ids=frozenset({stop})))
    assert done(events).reason is FinishReason.STOP
    assert done(events).usage.output_tokens == tokens.index(stop)


# State between calls


def test_the_common_prefix_is_not_read_again_and_changes_nothing(backend: LlamaBackend, toy_path: Path) -> None:
    first = GenerationRequest(LONG_PROMPT, 4)
    second = GenerationRequest((*LONG_PROMPT[:500], *PROMPT), 12)
    play(backend, first)
    events = play(backend, second)
    assert done(events).usage.reused_tokens == 500
    fresh = open_toy(toy_path)
    assert answer(backend, second) == answer(fresh, second)
    fresh.close()


def test_of_a_prompt_read_before_the_last_token_is_read_again(backend: LlamaBackend) -> None:
    play(backend, GenerationRequest(PROMPT, 4))
    events = play(backend, GenerationRequest(PROMPT, 4))
    assert events[0] == PromptRead(len(PROMPT) - 1, len(PROMPT))
    shorter = play(backend, GenerationRequest(PROMPT[:5], 4))
    assert shorter[0] == PromptRead(4, 5)


def test_a_long_prompt_is_read_in_slices(backend: LlamaBackend) -> None:
    events = play(backend, GenerationRequest(LONG_PROMPT, 1))
    assert [event.done for event in events if isinstance(event, PromptRead)] == [0, 256, 512, 700]


def test_a_budget_of_nothing_reads_the_prompt_only(backend: LlamaBackend) -> None:
    events = play(backend, GenerationRequest(PROMPT, 0))
    assert done(events).reason is FinishReason.LENGTH
    assert done(play(backend, GenerationRequest(PROMPT, 2))).usage.reused_tokens == len(PROMPT) - 1


def test_a_prompt_is_cancelled_between_its_slices(backend: LlamaBackend) -> None:
    flag = CancelFlag()
    seen: list[GenerationEvent] = []
    for event in backend.generate(GenerationRequest(LONG_PROMPT, 4), flag):
        seen.append(event)
        if event == PromptRead(256, 700):
            flag.cancel()
    assert [event.done for event in seen if isinstance(event, PromptRead)] == [0, 256]
    assert done(seen).reason is FinishReason.CANCELLED
    assert play(backend, GenerationRequest(LONG_PROMPT, 4))[0] == PromptRead(256, 700)


def test_a_decode_call_is_interrupted_and_the_context_stays_right(backend: LlamaBackend) -> None:
    expected = logits_after(backend, LONG_PROMPT[:200])
    context = backend._context
    assert context is not None
    run = Run(3, 0, LONG_PROMPT[:200], 1)
    backend.interrupt()
    assert context.decode([run]) is False
    assert context.n_held(3) == 0
    assert context.decode([run]) is True
    assert np.array_equal(context.logits(199), expected)


def test_an_interrupted_generation_goes_on_as_if_nothing_had_happened(backend: LlamaBackend) -> None:
    request = GenerationRequest(PROMPT, 20)
    expected = answer(backend, request)
    ids: list[int] = []
    for event in backend.generate(request, never):
        backend.interrupt()
        ids += event.ids if isinstance(event, TokensGenerated) else ()
    assert ids == expected


async def test_leaving_while_a_long_prompt_is_read_frees_the_engine_for_the_next(toy_path: Path) -> None:
    engine = ThreadedEngine(open_llama_backend(toy_path), "toy")
    async with aclosing(engine.generate(GenerationRequest(LONG_PROMPT, 300))) as events:
        assert await anext(events) == PromptRead(0, 700)
    last = [event async for event in engine.generate(GenerationRequest(PROMPT, 2))][-1]
    assert isinstance(last, GenerationDone)
    assert last.reason is FinishReason.LENGTH
    await engine.close()


# Misuse that would kill the process


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
        [Run(17, 0, (1,), 1)],
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


@pytest.mark.parametrize("slot", [-1, 17, 1 << 40])
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
    with pytest.raises(EngineMemoryError, match="could not create a context of 4352 tokens") as caught:
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


# Loading


def test_loading_reports_progress_and_can_be_given_up(tmp_path: Path) -> None:
    path = write_toy_model(tmp_path / "toy.gguf", ToyModel(ToyGeometry(layers=8)))
    fractions: list[float] = []

    def note(fraction: float) -> bool:
        fractions.append(fraction)
        return True

    open_llama_backend(path)(note).close()
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    with pytest.raises(EngineLoadError, match="given up"):
        open_llama_backend(path)(lambda fraction: False)


def test_what_llama_cpp_refuses_is_an_error_with_its_reason(tmp_path: Path) -> None:
    path = write_toy_model(tmp_path / "toy.gguf", ToyModel(pre_tokenizer="unheard-of"))
    with pytest.raises(EngineLoadError, match="unknown pre-tokenizer type: 'unheard-of'"):
        open_toy(path)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", EngineMemoryError),
        ("load: error: unable to allocate CUDA0 buffer", EngineMemoryError),
        ("load: error: unknown model architecture", EngineLoadError),
    ],
)
def test_a_load_that_failed_for_want_of_memory_says_so(
    toy_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, kind: type[EngineLoadError]
) -> None:
    library = llama.load_library()

    def fail(path: bytes, params: object) -> None:
        library.log(4, line.encode() + b"\n", None)

    monkeypatch.setattr(library.api, "llama_model_load_from_file", fail)
    with pytest.raises(EngineLoadError) as caught:
        open_toy(toy_path)
    assert type(caught.value) is kind
    assert caught.value.hint


def test_a_bad_file_never_reaches_llama_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama, "load_library", lambda: pytest.fail("llama.cpp was asked"))
    (tmp_path / "page.gguf").write_text("<!DOCTYPE html><title>Sign in</title>")
    with pytest.raises(ModelFileError, match="HTML page"):
        open_toy(tmp_path / "page.gguf")


def test_without_llama_cpp_python_the_engine_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(EngineUnavailableError, match="llama-cpp-python cannot be loaded") as caught:
        llama._import_library.__wrapped__()
    assert "hymt doctor" in caught.value.hint


@pytest.mark.parametrize(
    ("given", "expected"), [({}, llama.SPIN_COUNT), ({"OMP_NUM_THREADS": "2"}, None), ({"GOMP_SPINCOUNT": "5"}, "5")]
)
def test_the_barriers_spin_shortly_unless_the_user_has_chosen(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], expected: str | None
) -> None:
    for name in list(os.environ):
        if name.startswith(("OMP_", "GOMP_", "KMP_", "GGML_")):
            monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("GGML_NO_BACKTRACE", "0")
    llama.prepare_environment()
    assert os.environ.get("GOMP_SPINCOUNT") == expected
    assert os.environ["GGML_NO_BACKTRACE"] == "0"
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)


def test_llama_cpps_log_goes_to_logging_line_by_line_and_its_end_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    sink = LogSink()
    with caplog.at_level(logging.DEBUG, logger="hymt_local.engine.llama"):
        sink(1, b"load: half a ", None)
        sink(5, "line é\nnext\n".encode(), None)
        for index in range(100):
            sink(1, f"line {index}\n".encode(), None)
    assert caplog.messages[:2] == ["load: half a line é", "next"]
    assert (len(sink.tail), sink.tail[-1]) == (llama.LOG_TAIL_LINES, "line 99")


def test_nothing_of_llama_cpp_reaches_the_terminal(toy_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    backend = open_toy(toy_path)
    play(backend, GenerationRequest(PROMPT, 5))
    backend.close()
    assert capfd.readouterr() == ("", "")


async def test_two_engines_share_the_library_and_answer_alike(toy_path: Path) -> None:
    engines = [ThreadedEngine(open_llama_backend(toy_path), name) for name in ("one", "two")]

    async def collect(engine: ThreadedEngine) -> list[int]:
        events = [event async for event in engine.generate(GenerationRequest(PROMPT, 10))]
        return [token for event in events if isinstance(event, TokensGenerated) for token in event.ids]

    first, second = await asyncio.gather(*map(collect, engines))
    assert first == second
    await asyncio.gather(*(engine.close() for engine in engines))


# Many at once


def play_together(backend: LlamaBackend, requests: list[GenerationRequest]) -> list[list[int]]:
    """Open all that have room, refill at every step; return the answers in the order of the requests."""
    answers: list[list[int]] = [[] for _ in requests]
    waiting, running = list(enumerate(requests)), dict[int, int]()
    while waiting or running:
        while waiting and backend.can_open(waiting[0][1]):
            index, wanted = waiting.pop(0)
            running[backend.open(wanted)] = index
        for ticket, event in backend.step():
            if isinstance(event, Exception):
                raise event
            if isinstance(event, TokensGenerated):
                answers[running[ticket]] += event.ids
            elif isinstance(event, GenerationDone):
                del running[ticket]
    return answers


def mixed_requests(n_requests: int) -> list[GenerationRequest]:
    return [
        GenerationRequest(
            (BOS, *b"Translate this: ", *(33 + (i * 31 + j * 17) % 90 for j in range(5 + i * 7 % 40)), SEP),
            max_tokens=4 + i * 13 % 50,
            priority=Priority.DOCUMENT,
        )
        for i in range(n_requests)
    ]


def test_answers_of_a_batch_are_those_of_each_alone_but_for_near_ties(toy_path: Path) -> None:
    """Kernels differ in the last digits with the number of rows: where two logits tie, either may win."""
    requests = mixed_requests(40)
    options = LlamaOptions(kv_type="bf16")
    batched, alone = open_toy(toy_path, options), open_toy(toy_path, replace(options, deterministic=True))
    assert (batched.info.slots, alone.info.slots) == (16, 1)
    expected = [answer(alone, request) for request in requests]
    together = play_together(batched, requests)
    assert [len(ids) for ids in together] == [len(ids) for ids in expected]
    assert sum(ids != right for ids, right in zip(together, expected, strict=True)) <= 1
    batched.close()
    alone.close()


def test_a_context_too_small_for_all_still_serves_all(toy_path: Path) -> None:
    requests = mixed_requests(12)
    alone = open_toy(toy_path, LlamaOptions(deterministic=True))
    expected = [answer(alone, request) for request in requests]
    alone.close()
    small = open_toy(toy_path, LlamaOptions(context_length=128, slots=6))
    context = small._context
    assert context is not None
    small._batcher._decoder = _Fewer(context)  # type: ignore[union-attr]
    together = play_together(small, requests)
    assert sum(ids != right for ids, right in zip(together, expected, strict=True)) <= 1
    small.close()


def test_a_generation_with_nan_fails_alone(toy_path: Path) -> None:
    backend = open_toy(toy_path)
    good, bad = GenerationRequest(PROMPT, 6), GenerationRequest(PROMPT[:9], 6)
    expected = answer(backend, good)
    tickets = [backend.open(good), backend.open(bad)]
    generation = backend._batcher._live[tickets[1]]  # type: ignore[union-attr]
    generation._chooser = _Failing()
    seen: dict[int, list[object]] = {ticket: [] for ticket in tickets}
    while not all(events and isinstance(events[-1], GenerationDone | Exception) for events in seen.values()):
        for ticket, event in backend.step():
            seen[ticket].append(event)
    assert isinstance(seen[tickets[1]][-1], DecodeError)
    ids = [token for event in seen[tickets[0]] if isinstance(event, TokensGenerated) for token in event.ids]
    assert ids == expected
    backend.close()


class _Failing:
    def choose(self, logits: object, *, row: int = -1) -> int:
        raise DecodeError("NaN")

    def close(self) -> None:
        pass


class _Fewer:
    """A decoder that says it has fewer cells than it has."""

    n_cells = 160

    def __init__(self, decoder: object) -> None:
        self._decoder = decoder

    def __getattr__(self, name: str) -> object:
        return getattr(self._decoder, name)


@pytest.mark.parametrize("options", [LlamaOptions(slots=3), LlamaOptions(deterministic=True), LlamaOptions(slots=1)])
def test_slots_are_as_asked_for(toy_path: Path, options: LlamaOptions) -> None:
    backend = open_toy(toy_path, options)
    assert backend.info.slots == options.n_slots
    backend.close()


# Fixed beginnings


FIXED = LONG_PROMPT[:300]


def with_prefix(source: bytes, *, n_fixed: int = len(FIXED)) -> GenerationRequest:
    return GenerationRequest((*FIXED, *source, SEP), 12, n_fixed=n_fixed)


def test_a_fixed_beginning_is_restored_after_a_restart_and_changes_nothing(toy_path: Path, tmp_path: Path) -> None:
    options = LlamaOptions(prefix_dir=tmp_path)
    first = open_toy(toy_path, options)
    expected = answer(first, with_prefix(b"one")), answer(first, with_prefix(b"two"))
    assert first.prefix_stats.saved == 1
    first.close()
    second = open_toy(toy_path, options)
    events = play(second, with_prefix(b"two"))
    assert events[0] == PromptRead(300, 304)
    assert done(events).usage.reused_tokens == 300
    assert answer(second, with_prefix(b"two")) == expected[1]
    assert answer(second, with_prefix(b"one")) == expected[0]
    assert (second.prefix_stats.hits, second.prefix_stats.saved) == (1, 0)
    second.close()


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_restored_state_continues_bit_for_bit(toy_path: Path, tmp_path: Path, deterministic: bool) -> None:
    backend = open_toy(toy_path, LlamaOptions(deterministic=deterministic))
    context = backend._context
    assert context is not None
    context.decode([Run(0, 0, FIXED[:256], 0)])
    context.decode([Run(0, 256, FIXED[256:], 0)])
    state = context.state(0, len(FIXED))
    context.decode([Run(0, len(FIXED), PROMPT, 1)])
    expected = context.logits(len(PROMPT) - 1).copy()
    assert context.restore(0, state, n_tokens=len(FIXED))
    context.decode([Run(0, len(FIXED), PROMPT, 1)])
    assert np.array_equal(context.logits(len(PROMPT) - 1), expected)
    backend.close()


def test_a_state_that_is_not_what_it_says_is_refused_and_leaves_nothing(toy_path: Path) -> None:
    backend = open_toy(toy_path)
    context = backend._context
    assert context is not None
    context.decode([Run(0, 0, PROMPT, 0)])
    state = context.state(0, len(PROMPT))
    for bad, n_tokens in ((state, len(PROMPT) - 1), (state[:-1], len(PROMPT)), (b"", 3), (bytes(40), 3)):
        assert not context.restore(1, bad, n_tokens=n_tokens)
        assert context.n_held(1) == 0
    with pytest.raises(DecodeError, match="does not hold"):
        context.state(1, 1)
    context.truncate(0, 0)
    assert len(answer(backend, GenerationRequest(PROMPT, 5))) == 5
    backend.close()


def test_another_file_does_not_find_the_state(toy_path: Path, tmp_path: Path) -> None:
    first = open_toy(toy_path, LlamaOptions(prefix_dir=tmp_path / "prefix"))
    answer(first, with_prefix(b"one"))
    first.close()
    other = open_toy(
        write_toy_model(tmp_path / "other.gguf", ToyModel(seed=5)), LlamaOptions(prefix_dir=tmp_path / "prefix")
    )
    assert play(other, with_prefix(b"one"))[0] == PromptRead(0, 304)
    assert other.prefix_stats.hits == 0
    other.close()


@pytest.mark.parametrize("options", [LlamaOptions(prefix_bytes=0), LlamaOptions()])
def test_states_are_kept_in_memory_or_not_at_all(toy_path: Path, options: LlamaOptions) -> None:
    backend = open_toy(toy_path, options)
    answer(backend, with_prefix(b"one"))
    assert backend.prefix_stats.saved == (1 if options.prefix_bytes else 0)
    backend.close()


# Drafts


def n_steps_of(backend: LlamaBackend, request: GenerationRequest) -> int:
    return sum(isinstance(event, TokensGenerated) for event in play(backend, request))


@pytest.mark.parametrize("sampling", [NO_PENALTY, SamplingParams(), SamplingParams(temperature=0.9, seed=3)])
def test_a_draft_changes_the_number_of_steps_and_not_the_answer(
    backend: LlamaBackend, sampling: SamplingParams
) -> None:
    plain = GenerationRequest(PROMPT, 60, sampling)
    expected = answer(backend, plain)
    changed = (*expected[:20], 33, 34, *expected[21:])
    for draft, n_most in ((tuple(expected), 4), (changed, 12), ((40, 41) * 30, 60)):
        drafted = GenerationRequest(PROMPT, 60, sampling, draft=draft)
        assert answer(backend, drafted) == expected
        backend._batcher.meter = DraftMeter()  # type: ignore[union-attr]
        assert n_steps_of(backend, drafted) <= n_most
    assert answer(backend, plain) == expected


def test_a_deterministic_engine_answers_to_the_last_bit_whatever_came_before(toy_path: Path) -> None:
    backend = open_toy(toy_path, LlamaOptions(deterministic=True))
    wanted = GenerationRequest((*FIXED, *PROMPT), 20, probabilities=True, n_fixed=len(FIXED))
    expected = [event for event in play(backend, wanted) if isinstance(event, TokensGenerated)]
    for before in (wanted, with_prefix(b"other"), GenerationRequest(wanted.prompt[:-3], 9), mixed_requests(1)[0]):
        play(backend, before)
        assert [event for event in play(backend, wanted) if isinstance(event, TokensGenerated)] == expected
    backend.close()


def test_a_deterministic_engine_ignores_drafts(toy_path: Path) -> None:
    backend = open_toy(toy_path, LlamaOptions(deterministic=True))
    expected = answer(backend, GenerationRequest(PROMPT, 30))
    drafted = GenerationRequest(PROMPT, 30, draft=tuple(expected))
    assert answer(backend, drafted) == expected
    assert n_steps_of(backend, drafted) == len(expected)
    backend.close()


# All of it together


async def test_a_soak_of_arrivals_and_leavers_gives_nobody_anothers_text(toy_path: Path) -> None:
    alone = open_toy(toy_path, LlamaOptions(deterministic=True))
    requests = mixed_requests(30)
    expected = [answer(alone, wanted) for wanted in requests]
    alone.close()
    engine = ThreadedEngine(open_llama_backend(toy_path), "toy")
    draw = random.Random(5)
    plan = [(draw.choice(list(Priority)), draw.choice([None, None, 1, 3, 9])) for _ in requests]

    async def consume(index: int) -> tuple[list[int], bool]:
        priority, n_most = plan[index]
        ids: list[int] = []
        async with aclosing(engine.generate(replace(requests[index], priority=priority))) as events:
            async for event in events:
                ids += event.ids if isinstance(event, TokensGenerated) else ()
                if n_most is not None and len(ids) >= n_most:
                    return ids, False
        return ids, True

    found = await asyncio.gather(*map(consume, range(len(requests))))
    await engine.close()
    n_different = 0
    for (ids, is_whole), right in zip(found, expected, strict=True):
        assert len(ids) == len(right) or not is_whole
        n_different += ids != right[: len(ids)]
    assert n_different <= 2
