"""Drafts and determinism of a llama backend."""

from pathlib import Path

import pytest

from hymt_local.engine.base import GenerationRequest, TokensGenerated
from hymt_local.engine.draft import DraftMeter
from hymt_local.engine.llama import LlamaBackend
from hymt_local.engine.options import LlamaOptions
from hymt_local.events import SamplingParams
from tests.llama_backends import FIXED, NO_PENALTY, PROMPT, answer, mixed_requests, open_toy, play, with_prefix

pytestmark = pytest.mark.llama


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
