"""The benchmark measures what it says: on a checkpoint of the true vocabulary and toy sizes, and with real kills."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hymt_convert.conversion import ConversionRequest, plan_conversion
from tests.bench import bench_convert
from tests.bench.synthetic_checkpoint import N_RANKS, SEVEN_B, write_synthetic_checkpoint
from tests.convert import toy_checkpoint as toy

TINY = replace(
    SEVEN_B, hidden_size=64, num_hidden_layers=2, intermediate_size=64, num_attention_heads=2, num_key_value_heads=1
)


def test_the_synthetic_checkpoint_is_a_7b_of_toy_sizes(tmp_path: Path) -> None:
    write_synthetic_checkpoint(tmp_path / "checkpoint", TINY)
    plan = plan_conversion(ConversionRequest(tmp_path / "checkpoint", tmp_path, ("Q4_K_M",), name="x"))
    assert plan.model.vocab_size == 128_167
    assert len(plan.vocabulary.merges) == N_RANKS - 256
    assert plan.vocabulary.special_ids == {"bos": 127_958, "eos": 127_960, "padding": 127_961, "eot": 127_967}
    assert plan.vocabulary.pre == "hunyuan"
    assert plan.base_type == "BF16"
    assert len(plan.model.tensors) == 2 + 11 * TINY.num_hidden_layers  # the repeated head is dropped


@pytest.mark.llama
@pytest.mark.slow
def test_a_run_measures_copies_conversions_and_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = replace(toy.Shape(), hidden_size=256, intermediate_size=256)
    weights = toy.write_checkpoint(tmp_path / "checkpoint", shape, dtype="BF16")
    toy.split_into_shards(tmp_path / "checkpoint", weights, ["a.safetensors", "b.safetensors"], dtype="BF16")

    def begun(output: Path, **sizes: int) -> Iterator[tuple[str, Callable[[], bool]]]:
        yield "the beginning", lambda: (output / f".{bench_convert.NAME}.converting" / "journal").exists()

    monkeypatch.setattr(bench_convert, "kill_points", begun)
    lines = list(bench_convert.report(bench_convert.run(tmp_path, bench_convert.STEPS, layers=0)))
    kinds = [line.split(":")[0] for line in lines[:7]]
    assert kinds == ["copy", "BF16", "copy", "copy with cast", "F16", "copy with cast", "Q4_K_M"]
    assert all("x the copies beside it, own memory" in lines[place] for place in (1, 4))
    assert lines[7].startswith("killed at the beginning after")
    assert lines[7].endswith("identical")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
