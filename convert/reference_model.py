"""A model file in llama.cpp as an instrument: its logits, its tokens, its likeliest answers, the nodes of its graph.

It goes through the low-level calls, on the CPU alone and, unless told otherwise, with an f32 KV cache, so that logits
can be compared digit by digit with those of another implementation or another file.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from hymt_local.errors import DecodeError, EngineLoadError, EngineUnavailableError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LOG_LINES = 40

OnNode = Callable[[int, bool, object], bool]
"""Called with each node of the graph before (True) and after (False) it is computed; see `ggml_graph`."""


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens to read in one of the sequences."""

    sequence: int
    position: int
    """Of the first token."""
    tokens: Sequence[int]
    n_logits: int
    """The last so many tokens get logits."""


class ReferenceModel:
    """A file loaded by llama.cpp. Use it as a context manager, on one thread.

    While it is open, llama.cpp's log goes into its error messages.

    Args:
        path: A file that `check_supported` lets through; of others, some end the process.
        context_length: Tokens that it holds, all sequences together.
        batch_tokens: Tokens that it computes at once; None for as many as it holds.
        max_logits: Rows of logits that one batch may ask for, each as long as the vocabulary; None for all tokens.
        threads: None for one per core.
        sequences: Texts that it holds at once.
        on_node: Shown the nodes of the graph; what it raises is lost.
        cache_type: Of keys and values: F16 halves their memory, F32 makes results comparable digit by digit.
        check_weights: Read all weights first and refuse those that are not numbers.

    Raises:
        EngineUnavailableError: llama-cpp-python does not load.
        EngineLoadError: llama.cpp refuses the file.
    """

    def __init__(
        self,
        path: Path,
        *,
        context_length: int = 512,
        batch_tokens: int | None = None,
        max_logits: int | None = None,
        threads: int | None = 1,
        sequences: int = 1,
        on_node: OnNode | None = None,
        cache_type: Literal["F32", "F16"] = "F32",
        check_weights: bool = False,
    ) -> None:
        self._lib: Any = _library()
        self.name = path.name
        self._log: list[str] = []
        self._log_callback = self._lib.llama_log_callback(self._keep_log)  # llama.cpp holds the pointer
        self._node_callback = self._lib.ggml_backend_sched_eval_callback(on_node) if on_node else None
        self._previous_log: tuple[Any, Any] | None = self._swap_log()
        self._context: Any = None
        self._model: Any = None
        try:
            self._model = self._load(path, check_weights=check_weights)
            self._room = batch_tokens or context_length
            self._max_logits = max_logits or self._room
            self._context = self._open(
                context_length, threads=threads or n_cores(), sequences=sequences, cache_type=cache_type
            )
        except BaseException:
            self.close()
            raise
        self._vocab = self._lib.llama_model_get_vocab(self._model)
        self.vocab_size = int(self._lib.llama_vocab_n_tokens(self._vocab))

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

    @functools.cached_property
    def control_tokens(self) -> Mapping[str, int]:
        """Text of every control token -> its id."""
        lib, vocab = self._lib, self._vocab
        ids = [token for token in range(self.vocab_size) if lib.llama_vocab_is_control(vocab, token)]
        return {lib.llama_vocab_get_text(vocab, token).decode("utf-8", "replace"): token for token in ids}

    @functools.cached_property
    def end_ids(self) -> frozenset[int]:
        """Ids at which llama.cpp ends a generation."""
        return frozenset(i for i in range(self.vocab_size) if self._lib.llama_vocab_is_eog(self._vocab, i))

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

    def text(self, tokens: Sequence[int]) -> str:
        """Return what tokens stand for; control tokens stand for nothing."""
        return b"".join(self._piece(token, 32) for token in tokens).decode("utf-8", "replace")

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Return the logits after every token of one sequence: shape [n_tokens, vocab_size].

        Raises:
            DecodeError: llama.cpp cannot decode the sequence.
        """
        self.clear()
        return self.decode([Span(0, 0, tokens, len(tokens))])

    def answers(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        end_ids: frozenset[int],
        max_tokens: int,
        on_token: Callable[[int], None] | None = None,
    ) -> list[list[int]]:
        """Return the likeliest continuation of each prompt, token by token, all prompts at once.

        Args:
            prompts: At most as many as `sequences`; with their answers they must fit the context.
            end_ids: Ids that end an answer and are left out.
            max_tokens: The longest answer.
            on_token: Told how many tokens of the longest answer are there; at the end it is told `max_tokens`.
        """
        self.clear()
        report = on_token or (lambda count: None)
        answers: list[list[int]] = [[] for _ in prompts]
        pending = [Span(number, 0, prompt, 1) for number, prompt in enumerate(prompts)]
        while pending:
            following = []
            for span, choice in zip(pending, self._choices(pending), strict=True):
                answer = answers[span.sequence]
                if choice not in end_ids:
                    answer.append(choice)
                    if len(answer) < max_tokens:
                        following.append(Span(span.sequence, span.position + len(span.tokens), [choice], 1))
            pending = following
            report(max(map(len, answers)) if pending else max_tokens)
        return answers

    def _choices(self, spans: Sequence[Span]) -> list[int]:
        """Return the likeliest id behind each span."""
        return [int(choice) for batch in self._batches(spans) for choice in self.decode(batch).argmax(axis=-1)]

    def _batches(self, spans: Sequence[Span]) -> Iterator[list[Span]]:
        """Yield the spans in lists that can be computed at once."""
        batch: list[Span] = []
        for span in spans:
            n_tokens = len(span.tokens) + sum(len(each.tokens) for each in batch)
            if batch and (n_tokens > self._room or len(batch) == self._max_logits):
                yield batch
                batch = []
            batch.append(span)
        yield batch

    def clear(self) -> None:
        """Forget all sequences."""
        self._lib.llama_memory_clear(self._lib.llama_get_memory(self._context), True)

    def decode(self, spans: Sequence[Span]) -> NDArray[np.float32]:
        """Read tokens after those already held, and return the logits asked for, in order: shape [n, vocab_size].

        Raises:
            DecodeError: llama.cpp cannot decode them, or an id or the number of tokens is out of range.
        """
        import numpy as np

        self.read(spans)
        shape = (sum(span.n_logits for span in spans), self.vocab_size)
        return np.ctypeslib.as_array(self._lib.llama_get_logits(self._context), shape=shape).copy()

    def read(self, spans: Sequence[Span]) -> None:
        """Read tokens after those already held; the logits are computed and left where they are.

        Raises:
            DecodeError: llama.cpp cannot decode them, or an id or the number of tokens is out of range.
        """
        total = sum(len(span.tokens) for span in spans)
        if not 0 < total <= self._room:
            raise DecodeError(f"{total} tokens do not fit into {self._room}")
        if sum(span.n_logits for span in spans) > self._max_logits:
            raise DecodeError(f"more than {self._max_logits} rows of logits")
        if any(not 0 <= token < self.vocab_size for span in spans for token in span.tokens):
            raise DecodeError(f"a token outside of 0 to {self.vocab_size - 1}")
        batch = self._lib.llama_batch_init(total, 0, 1)
        try:
            _fill(batch, spans)
            status = self._lib.llama_decode(self._context, batch)
            if status != 0:
                raise DecodeError(f"llama.cpp cannot decode {total} tokens of {self.name}: status {status}")
        finally:
            self._lib.llama_batch_free(batch)

    def _load(self, path: Path, *, check_weights: bool) -> Any:
        lib = self._lib
        lib.llama_backend_init()
        parameters = lib.llama_model_default_params()
        no_device = (ctypes.c_void_p * 1)(None)
        parameters.devices = ctypes.addressof(no_device)
        parameters.n_gpu_layers = 0
        parameters.use_extra_bufts = False  # else the weights are held twice
        parameters.load_mtp = False
        parameters.check_tensors = check_weights
        model = lib.llama_model_load_from_file(os.fsencode(path), parameters)
        if not model:
            raise EngineLoadError(f"llama.cpp cannot load {path.name}: {self._last_words()}")
        return model

    def _open(self, context_length: int, *, threads: int, sequences: int, cache_type: str) -> Any:
        lib = self._lib
        parameters = lib.llama_context_default_params()
        parameters.n_ctx = context_length
        parameters.n_batch = parameters.n_ubatch = self._room
        parameters.n_outputs_max = self._max_logits
        parameters.n_seq_max = min(sequences, self._max_logits)  # more of them would end the process
        parameters.kv_unified = True
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.type_k = parameters.type_v = getattr(lib, f"GGML_TYPE_{cache_type}")
        parameters.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        parameters.offload_kqv = parameters.op_offload = False
        parameters.no_perf = True
        if self._node_callback is not None:
            parameters.cb_eval = self._node_callback
        context = lib.llama_init_from_model(self._model, parameters)
        if not context:
            raise EngineLoadError(f"llama.cpp cannot make a context for {self.name}: {self._last_words()}")
        return context

    def _piece(self, token: int, n_bytes: int) -> bytes:
        buffer = ctypes.create_string_buffer(n_bytes)
        length = self._lib.llama_token_to_piece(self._vocab, token, buffer, n_bytes, 0, False)
        return buffer.raw[:length] if length >= 0 else self._piece(token, -length)

    def _swap_log(self) -> tuple[Any, Any]:
        lib = self._lib
        callback, user_data = lib.llama_log_callback(), ctypes.c_void_p()
        lib.llama_log_get(ctypes.byref(callback), ctypes.byref(user_data))
        lib.llama_log_set(self._log_callback, ctypes.c_void_p(0))
        return callback, user_data

    def _keep_log(self, level: int, text: bytes, user_data: object) -> None:
        self._log = [*self._log[1 - _LOG_LINES :], text.decode("utf-8", "replace").strip()]

    def _last_words(self) -> str:
        telling = ("error", "failed", "invalid")
        return next((line for line in self._log if any(word in line for word in telling)), "no reason given")


def n_cores() -> int:
    """Return the number of physical cores, which llama.cpp takes when nothing else is asked for."""
    import psutil

    return psutil.cpu_count(logical=False) or os.cpu_count() or 1


def _library() -> Any:
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    try:
        import llama_cpp
    except (ImportError, OSError, RuntimeError) as error:
        raise EngineUnavailableError(
            f"llama-cpp-python cannot be loaded: {error}", hint="Install hymt-local again."
        ) from error
    return llama_cpp


def _fill(batch: Any, spans: Sequence[Span]) -> None:
    place = 0
    for span in spans:
        first = len(span.tokens) - span.n_logits
        for offset, token in enumerate(span.tokens):
            batch.token[place] = token
            batch.pos[place] = span.position + offset
            batch.n_seq_id[place] = 1
            batch.seq_id[place][0] = span.sequence
            batch.logits[place] = offset >= first
            place += 1
    batch.n_tokens = place
