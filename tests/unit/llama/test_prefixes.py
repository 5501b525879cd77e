"""Fixed beginnings that a llama backend saves and restores."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hymt_local.engine.base import GenerationRequest, PromptRead, TokensGenerated
from hymt_local.engine.counters import EngineCounters
from hymt_local.engine.host import open_hosted
from hymt_local.engine.options import LlamaOptions
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.engine.slots import Run
from hymt_local.errors import DecodeError
from hymt_local.loading import LlamaOrders
from tests.llama_backends import FIXED, PROMPT, answer, done, open_toy, play, with_prefix
from tests.toy_models import ToyModel, write_toy_model

pytestmark = pytest.mark.llama


async def test_what_drafts_and_beginnings_bring_is_counted_through_the_engines_process(
    toy_path: Path, tmp_path: Path
) -> None:
    options = LlamaOptions(prefix_dir=tmp_path)
    engine = ThreadedEngine(open_hosted(lambda ask_gpus: LlamaOrders(toy_path, options), name="toy"), "toy")
    assert await engine.counters() == EngineCounters()
    wanted = with_prefix(b"one")
    ids: list[int] = []
    async for event in engine.generate(wanted):
        ids += event.ids if isinstance(event, TokensGenerated) else ()
    async for _ in engine.generate(replace(wanted, draft=tuple(ids))):
        pass
    counters = await engine.counters()
    assert (counters.prefixes.saved, counters.prefixes.memory_bytes > 0) == (1, True)
    assert 0 < counters.drafts.accepted <= counters.drafts.guessed
    await engine.close()


def test_a_fixed_beginning_is_restored_after_a_restart_and_changes_nothing(toy_path: Path, tmp_path: Path) -> None:
    options = LlamaOptions(prefix_dir=tmp_path)
    first = open_toy(toy_path, options)
    expected = answer(first, with_prefix(b"one")), answer(first, with_prefix(b"two"))
    assert first.counters.prefixes.saved == 1
    first.close()
    second = open_toy(toy_path, options)
    events = play(second, with_prefix(b"two"))
    assert events[0] == PromptRead(300, 304)
    assert done(events).usage.reused_tokens == 300
    assert answer(second, with_prefix(b"two")) == expected[1]
    assert answer(second, with_prefix(b"one")) == expected[0]
    assert (second.counters.prefixes.hits, second.counters.prefixes.saved) == (1, 0)
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
    assert other.counters.prefixes.hits == 0
    other.close()


@pytest.mark.parametrize("options", [LlamaOptions(prefix_bytes=0), LlamaOptions()])
def test_states_are_kept_in_memory_or_not_at_all(toy_path: Path, options: LlamaOptions) -> None:
    backend = open_toy(toy_path, options)
    answer(backend, with_prefix(b"one"))
    assert backend.counters.prefixes.saved == (1 if options.prefix_bytes else 0)
    backend.close()
