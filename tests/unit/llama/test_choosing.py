"""How a llama backend chooses the next token."""

import math
from dataclasses import replace

import numpy as np
import pytest

from hymt_local.engine import sampling
from hymt_local.engine.base import FinishReason, GenerationRequest, TokensGenerated
from hymt_local.engine.llama import LlamaBackend
from hymt_local.engine.sampling import Greedy, check_sampling
from hymt_local.errors import ConfigError
from hymt_local.events import SamplingParams
from tests.llama_backends import NO_PENALTY, PROMPT, answer, done, logits_after, play

pytestmark = pytest.mark.llama


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
