"""Greedy translation of many texts at once by llama.cpp, as the program would do it one by one."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hymt_convert.demo.prompt import prompt_text
from hymt_convert.demo.tokenizer import EOS, START, TURN_END
from hymt_local.errors import EngineLoadError, ModelFileError

SEQUENCES = 48
POSITIONS = 128
"""Of one sequence: prompt and answer."""
ANSWER_LIMIT = 64

Request = tuple[str, str, str]
"""Source language, target language, text."""


class GreedyModel:
    """A GGUF file on the CPU, as a context manager; one thread at a time."""

    def __init__(self, path: Path, *, threads: int = 1, penalty: float = 1.0) -> None:
        import llama_cpp

        os.environ.setdefault("GGML_NO_BACKTRACE", "1")
        self._lib: Any = llama_cpp
        self._penalty = penalty
        self._silence = llama_cpp.llama_log_callback(lambda level, text, data: None)
        # llama.cpp keeps the pointer: what stood there is put back before this one is gone.
        self._previous_log = llama_cpp.llama_log_callback(), ctypes.c_void_p()
        llama_cpp.llama_log_get(*(ctypes.byref(value) for value in self._previous_log))
        llama_cpp.llama_log_set(self._silence, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        try:
            self._model = self._load(path)
            self._context = self._make_context(threads)
        except BaseException:
            llama_cpp.llama_log_set(*self._previous_log)
            raise
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self._size = int(llama_cpp.llama_vocab_n_tokens(self._vocab))
        self._start, self._turn_end, self._end = (self._control(token) for token in (START, TURN_END, EOS))
        self._batch = llama_cpp.llama_batch_init(SEQUENCES * POSITIONS, 0, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lib.llama_batch_free(self._batch)
        self._lib.llama_free(self._context)
        self._lib.llama_model_free(self._model)
        self._lib.llama_log_set(*self._previous_log)

    def translate(self, requests: Sequence[Request]) -> Iterator[str]:
        """Yield the translations in order."""
        for start in range(0, len(requests), SEQUENCES):
            prompts = [self.prompt(request) for request in requests[start : start + SEQUENCES]]
            yield from (self._text(ids) for ids in self._answers(prompts))

    def prompt(self, request: Request) -> list[int]:
        """Token ids of a whole prompt: the text is tokenized in one piece, control ids stand around it."""
        return [self._start, *self._tokenize(prompt_text(*request), special=False), self._turn_end]

    def _answers(self, prompts: Sequence[list[int]]) -> list[list[int]]:
        self._lib.llama_memory_clear(self._lib.llama_get_memory(self._context), True)
        answers: list[list[int]] = [[] for _ in prompts]
        pending = {number: (prompt, 0) for number, prompt in enumerate(prompts)}
        while pending:
            choices = self._decode(pending, answers)
            following = {}
            for (number, (tokens, position)), choice in zip(pending.items(), choices, strict=True):
                if choice != self._end and len(answers[number]) < ANSWER_LIMIT:
                    answers[number].append(choice)
                    following[number] = ([choice], position + len(tokens))
            pending = following
        return answers

    def _decode(self, pending: dict[int, tuple[list[int], int]], answers: Sequence[list[int]]) -> list[int]:
        """Feed every sequence its tokens at its position; return each one's most likely next token."""
        batch, place, rows = self._batch, 0, []
        for number, (tokens, position) in pending.items():
            for offset, token in enumerate(tokens):
                batch.token[place] = token
                batch.pos[place] = position + offset
                batch.n_seq_id[place] = 1
                batch.seq_id[place][0] = number
                batch.logits[place] = offset == len(tokens) - 1
                place += 1
            rows.append((place - 1, answers[number]))
        batch.n_tokens = place
        status = self._lib.llama_decode(self._context, batch)
        if status != 0:
            raise ModelFileError(f"llama.cpp cannot decode a batch of {place} tokens: status {status}")
        return [int(self._penalized(row, answer).argmax()) for row, answer in rows]

    def _penalized(self, row: int, answer: Sequence[int]) -> NDArray[np.float32]:
        logits = np.ctypeslib.as_array(self._lib.llama_get_logits_ith(self._context, row), shape=(self._size,))
        if self._penalty == 1.0 or not answer:
            return logits
        seen = np.unique(np.array(answer))
        logits[seen] = np.where(logits[seen] > 0, logits[seen] / self._penalty, logits[seen] * self._penalty)
        return logits

    def _tokenize(self, text: str, *, special: bool) -> list[int]:
        data = text.encode()
        room = (ctypes.c_int32 * (len(data) + 8))()
        count = self._lib.llama_tokenize(self._vocab, data, len(data), room, len(room), False, special)
        if count < 0:
            raise ModelFileError(f"llama.cpp cannot tokenize {text[:40]!r}")
        return list(room[:count])

    def _text(self, ids: Sequence[int]) -> str:
        array = (ctypes.c_int32 * len(ids))(*ids)
        room = ctypes.create_string_buffer(64 * len(ids) + 64)
        count = self._lib.llama_detokenize(self._vocab, array, len(ids), room, len(room), False, False)
        return room.raw[: max(count, 0)].decode("utf-8", "replace")

    def _control(self, token: str) -> int:
        ids = self._tokenize(token, special=True)
        if len(ids) != 1:
            raise ModelFileError(f"the file has no token {token}")
        return ids[0]

    def _load(self, path: Path) -> Any:
        parameters = self._lib.llama_model_default_params()
        parameters.n_gpu_layers = 0
        model = self._lib.llama_model_load_from_file(os.fsencode(path), parameters)
        if not model:
            raise EngineLoadError(f"llama.cpp cannot load {path.name}")
        return model

    def _make_context(self, threads: int) -> Any:
        parameters = self._lib.llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = SEQUENCES * POSITIONS
        parameters.n_seq_max = SEQUENCES
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.no_perf = True
        context = self._lib.llama_init_from_model(self._model, parameters)
        if not context:
            raise EngineLoadError("llama.cpp cannot make a context for the demo model")
        return context
