"""How a model is loaded, and the sizes that follow from it.

The plan counts their bytes, the engine asks llama.cpp for them. Nothing heavy is imported.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

KvType = Literal["f16", "bf16", "q8_0", "q4_0"]
WeightsPlace = Literal["mapped", "held", "both"]
"""`mapped`: in the system's memory of the file, which other programs may push out. `held`: where they may not. `both`:
rearranged in the process, beside the file."""

MIB = 1 << 20
KV_BYTES: dict[KvType, float] = {"f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
"""Bytes per number of the KV cache."""
FLOAT_KV_TYPES: frozenset[KvType] = frozenset({"f16", "bf16"})
"""Those that do without flash attention."""
TINY_KV_TYPE: KvType = "bf16"
"""A tiny model is often undecided between two tokens, and its prompts are short."""
TINY_MODEL_BYTES = 64 * MIB
"""Below it one thread is fastest: several would mostly wait for each other."""
PROMPT_SLICE = 256
"""Most tokens per decode call; more are not computed faster, and progress is reported between two calls."""
SLOTS = (32, 16, 4, 1)
"""Generations decoded together, best first; where there are several, one more is kept for interactive work. Kernels
compute 16 rows at a time; 8 cost as much as 16 without AVX-512, and 64 rows meet another, slower attention kernel."""
CELLS_PER_SLOT = 124
"""Of the shared KV cache: a sentence and its translation, their prompt's beginning being shared. So 32 slots take no
more than the usual context of one; longer texts run fewer at a time."""
KERNEL_ROWS = 16
"""Rows that kernels compute at a time."""
DRAFT_SLICE = KERNEL_ROWS - 1
"""Guessed tokens per step; with the token before them they fill the rows that kernels compute at a time."""
LONG_DRAFT_SLICE = 2 * KERNEL_ROWS - 1
"""After a slice that was right throughout."""
PREFIX_BYTES = 2 << 30
"""Most bytes that states of prompt beginnings take on disk."""


@dataclass(frozen=True, slots=True)
class LlamaOptions:
    """How to load a model."""

    context_length: int = 4096
    """Tokens of prompt and answer together; at most what the model was trained for."""
    threads: int | None = None
    """None: physical cores less one, or one for tiny models."""
    micro_batch: int = PROMPT_SLICE
    """Tokens computed at once; smaller ones bound the time to cancel on a GPU, which cannot be interrupted."""
    gpu_layers: int = 0
    """0 is the CPU alone, a negative number all layers."""
    kv_type: KvType = "f16"
    """Of the KV cache. q8_0 halves it, q4_0 takes a quarter; bf16 makes answers depend twenty times less often on what
    is computed beside them (sums are kept in 32 bits). On the CPU all three read long prompts slower than f16."""
    use_mmap: bool = True
    repack: bool | None = None
    """Rearrange the weights for writing one answer: 10 to 20 % faster on x86, but prompts are read and batches written
    up to twice as slowly, and loading takes ten times as long. None: not on x86, elsewhere as llama.cpp does."""
    use_mlock: bool = False
    """Keep the weights in memory whatever other programs want; needs a permission of the system."""
    kv_offload: bool = True
    """Keep the KV cache on the GPU, beside its layers. Without layers there it is in main memory anyway."""
    tensor_split: tuple[float, ...] = ()
    """Shares of several GPUs, in llama.cpp's order; empty shares by their free memory."""
    flash_attention: bool = True
    """Off, quantized KV types do not work, and many sequences together cost more."""
    slots: int = SLOTS[0]
    """Generations decoded together, beside one interactive one where there are several. Their answers may differ from
    those of a generation alone where two tokens are almost equally likely."""
    deterministic: bool = False
    """One generation at a time, each computed from its first token: the answer depends on prompt and sampling alone,
    to the last bit. Nothing is reused, and drafts are ignored."""
    prefix_dir: Path | None = None
    """Where states of fixed prompt beginnings are kept; None keeps them in memory only."""
    prefix_bytes: int = PREFIX_BYTES
    """Most bytes in that folder; 0 keeps no states at all."""
    is_reduced: bool = False
    """These are not the options that were planned: memory was too short for those."""
    name: str = ""
    """For `ModelInfo.name`; the file's own name for itself when empty."""

    @property
    def repacks(self) -> bool:
        """Rearrange the weights on this processor."""
        return not is_x86() if self.repack is None else self.repack

    @property
    def maps_file(self) -> bool:
        """Use the weights where they lie in the file; repacked ones would take memory a second time."""
        return self.use_mmap and self.repack is not True

    @property
    def n_slots(self) -> int:
        """Generations decoded together."""
        return 1 if self.deterministic else max(1, self.slots)


def is_x86() -> bool:
    """Return whether this processor is one on which rearranged weights cost more than they bring."""
    return platform.machine().casefold() in {"x86_64", "amd64", "i386", "i686", "x86"}


def weights_place(options: LlamaOptions) -> WeightsPlace:
    """Return where the weights lie that are not on a GPU."""
    if not options.maps_file or options.use_mlock:
        return "held"
    return "both" if options.repacks else "mapped"


def n_sequences(slots: int) -> int:
    """Return the sequences of a context: one more than slots where there are several."""
    return slots + 1 if slots > 1 else 1


def n_cells(context_length: int, slots: int) -> int:
    """Return the tokens that the KV cache holds, all sequences together."""
    return context_length if slots == 1 else max(context_length, n_sequences(slots) * CELLS_PER_SLOT)


def n_outputs(slots: int, *, deterministic: bool = False) -> int:
    """Return the most tokens of one decode call whose logits are computed."""
    return n_sequences(slots) if deterministic else n_sequences(slots) + LONG_DRAFT_SLICE


def default_threads(weights_bytes: int, n_cores: int) -> int:
    """Return how many threads to use: physical cores less one, so that a busy neighbour does not stop them all."""
    return 1 if weights_bytes < TINY_MODEL_BYTES else max(1, n_cores - 1)
