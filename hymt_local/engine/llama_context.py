"""A llama context with one sequence: what it holds, what of it can be reused, and one checked call to decode more."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hymt_local.engine.cancel import CancelFlag
from hymt_local.engine.sampling import Logits
from hymt_local.errors import DecodeError, EngineLoadError

CONTEXT_STEP = 256
"""llama.cpp rounds context lengths up to it."""

_ABORTED = 2
_SEQUENCE = 0


@dataclass(frozen=True, slots=True)
class ContextShape:
    """Sizes of a context."""

    length: int
    """Tokens it can hold."""
    batch: int
    """Most tokens of one decode call."""
    micro_batch: int
    """Most tokens computed at once."""
    threads: int
    offload: bool
    """Keep the KV cache and large products on the GPU."""


class LlamaContext:
    """Owns a llama context and its batch; knows the tokens whose state it holds.

    Args:
        api: The module `llama_cpp.llama_cpp`.
        model: The llama model, which must outlive this object.
        shape: Its sizes.
        n_vocab: Length of a row of logits.

    Raises:
        EngineLoadError: not enough memory.
    """

    def __init__(self, api: Any, model: Any, *, shape: ContextShape, n_vocab: int) -> None:
        self._api = api
        self._shape = shape
        self._n_vocab = n_vocab
        self._tokens: list[int] = []
        self._never = CancelFlag()
        self._abort_callback = native_abort_callback(api)
        self._logits_address = 0
        self._logits: Logits = np.empty(0, dtype=np.float32)
        self.handle = api.llama_init_from_model(model, _context_params(api, shape))
        if not self.handle:
            raise EngineLoadError(
                f"llama.cpp could not create a context of {shape.length} tokens",
                hint="close other programs, or set a smaller context_length",
            )
        self._memory = api.llama_get_memory(self.handle)
        self._batch = api.llama_batch_init(shape.batch, 0, 1)
        self._view_batch()
        self.watch(None)

    def close(self) -> None:
        """Free the context; closing twice is fine."""
        if self.handle:
            self._api.llama_batch_free(self._batch)
            self._api.llama_free(self.handle)
            self.handle = None

    def watch(self, flag: CancelFlag | None) -> None:
        """Let decode calls be aborted by this flag, which must live until the next call of `watch`."""
        self._watched = flag or self._never
        self._api.llama_set_abort_callback(self.handle, self._abort_callback, self._watched.address)

    def keep_prefix_of(self, prompt: Sequence[int]) -> int:
        """Drop the state of all tokens but the longest common prefix with `prompt`; return its length.

        The last prompt token is never kept: it has to be decoded for its logits.
        """
        n_kept = min(_n_common(self._tokens, prompt), len(prompt) - 1)
        if n_kept < len(self._tokens):
            if not self._api.llama_memory_seq_rm(self._memory, _SEQUENCE, n_kept, -1):
                self.clear()
                return 0
            del self._tokens[n_kept:]
        return n_kept

    def clear(self) -> None:
        """Drop all state."""
        self._api.llama_memory_clear(self._memory, False)
        self._tokens.clear()

    def decode(self, tokens: Sequence[int], *, with_logits: bool) -> bool:
        """Compute the state of `tokens` after those already held.

        Args:
            tokens: At most `shape.batch` ids of the vocabulary.
            with_logits: Compute the logits that follow the last one.

        Returns:
            False when the watched flag aborted it; what was computed by then is kept.

        Raises:
            DecodeError: llama.cpp failed; the context stays usable.
        """
        n_held, n_new = len(self._tokens), len(tokens)
        if not 0 < n_new <= self._shape.batch or n_held + n_new > self._shape.length:
            raise DecodeError(f"{n_new} tokens after {n_held} do not fit a context of {self._shape.length}")
        self._ids[:n_new] = tokens
        self._positions[:n_new] = self._ascending[n_held : n_held + n_new]
        self._wants_logits[n_new - 1] = with_logits
        self._batch.n_tokens = n_new
        status = self._api.llama_decode(self.handle, self._batch)
        self._wants_logits[n_new - 1] = False
        if status == 0:
            self._tokens.extend(tokens)
            return True
        if status == _ABORTED:
            self._tokens.extend(tokens)
            del self._tokens[self._api.llama_memory_seq_pos_max(self._memory, _SEQUENCE) + 1 :]
            return False
        self.clear()
        raise DecodeError(f"llama.cpp failed to decode {n_new} tokens after {n_held} (code {status})")

    def logits(self) -> Logits:
        """Return the logits that the last decode call computed: shape [n_vocab], overwritten by the next call."""
        row = self._api.llama_get_logits_ith(self.handle, -1)
        if not row:
            raise DecodeError("llama.cpp has no logits of the last token")
        address = ctypes.addressof(row.contents)
        if address != self._logits_address:
            self._logits_address = address
            self._logits = np.ctypeslib.as_array(row, shape=(self._n_vocab,))
        return self._logits

    def _view_batch(self) -> None:
        size = (self._shape.batch,)
        self._ids = np.ctypeslib.as_array(self._batch.token, shape=size)
        self._positions = np.ctypeslib.as_array(self._batch.pos, shape=size)
        self._wants_logits = np.ctypeslib.as_array(self._batch.logits, shape=size)
        self._ascending = np.arange(self._shape.length, dtype=np.int32)
        self._wants_logits[:] = 0
        for index in range(self._shape.batch):
            self._batch.n_seq_id[index] = 1
            self._batch.seq_id[index][0] = _SEQUENCE


def _n_common(held: Sequence[int], wanted: Sequence[int]) -> int:
    for index, (held_token, token) in enumerate(zip(held, wanted, strict=False)):
        if held_token != token:
            return index
    return min(len(held), len(wanted))


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
    params.n_ctx = -(-shape.length // CONTEXT_STEP) * CONTEXT_STEP  # 0 would mean the trained length: 32 GiB for a 7B
    params.n_batch = shape.batch
    params.n_ubatch = shape.micro_batch
    params.n_seq_max = 1
    params.n_outputs_max = 1  # one row of logits instead of one per token of a batch; below n_seq_max it aborts
    params.n_threads = shape.threads
    params.n_threads_batch = shape.threads
    params.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.pooling_type = api.LLAMA_POOLING_TYPE_NONE
    params.attention_type = api.LLAMA_ATTENTION_TYPE_CAUSAL
    params.kv_unified = True
    params.offload_kqv = params.op_offload = shape.offload
    params.no_perf = True
    return params
