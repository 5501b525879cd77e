"""Looks at finished GGUF files: their structure, and what llama.cpp makes of them.

The structure needs no llama.cpp. `ReferenceModel` goes through its low-level calls with an f32 KV cache, so that its
logits can be compared digit by digit with another implementation.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from hymt_convert.vocabulary import TokenType
from hymt_local.engine.gguf_file import GgufHeader, check_supported, read_array, read_header
from hymt_local.errors import DecodeError, EngineLoadError, ModelFileError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SEPARATOR_KEY = "tokenizer.ggml.seperator_token_id"  # the specification's spelling
_LOG_LINES = 40


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What the header of a sound file says."""

    architecture: str
    tensor_types: Mapping[str, str]
    """Tensor name -> ggml type name, in file order."""
    tensor_shapes: Mapping[str, tuple[int, ...]]
    """In the order of the checkpoint: rows first."""
    size_bytes: int


def read_file_facts(path: Path) -> FileFacts:
    """Read a file's header; every tensor is known to lie inside the file.

    Raises:
        ModelFileError: it is not GGUF, or damaged.
    """
    return _facts(read_header(path))


def check_file(path: Path, *, shapes: Mapping[str, tuple[int, ...]]) -> FileFacts:
    """Check a file made by this converter: what the engine asks of it, and every tensor, shape and special id.

    Raises:
        ModelFileError: with what is wrong.
        UnsupportedModelError: the engine would refuse it.
    """
    header = read_header(path)
    check_supported(header)
    facts = _facts(header)
    if facts.tensor_shapes != dict(shapes):
        odd = sorted(set(facts.tensor_shapes.items()) ^ set(shapes.items()))
        raise ModelFileError(f"{path.name} differs from its checkpoint in tensor {odd[0][0]}")
    end = header.metadata.get("tokenizer.ggml.eos_token_id")
    types = read_array(header, "tokenizer.ggml.token_type")
    if not isinstance(end, int) or types[end] != TokenType.CONTROL:
        raise ModelFileError(f"{path.name} ends its texts with token {end}, which is not a control token")
    if _SEPARATOR_KEY in header.metadata:
        raise ModelFileError(f"{path.name} has a separator token, which loaders append to prompts")
    return facts


def read_metadata(path: Path) -> Mapping[str, object]:
    """Return every header key of a file, arrays as lists.

    Raises:
        ModelFileError: it is not GGUF, or damaged.
    """
    return read_header(path, arrays=True).metadata


def _facts(header: GgufHeader) -> FileFacts:
    from gguf import GGMLQuantizationType

    return FileFacts(
        architecture=header.architecture,
        tensor_types={tensor.name: GGMLQuantizationType(tensor.type_id).name for tensor in header.tensors},
        tensor_shapes={tensor.name: tensor.shape[::-1] for tensor in header.tensors},
        size_bytes=header.size_bytes,
    )


class ReferenceModel:
    """A file loaded by llama.cpp on the CPU for comparison: logits of whole sequences, plain tokenization.

    Use it as a context manager, on one thread. While it is open, llama.cpp's log goes into its error messages.
    """

    def __init__(self, path: Path, *, context_length: int = 512, threads: int = 1) -> None:
        os.environ.setdefault("GGML_NO_BACKTRACE", "1")
        import llama_cpp

        self._lib: Any = llama_cpp
        self._log: list[str] = []
        self._log_callback = llama_cpp.llama_log_callback(self._keep_log)  # llama.cpp holds the pointer
        self._previous_log: tuple[Any, Any] | None = self._swap_log()
        self._context: Any = None
        self._model: Any = None
        try:
            self._open(path, context_length=context_length, threads=threads)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free the model; closing twice is fine."""
        if self._context:
            self._lib.llama_free(self._context)
        if self._model:
            self._lib.llama_model_free(self._model)
        self._context = self._model = None
        if self._previous_log is not None:
            self._lib.llama_log_set(*self._previous_log)
            self._previous_log = None

    @property
    def end_ids(self) -> frozenset[int]:
        """Ids at which llama.cpp ends a generation."""
        return frozenset(i for i in range(self._vocab_size) if self._lib.llama_vocab_is_eog(self._vocab, i))

    @property
    def bos_id(self) -> int:
        """The id llama.cpp would put in front."""
        return int(self._lib.llama_vocab_bos(self._vocab))

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Return the ids of a text, without BOS; control-token text in it stays text unless `special`."""
        data = text.encode()
        room = (ctypes.c_int32 * (len(data) + 16))()
        count = self._lib.llama_tokenize(self._vocab, data, len(data), room, len(room), False, special)
        if count < 0:
            raise DecodeError(f"llama.cpp cannot tokenize {text[:40]!r}")
        return list(room[:count])

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Return the logits after every token: shape [n_tokens, vocab_size].

        Raises:
            DecodeError: llama.cpp cannot decode the sequence.
        """
        import numpy as np

        lib = self._lib
        lib.llama_memory_clear(lib.llama_get_memory(self._context), True)
        batch = lib.llama_batch_init(len(tokens), 0, 1)
        try:
            self._fill(batch, tokens)
            status = lib.llama_decode(self._context, batch)
            if status != 0:
                raise DecodeError(f"llama.cpp cannot decode {len(tokens)} tokens: status {status}")
            pointer = lib.llama_get_logits(self._context)
            return np.ctypeslib.as_array(pointer, shape=(len(tokens), self._vocab_size)).copy()
        finally:
            lib.llama_batch_free(batch)

    def _fill(self, batch: Any, tokens: Sequence[int]) -> None:
        batch.n_tokens = len(tokens)
        for place, token in enumerate(tokens):
            batch.token[place] = token
            batch.pos[place] = place
            batch.n_seq_id[place] = 1
            batch.seq_id[place][0] = 0
            batch.logits[place] = 1

    def _open(self, path: Path, *, context_length: int, threads: int) -> None:
        lib = self._lib
        lib.llama_backend_init()
        parameters = lib.llama_model_default_params()
        parameters.n_gpu_layers = 0
        self._model = lib.llama_model_load_from_file(os.fsencode(path), parameters)
        if not self._model:
            raise EngineLoadError(f"llama.cpp cannot load {path.name}: {self._last_words()}")
        context = lib.llama_context_default_params()
        context.n_ctx = context.n_batch = context.n_ubatch = context_length
        context.n_threads = context.n_threads_batch = threads
        context.type_k = context.type_v = lib.GGML_TYPE_F32
        context.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self._context = lib.llama_init_from_model(self._model, context)
        if not self._context:
            raise EngineLoadError(f"llama.cpp cannot make a context for {path.name}: {self._last_words()}")
        self._vocab = lib.llama_model_get_vocab(self._model)
        self._vocab_size = int(lib.llama_vocab_n_tokens(self._vocab))

    def _swap_log(self) -> tuple[Any, Any]:
        lib = self._lib
        callback, user_data = lib.llama_log_callback(), ctypes.c_void_p()
        lib.llama_log_get(ctypes.byref(callback), ctypes.byref(user_data))
        lib.llama_log_set(self._log_callback, ctypes.c_void_p(0))
        return callback, user_data

    def _keep_log(self, level: int, text: bytes, user_data: object) -> None:
        self._log = [*self._log[1 - _LOG_LINES :], text.decode("utf-8", "replace").strip()]

    def _last_words(self) -> str:
        return next((line for line in self._log if "error" in line or "failed" in line), "no reason given")
