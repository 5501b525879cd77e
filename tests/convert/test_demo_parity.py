"""The demo model computes in llama.cpp what its architecture computes in transformers.

The training's checkpoint is not in the repository, so it is rebuilt from the shipped file: its weights as float32, its
tokenizer from the training texts. What differs then is arithmetic only.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.torch import save_file

from hymt_convert.conversion import ConversionRequest, convert
from hymt_convert.demo import tokenizer as demo_tokenizer
from hymt_convert.demo.examples import Corpus, Example
from hymt_convert.demo.model import Geometry, hf_config
from hymt_convert.verify import ReferenceModel
from hymt_local.installed import demo_file
from tests.convert.test_parity import compare, transformers_logits_of_each

pytestmark = pytest.mark.llama

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.query_layernorm",
    "attn_k_norm": "self_attn.key_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def checkpoint_name(tensor: str) -> str:
    name = tensor.removesuffix(".weight")
    if not name.startswith("blk."):
        return f"{NAMES[name]}.weight"
    _, layer, part = name.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.weight"


def rebuild_checkpoint(folder: Path, corpus: Corpus) -> None:
    tensors = GGUFReader(demo_file()).tensors
    weights = {
        checkpoint_name(tensor.name): torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        for tensor in tensors
    }
    folder.mkdir()
    demo_tokenizer.save(corpus.tokenizer, folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    geometry = Geometry(corpus.tokenizer.get_vocab_size())
    config = hf_config(geometry, demo_tokenizer.token_ids(corpus.tokenizer))
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.load()


@pytest.fixture(scope="module")
def checkpoint(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "checkpoint"
    rebuild_checkpoint(folder, corpus)
    return folder


def conversations(corpus: Corpus) -> list[list[int]]:
    """Token ids of whole exchanges in a spread of directions, prompt and answer."""
    pairs = [(item, source, target) for item in corpus.items[::60] for source in item.texts for target in item.texts]
    chosen: list[Example] = [
        corpus.example((source, target), item.texts[source], item.texts[target])
        for item, source, target in pairs[::150]
        if source != target
    ]
    return [[*example.prefix, *example.source, *example.answer] for example in chosen]


def test_the_training_texts_give_the_shipped_vocabulary(corpus: Corpus) -> None:
    tokens = GGUFReader(demo_file()).fields["tokenizer.ggml.tokens"].contents()
    assert tokens == [corpus.tokenizer.id_to_token(number) for number in range(len(tokens))]


def test_the_logits_of_the_demo_equal_those_of_transformers(checkpoint: Path, corpus: Corpus, tmp_path: Path) -> None:
    report = convert(ConversionRequest(checkpoint, tmp_path, ("F32",)))
    texts = conversations(corpus)
    assert sum(map(len, texts)) >= 500
    with ReferenceModel(report.files[0].path) as model:
        for tokens, expected in zip(texts, transformers_logits_of_each(checkpoint, texts), strict=True):
            difference, agreement = compare(model.logits(tokens), expected)
            assert difference <= 1e-3
            assert agreement == 1.0


def test_the_shipped_file_chooses_the_same_tokens_as_its_float_twin(
    checkpoint: Path, corpus: Corpus, tmp_path: Path
) -> None:
    report = convert(ConversionRequest(checkpoint, tmp_path, ("F32",)))
    with ReferenceModel(report.files[0].path) as twin, ReferenceModel(demo_file()) as shipped:
        agreements = [compare(twin.logits(t), shipped.logits(t))[1] for t in conversations(corpus)[:20]]
    assert np.mean(agreements) >= 0.98
