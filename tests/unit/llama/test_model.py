"""What a llama backend says of its model, and which models it runs."""

from pathlib import Path

import pytest

from hymt_local.engine.base import FinishReason, GenerationRequest
from hymt_local.engine.llama import LlamaBackend
from hymt_local.engine.llama_vocabulary import stop_ids
from hymt_local.engine.options import LlamaOptions
from tests.llama_backends import LONG_PROMPT, PROMPT, SEP, answer, done, open_toy, play
from tests.toy_models import CONTROL_TOKENS, DOLLAR, ToyModel, write_toy_model

pytestmark = pytest.mark.llama


def test_the_info_is_read_from_the_file(backend: LlamaBackend, toy_path: Path) -> None:
    info = backend.info
    assert (info.name, info.architecture, info.quantization) == ("toy", "hunyuan-dense", "F32")
    assert info.context_length == 1024
    assert set(info.control_tokens) == set(CONTROL_TOKENS)
    assert info.control_tokens["<|extra_0|>"] == SEP
    assert (info.n_gpu_layers, info.n_layers, info.gpu, info.is_reduced) == (0, 3, "", False)
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
