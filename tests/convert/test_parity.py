"""The proof of the converter: the GGUF computes what transformers computes from the same folder."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hymt_convert.conversion import ConversionRequest, convert
from hymt_convert.verify import ReferenceModel
from tests.convert import toy_checkpoint as toy

pytestmark = pytest.mark.llama
TOLERANCE = 1e-4
"""Measured: 5e-6 to 1.6e-5, the logits having a standard deviation of 1."""

GEOMETRIES = {
    "wide-heads": toy.Shape(head_dim=64, num_attention_heads=4, num_key_value_heads=1),
    "many-groups": toy.Shape(hidden_size=96, num_attention_heads=3, num_key_value_heads=3, intermediate_size=80),
    "head-of-128": toy.Shape(num_hidden_layers=3, hidden_size=128, head_dim=128, num_attention_heads=2),
    "untied": toy.Shape(tie_word_embeddings=False),
}


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Drop its notice that `alpha`, which it uses, is an unrecognized key."""

    class Recognized(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            return "Unrecognized keys in `rope_parameters`" not in record.getMessage()

    logger, notice = logging.getLogger("transformers.modeling_rope_utils"), Recognized()
    logger.addFilter(notice)
    try:
        yield
    finally:
        logger.removeFilter(notice)


def transformers_logits(folder: Path, tokens: list[int]) -> NDArray[np.float32]:
    return next(transformers_logits_of_each(folder, [tokens]))


def transformers_logits_of_each(folder: Path, texts: Iterable[list[int]]) -> Iterator[NDArray[np.float32]]:
    import torch
    from transformers import AutoModelForCausalLM

    with quiet_transformers():
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        for tokens in texts:
            yield model(torch.tensor([tokens])).logits[0].numpy()


def gguf_logits(folder: Path, tokens: list[int], output_folder: Path) -> NDArray[np.float32]:
    report = convert(ConversionRequest(folder, output_folder, ("F32",)))
    with ReferenceModel(report.files[0].path) as model:
        return model.logits(tokens)


def compare(first: NDArray[np.float32], second: NDArray[np.float32]) -> tuple[float, float]:
    """Largest difference and share of equal top choices."""
    return float(np.abs(first - second).max()), float((first.argmax(-1) == second.argmax(-1)).mean())


@pytest.fixture
def tokens() -> list[int]:
    return [toy.BOS, *np.random.default_rng(1).integers(0, toy.VOCAB_SIZE, 199).tolist()]


@pytest.mark.parametrize("alpha", [1000.0, 100000.0])
@pytest.mark.parametrize("shape", GEOMETRIES.values(), ids=GEOMETRIES.keys())
def test_logits_equal_those_of_transformers(tmp_path: Path, tokens: list[int], shape: toy.Shape, alpha: float) -> None:
    toy.write_checkpoint(tmp_path / "toy", shape, alpha=alpha)
    difference, agreement = compare(
        gguf_logits(tmp_path / "toy", tokens, tmp_path), transformers_logits(tmp_path / "toy", tokens)
    )
    assert difference <= TOLERANCE
    assert agreement == 1.0


def test_bf16_shards_with_odd_names_equal_transformers(tmp_path: Path, tokens: list[int]) -> None:
    folder = tmp_path / "toy"
    weights = toy.write_checkpoint(folder)
    toy.split_into_shards(
        folder, weights, ["model-0001-of-0002.safetensors", "model-0002-of-0002.safetensors"], dtype="BF16"
    )
    difference, agreement = compare(gguf_logits(folder, tokens, tmp_path), transformers_logits(folder, tokens))
    assert difference <= TOLERANCE
    assert agreement == 1.0


def test_a_folder_saved_by_transformers_converts(tmp_path: Path, tokens: list[int]) -> None:
    from transformers import AutoModelForCausalLM

    toy.write_checkpoint(tmp_path / "toy")
    with quiet_transformers():
        AutoModelForCausalLM.from_pretrained(tmp_path / "toy").save_pretrained(
            tmp_path / "saved", max_shard_size="50KB"
        )
    toy.write_tokenizer(tmp_path / "saved")
    assert len(list((tmp_path / "saved").glob("*.safetensors"))) > 1
    difference, agreement = compare(
        gguf_logits(tmp_path / "saved", tokens, tmp_path), transformers_logits(tmp_path / "toy", tokens)
    )
    assert difference <= TOLERANCE
    assert agreement == 1.0


def test_the_comparison_sees_a_wrong_alpha(tmp_path: Path, tokens: list[int]) -> None:
    toy.write_checkpoint(tmp_path / "toy", alpha=1000.0)
    expected = transformers_logits(tmp_path / "toy", tokens)
    rope = json.loads((tmp_path / "toy" / "config.json").read_text())["rope_scaling"]
    toy.edit_json(tmp_path / "toy" / "config.json", rope_scaling={**rope, "alpha": 100000.0})
    difference, agreement = compare(gguf_logits(tmp_path / "toy", tokens, tmp_path), expected)
    assert difference > 1e-2
    assert agreement < 1.0


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # Within one layer, query and key norms may be swapped: after the rotation only their product counts.
        ("0.self_attn.key_layernorm", "1.self_attn.key_layernorm"),
        ("0.input_layernorm", "0.post_attention_layernorm"),
        ("0.mlp.gate_proj", "0.mlp.up_proj"),
    ],
)
def test_the_comparison_sees_swapped_tensors(tmp_path: Path, tokens: list[int], first: str, second: str) -> None:
    weights = toy.write_checkpoint(tmp_path / "toy")
    expected = transformers_logits(tmp_path / "toy", tokens)
    one, other = (f"model.layers.{name}.weight" for name in (first, second))
    toy.write_safetensors(tmp_path / "toy" / "model.safetensors", {**weights, one: weights[other], other: weights[one]})
    difference, _ = compare(gguf_logits(tmp_path / "toy", tokens, tmp_path), expected)
    assert difference > 1e-2


def permuted_rows(weights: toy.Weights, name: str, *, head_dim: int) -> toy.Weights:
    """Put the rows of each head in the order of the other kind of rotation: evens first, then odds."""
    heads = weights[name].reshape(-1, head_dim // 2, 2, weights[name].shape[1])
    return {**weights, name: np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(weights[name].shape)}


@pytest.mark.parametrize("name", ["self_attn.q_proj", "self_attn.k_proj"])
def test_the_comparison_sees_permuted_rows(tmp_path: Path, tokens: list[int], name: str) -> None:
    weights = toy.write_checkpoint(tmp_path / "toy")
    expected = transformers_logits(tmp_path / "toy", tokens)
    permuted = permuted_rows(weights, f"model.layers.0.{name}.weight", head_dim=toy.Shape().head_dim)
    toy.write_safetensors(tmp_path / "toy" / "model.safetensors", permuted)
    difference, agreement = compare(gguf_logits(tmp_path / "toy", tokens, tmp_path), expected)
    assert difference > 1e-2
    assert agreement < 1.0


def test_swapping_query_and_key_norm_of_a_layer_changes_nothing(tmp_path: Path, tokens: list[int]) -> None:
    """Both weigh the same values after the rotation, so that only their product counts: no check can see it."""
    weights = toy.write_checkpoint(tmp_path / "toy")
    expected = transformers_logits(tmp_path / "toy", tokens)
    one, other = (f"model.layers.0.self_attn.{name}_layernorm.weight" for name in ("query", "key"))
    toy.write_safetensors(tmp_path / "toy" / "model.safetensors", {**weights, one: weights[other], other: weights[one]})
    difference, _ = compare(gguf_logits(tmp_path / "toy", tokens, tmp_path), expected)
    assert difference <= TOLERANCE
