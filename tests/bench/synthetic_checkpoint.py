"""A checkpoint of the true 7B geometry: random weights, a vocabulary of the true size, nothing of Tencent's in it.

Run `python -m tests.bench.synthetic_checkpoint FOLDER [--layers N]`. It is written in blocks: 16 GB of disk, 100 MB of
memory. Like the published one it has oddly named shards and a head that repeats the embedding.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hymt_convert.bpe_vocabulary import byte_symbols
from tests.convert import toy_checkpoint as toy

N_RANKS = 127_957
N_EXTRA = 205
CONTROL_TOKENS = (
    "<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>",
    *(f"<|extra_{number}|>" for number in range(N_EXTRA)),
)  # fmt: skip
BLOCK_WORDS = 8 << 20
SHARD_BYTES = 5_360_000_000
SEVEN_B = toy.Shape(
    hidden_size=4096, num_hidden_layers=32, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8,
    head_dim=128, vocab_size=N_RANKS + len(CONTROL_TOKENS), max_position_embeddings=32768,
)  # fmt: skip


@dataclass(frozen=True)
class _Entry:
    name: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return 2 * int(np.prod(self.shape))


def write_synthetic_checkpoint(folder: Path, shape: toy.Shape = SEVEN_B) -> int:
    """Write the folder and return the bytes of its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    toy.write_json(folder / "config.json", toy.config(shape, alpha=100000.0))
    toy.write_json(folder / "generation_config.json", {"eos_token_id": [N_RANKS + 3, N_RANKS + 10]})
    _write_tokenizer(folder)
    shards = list(_shards(_entries(shape)))
    weight_map: dict[str, str] = {}
    for number, entries in enumerate(shards, start=1):
        name = f"model-{number:04d}-of-{len(shards):04d}.safetensors"
        weight_map |= dict.fromkeys((entry.name for entry in entries), name)
        _write_shard(folder / name, entries, seed=number)
    _repeat_embedding(folder, weight_map)
    total = sum(entry.size_bytes for entries in shards for entry in entries)
    toy.write_json(
        folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map}
    )
    return total


def _entries(shape: toy.Shape) -> Iterator[_Entry]:
    shapes = toy.weight_shapes(shape)
    for name, lengths in shapes.items():
        yield _Entry(name, lengths)
    yield _Entry("lm_head.weight", shapes["model.embed_tokens.weight"])


def _shards(entries: Iterator[_Entry]) -> Iterator[list[_Entry]]:
    shard: list[_Entry] = []
    for entry in entries:
        if shard and sum(one.size_bytes for one in shard) + entry.size_bytes > SHARD_BYTES:
            yield shard
            shard = []
        shard.append(entry)
    yield shard


def _write_shard(path: Path, entries: list[_Entry], *, seed: int) -> None:
    random = np.random.default_rng(seed)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for entry in entries:
        end = offset + entry.size_bytes
        header[entry.name] = {"dtype": "BF16", "shape": list(entry.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for entry in entries:
            _write_values(file, entry, random)


def _write_values(file: BinaryIO, entry: _Entry, random: np.random.Generator) -> None:
    """Write bf16 values of random sign and mantissa between 2**-12 and 2**-4; norms near 1."""
    left = entry.size_bytes // 2
    while left:
        count = min(left, BLOCK_WORDS)
        words = random.integers(0, 1 << 16, count, dtype=np.uint16)
        exponents = (words >> 8) & 7
        values = (words & 0x807F) | ((115 + exponents) << 7)
        if len(entry.shape) == 1:
            values = (words & 0x3F) | 0x3F80
        file.write(values.astype("<u2").data)
        left -= count


def _repeat_embedding(folder: Path, weight_map: dict[str, str]) -> None:
    """Copy the embedding over the head, block by block."""
    from hymt_convert.safetensors_file import read_tensors

    name, head = "model.embed_tokens.weight", "lm_head.weight"
    source = read_tensors(folder / weight_map[name])[name]
    target = read_tensors(folder / weight_map[head])[head]
    with target.path.open("rb+") as file:
        file.seek(target.offset)
        for block in source.raw_blocks():
            file.write(block)


def _write_tokenizer(folder: Path) -> None:
    """A byte-level BPE of the true size: all pairs of bytes, then triples made of a pair and a byte."""
    symbols = sorted(byte_symbols().values())
    merges = [(left, right) for left, right in product(symbols, symbols)]
    pairs = [left + right for left, right in merges]
    merges += [(pair, symbol) for pair, symbol in product(pairs, symbols[:1])]
    merges = merges[: N_RANKS - len(symbols)]
    table = toy.tokenizer_json(merges=merges)
    first = len(symbols) + len(merges)
    flags = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    table["added_tokens"] = [
        {"id": first + number, "content": text, **flags} for number, text in enumerate(CONTROL_TOKENS)
    ]
    toy.write_json(folder / "tokenizer.json", table)
    names = {"bos_token": "<|startoftext|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>"}
    template = "<|startoftext|>{{ messages[0].content }}<|extra_0|>"
    toy.write_json(folder / "tokenizer_config.json", {**names, "chat_template": template})


def main() -> int:
    from dataclasses import replace

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=SEVEN_B.num_hidden_layers)
    arguments = parser.parse_args()
    size_bytes = write_synthetic_checkpoint(arguments.folder, replace(SEVEN_B, num_hidden_layers=arguments.layers))
    print(f"{size_bytes / 1e9:.2f} GB of weights in {arguments.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
