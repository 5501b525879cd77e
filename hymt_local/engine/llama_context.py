"""A llama context with many sequences in one cache, behind checked calls."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hymt_local.engine.cancel import CancelFlag
from hymt_local.engine.options import KvType
from hymt_local.engine.sampling import Logits
from hymt_local.engine.slots import BatchDecoder, Run
from hymt_local.errors import DecodeError, EngineMemoryError

CONTEXT_STEP = 256
"""llama.cpp rounds context lengths up to it."""

_ABORTED = 2
_NO_MEMORY = -2
_BYTES = ctypes.POINTER(ctypes.c_uint8)
_GGML_TYPES: dict[KvType, int] = {"f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2}
"""ggml_type; llama_cpp does not name all of them."""


@dataclass(frozen=True, slots=True)
class ContextShape:
    """Sizes of a context."""

    cells: int
    """Tokens it can hold, all sequences together."""
    sequences: int
    """Beside one that is used to save states."""
    outputs: int
    """Most tokens of one decode call whose logits are computed; at least `sequences`."""
    batch: int
    """Most tokens of one decode call."""
    micro_batch: int
    """Most tokens computed at once."""
    threads: int
    offload: bool
    """Compute large products on the GPU."""
    kv_type: KvType = "f16"
    kv_offload: bool = True
    """Keep the KV cache on the GPU, where `offload` is."""
    flash_attention: bool = True


class LlamaContext(BatchDecoder):
    """Owns a llama context and its batch. Every precondition of the C API is checked here: it would abort the process.

    Args:
        api: The module `llama_cpp.llama_cpp`.
        model: The llama model, which must outlive this object.
        shape: Its sizes.
        n_vocab: Length of a row of logits.

    Raises:
        EngineMemoryError: not enough memory.
    """

    def __init__(self, api: Any, model: Any, *, shape: ContextShape, n_vocab: int) -> None:
        self._api = api
        self._shape = shape
        self._n_vocab = n_vocab
        self._held = [0] * shape.sequences
        self._rows_with_logits: frozenset[int] = frozenset()
        self._views: dict[int, Logits] = {}
        self._interruption = CancelFlag()
        self._abort_callback = native_abort_callback(api)
        self.handle = api.llama_init_from_model(model, _context_params(api, shape))
        if not self.handle:
            raise EngineMemoryError(
                f"llama.cpp could not create a context of {shape.cells} tokens",
                hint="close other programs, or set a smaller context_length",
            )
        self._memory = api.llama_get_memory(self.handle)
        self._batch = api.llama_batch_init(shape.batch, 0, 1)
        self._view_batch()
        api.llama_set_abort_callback(self.handle, self._abort_callback, self._interruption.address)

    @property
    def n_slots(self) -> int:
        """Sequences."""
        return self._shape.sequences

    @property
    def n_cells(self) -> int:
        """Tokens that all sequences hold together."""
        return self._shape.cells

    @property
    def n_rows(self) -> int:
        """Most tokens of one call."""
        return self._shape.batch

    @property
    def n_outputs(self) -> int:
        """Most tokens of one call whose logits are computed."""
        return self._shape.outputs

    def close(self) -> None:
        """Free the context; closing twice is fine."""
        if self.handle:
            self._api.llama_batch_free(self._batch)
            self._api.llama_free(self.handle)
            self.handle = None

    def interrupt(self) -> None:
        """Make the decode call under way, or else the next one, return at once. From any thread."""
        self._interruption.cancel()

    def n_held(self, slot: int) -> int:
        """Return how many tokens a sequence holds."""
        return self._held[slot]

    def decode(self, runs: Sequence[Run]) -> bool:
        """Compute all runs; return False when it was interrupted.

        Raises:
            DecodeError: llama.cpp failed, or the runs are out of bounds; the context stays usable.
            EngineMemoryError: it got no memory, which smaller sizes need less of.
        """
        self._check(runs)
        rows_with_logits = self._fill(runs)
        self._rows_with_logits = frozenset()
        status = self._api.llama_decode(self.handle, self._batch)
        for row in rows_with_logits:
            self._wants_logits[row] = False
        if status == 0:
            self._rows_with_logits = frozenset(rows_with_logits)
            for run in runs:
                self._held[run.slot] += len(run.tokens)
            return True
        for run in runs:
            self._held[run.slot] = self._api.llama_memory_seq_pos_max(self._memory, run.slot) + 1
        if status == _ABORTED:
            self._interruption.reset()
            return False
        what = f"{sum(len(run.tokens) for run in runs)} tokens of {len(runs)} sequences"
        if status == _NO_MEMORY:
            raise EngineMemoryError(
                f"llama.cpp got no memory to decode {what}",
                hint="close other programs, or set a smaller context_length",
            )
        raise DecodeError(f"llama.cpp failed to decode {what} (code {status})")

    def logits(self, row: int) -> Logits:
        """Return the logits of a token of the last call: shape [n_vocab], overwritten by the next call."""
        address = self._api.llama_get_logits_ith(self.handle, row) if row in self._rows_with_logits else None
        if not address:
            raise DecodeError(f"llama.cpp has no logits of row {row}")
        key = ctypes.addressof(address.contents)
        view = self._views.get(key)
        if view is None:  # making a view takes longer than the largest logit
            view = self._views[key] = np.ctypeslib.as_array(address, shape=(self._n_vocab,))
        return view

    def truncate(self, slot: int, n_kept: int) -> bool:
        """Drop all tokens but the first ones; return False when that failed and nothing is left."""
        self._check_slots(slot)
        if self._api.llama_memory_seq_rm(self._memory, slot, n_kept, -1):
            self._held[slot] = min(self._held[slot], n_kept)
            return True
        self._api.llama_memory_seq_rm(self._memory, slot, -1, -1)  # a whole sequence always goes
        self._held[slot] = 0
        return False

    def copy(self, source: int, target: int, n_tokens: int) -> None:
        """Let an empty sequence share the first tokens of another."""
        self._check_slots(source, target)
        if self._held[target] or n_tokens > self._held[source] or source == target:
            raise DecodeError(f"sequence {target} cannot take {n_tokens} tokens of sequence {source}")
        self._api.llama_memory_seq_cp(self._memory, source, target, 0, n_tokens)
        self._held[target] = n_tokens

    def state(self, slot: int, n_tokens: int) -> memoryview:
        """Return the state of the first tokens of a sequence, in memory of its own.

        Raises:
            DecodeError: it holds fewer, or llama.cpp failed.
        """
        self._check_slots(slot)
        spare = self._shape.sequences
        if not 0 < n_tokens <= self._held[slot]:
            raise DecodeError(f"sequence {slot} does not hold {n_tokens} tokens")
        self._api.llama_memory_seq_cp(self._memory, slot, spare, 0, n_tokens)
        size = self._api.llama_state_seq_get_size(self.handle, spare)
        buffer = np.empty(size, dtype=np.uint8)
        n_bytes = self._api.llama_state_seq_get_data(self.handle, buffer.ctypes.data_as(_BYTES), size, spare)
        self._api.llama_memory_seq_rm(self._memory, spare, -1, -1)
        if not n_bytes:
            raise DecodeError(f"llama.cpp could not save {n_tokens} tokens")
        return buffer.data[:n_bytes]

    def restore(self, slot: int, state: bytes | memoryview, *, n_tokens: int) -> bool:
        """Let a sequence hold a state and nothing else; False, and it is empty, when that is not one of `n_tokens`.

        The state must come from `state` of a context of the same kind, unharmed: llama.cpp believes what it reads.
        """
        buffer = np.frombuffer(state, dtype=np.uint8)  # no copy: it may have a quarter of a gigabyte
        self.truncate(slot, 0)
        api, memory = self._api, self._memory
        n_bytes = api.llama_state_seq_set_data(self.handle, buffer.ctypes.data_as(_BYTES), len(state), slot)
        first, last = api.llama_memory_seq_pos_min(memory, slot), api.llama_memory_seq_pos_max(memory, slot)
        if n_bytes == len(state) and (first, last) == (0, n_tokens - 1):
            self._held[slot] = n_tokens
            return True
        self.truncate(slot, 0)
        return False

    def _check(self, runs: Sequence[Run]) -> None:
        n_rows = sum(len(run.tokens) for run in runs)
        if not 0 < n_rows <= self._shape.batch or sum(run.n_logits for run in runs) > self._shape.outputs:
            raise DecodeError(f"{n_rows} tokens do not fit a batch of {self._shape.batch}")
        if len({run.slot for run in runs}) < len(runs):
            raise DecodeError("two runs of one sequence in one call")
        for run in runs:
            self._check_slots(run.slot)
            is_next = run.tokens and run.start == self._held[run.slot] and 0 <= run.n_logits <= len(run.tokens)
            if not is_next or run.start + len(run.tokens) > self._shape.cells:
                raise DecodeError(
                    f"{len(run.tokens)} tokens at {run.start} do not fit a context of {self._shape.cells}"
                )
            if min(run.tokens) < 0 or max(run.tokens) >= self._n_vocab:
                raise DecodeError(f"a token is outside of 0 to {self._n_vocab - 1}")

    def _check_slots(self, *slots: int) -> None:
        """Refuse what is no sequence, also what Python would take for one counted from the end."""
        for slot in slots:
            if not 0 <= slot < self._shape.sequences:
                raise DecodeError(f"there is no sequence {slot}, only 0 to {self._shape.sequences - 1}")

    def _fill(self, runs: Sequence[Run]) -> list[int]:
        """Write the runs into the batch; return the rows whose logits are wanted."""
        wanted: list[int] = []
        row = 0
        for run in runs:
            end = row + len(run.tokens)
            self._ids[row:end] = run.tokens
            self._positions[row:end] = self._ascending[run.start : run.start + len(run.tokens)]
            wanted += range(end - run.n_logits, end)
            for index in range(row, end):
                if self._sequences[index] != run.slot:
                    self._sequences[index] = run.slot
                    self._batch.seq_id[index][0] = run.slot
            row = end
        for index in wanted:
            self._wants_logits[index] = True
        self._batch.n_tokens = row
        return wanted

    def _view_batch(self) -> None:
        size = (self._shape.batch,)
        self._ids = np.ctypeslib.as_array(self._batch.token, shape=size)
        self._positions = np.ctypeslib.as_array(self._batch.pos, shape=size)
        self._wants_logits = np.ctypeslib.as_array(self._batch.logits, shape=size)
        self._ascending = np.arange(self._shape.cells, dtype=np.int32)
        self._wants_logits[:] = 0
        self._sequences = [0] * self._shape.batch
        for index in range(self._shape.batch):
            self._batch.n_seq_id[index] = 1
            self._batch.seq_id[index][0] = 0


def native_abort_callback(api: Any) -> Any:
    """Return an abort callback that never enters Python: `strlen` of the flag's C string, 0 until it is set.

    It is called once per node of the graph. A Python callback would take the GIL each time, and wait up to 5 ms for it
    whenever another thread computes.
    """
    return ctypes.cast(native_function("strlen"), api.ggml_abort_callback)


def native_function(name: str) -> Any:
    """Return a function of the C library, to be used as a callback."""
    return getattr(ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None), name)


def _context_params(api: Any, shape: ContextShape) -> Any:
    params = api.llama_context_default_params()
    params.n_ctx = -(-shape.cells // CONTEXT_STEP) * CONTEXT_STEP  # 0 would mean the trained length: 32 GiB for a 7B
    params.n_batch = shape.batch
    params.n_ubatch = shape.micro_batch
    params.n_seq_max = shape.sequences + 1  # one to save states from
    params.n_outputs_max = max(
        shape.outputs, params.n_seq_max
    )  # instead of a row of logits per token of a batch; below n_seq_max it aborts
    params.n_threads = shape.threads
    params.n_threads_batch = shape.threads
    is_flash = shape.flash_attention  # never AUTO: states of both kinds do not fit each other
    params.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_ENABLED if is_flash else api.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.pooling_type = api.LLAMA_POOLING_TYPE_NONE
    params.attention_type = api.LLAMA_ATTENTION_TYPE_CAUSAL
    params.kv_unified = True
    params.type_k = params.type_v = _GGML_TYPES[shape.kv_type]  # quantized values need flash attention
    params.op_offload = shape.offload
    params.offload_kqv = shape.offload and shape.kv_offload
    params.no_perf = True
    return params
