from dataclasses import replace
from pathlib import Path

import pytest

from hymt_local.engine.base import GenerationRequest, TokensGenerated
from hymt_local.engine.llama import open_llama_backend
from tests.bench.synthetic_gguf import GEOMETRIES, write_synthetic_model

pytestmark = pytest.mark.llama


def test_a_synthetic_model_of_two_layers_runs_and_says_different_things(tmp_path: Path) -> None:
    geometry = replace(GEOMETRIES["1.8B"], layers=2, hidden=256, feed_forward=512, n_filler_tokens=500)
    backend = open_llama_backend(write_synthetic_model(tmp_path / "small.gguf", geometry))(lambda fraction: True)
    answers = []
    for prompt in (b"one prompt", b"another"):
        events = backend.generate(GenerationRequest(tuple(prompt), 12), lambda: False)
        answers.append([token for event in events if isinstance(event, TokensGenerated) for token in event.ids])
    backend.close()
    assert answers[0] != answers[1]
    assert len(set(answers[0])) > 3
