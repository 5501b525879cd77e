"""Model files of the true 1.8B and 7B geometry, with random weights: for measuring speed and memory.

Run `python -m tests.bench.synthetic_gguf 1.8B|7B FILE`. Matrices are Q4_K, the vocabulary is Q6_K, as in the published
Q4_K_M files but for some that those keep in Q6_K. The vocabulary has the true size and no merges to speak of: text
becomes more tokens than it should. Quants are random, under scales that keep the activations tame.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader

from tests.toy_models import ToyGeometry, ToyModel, write_hollow_model

GEOMETRIES = {
    "1.8B": ToyGeometry(
        hidden=2048, layers=32, heads=16, kv_heads=4, head_dim=128, feed_forward=6144,
        n_filler_tokens=120_000, context_length=32_768, tensor_type=GGMLQuantizationType.Q4_K,
    ),
    "7B": ToyGeometry(
        hidden=4096, layers=32, heads=32, kv_heads=8, head_dim=128, feed_forward=14_336,
        n_filler_tokens=127_900, context_length=32_768, tensor_type=GGMLQuantizationType.Q4_K,
    ),
}  # fmt: skip
_BLOCKS_AT_ONCE = 1 << 16


def write_synthetic_model(path: Path, geometry: ToyGeometry) -> Path:
    """Write a file: about 1.1 GB or 4.4 GB for the named geometries."""
    model = ToyModel(geometry, name=path.stem)
    write_hollow_model(path, model, vocabulary_type=GGMLQuantizationType.Q6_K)
    draw = np.random.default_rng(1)
    for tensor in GGUFReader(str(path), "r+").tensors:
        if tensor.tensor_type is GGMLQuantizationType.F32:
            tensor.data[:] = 1.0
            continue
        blocks = tensor.data.reshape(-1, 210 if tensor.tensor_type is GGMLQuantizationType.Q6_K else 144)
        for start in range(0, len(blocks), _BLOCKS_AT_ONCE):
            _fill(blocks[start : start + _BLOCKS_AT_ONCE], draw, n_inputs=int(tensor.shape[0]))
    return path


def _fill(blocks: np.ndarray[tuple[int, int], np.dtype[np.uint8]], draw: np.random.Generator, *, n_inputs: int) -> None:
    """Write random quants of unit variance over the inputs; a Q6_K block has 210 bytes, a Q4_K block 144."""
    blocks[:] = draw.integers(0, 256, size=blocks.shape, dtype=np.uint8)
    deviation = n_inputs**-0.5
    if blocks.shape[1] == 210:
        blocks[:, 192:208] = 8
        blocks[:, 208:] = _bytes_of(deviation / 18.5 / 8)
    else:
        blocks[:, 4:8] = 8  # six-bit scales and minima of eight parts: 8 each
        blocks[:, 8:12] = 8
        blocks[:, 12:16] = 0x88
        blocks[:, 0:2] = _bytes_of(deviation / 4.6 / 8)
        blocks[:, 2:4] = _bytes_of(7.5 * deviation / 4.6 / 8)


def _bytes_of(scale: float) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.array([scale], dtype=np.float16).view(np.uint8)


def main(arguments: list[str] | None = None) -> None:
    """Write one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", choices=list(GEOMETRIES))
    parser.add_argument("file", type=Path)
    options = parser.parse_args(arguments)
    path = write_synthetic_model(options.file, GEOMETRIES[options.size])
    sys.stdout.write(f"{path}  {path.stat().st_size / 1e9:.2f} GB\n")


if __name__ == "__main__":
    main()
