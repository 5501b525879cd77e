"""One generation: read the prompt in slices, then choose, hand out and decode token after token."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence

from hymt_local.engine.base import (
    FinishReason,
    GenerationDone,
    GenerationEvent,
    GenerationRequest,
    PromptRead,
    TokensGenerated,
)
from hymt_local.engine.llama_context import LlamaContext
from hymt_local.engine.llama_vocabulary import Vocabulary
from hymt_local.engine.sampling import Chooser, probability
from hymt_local.events import TokenUsage

PROMPT_SLICE = 256
"""Prompt tokens per decode call: between two calls progress is reported and cancellation polled."""


class TokenLoop:
    """The state of one generation.

    Args:
        context: What it decodes in.
        vocabulary: The model's.
        request: Already checked.
        chooser: Chooses the tokens; closed at the end.
        is_cancelled: Polled before each decode call.
        check_usable: Called before each use of the context; raises when it must not be touched any more.
    """

    def __init__(
        self,
        context: LlamaContext,
        vocabulary: Vocabulary,
        *,
        request: GenerationRequest,
        chooser: Chooser,
        is_cancelled: Callable[[], bool],
        check_usable: Callable[[], object],
    ) -> None:
        self._context = context
        self._vocabulary = vocabulary
        self._request = request
        self._chooser = chooser
        self._is_cancelled = is_cancelled
        self._check_usable = check_usable
        self._stop_ids = vocabulary.stop_ids | request.stop_ids
        self._n_reused = 0
        self._n_output = 0
        self._prompt_s = 0.0
        self._decode_s = 0.0

    def events(self) -> Generator[GenerationEvent, None, None]:
        """Yield the events; time that the consumer takes between them is not counted."""
        try:
            if not (yield from self._read_prompt()):
                yield self._done(FinishReason.CANCELLED)
                return
            reason = yield from self._write_answer()
            yield self._done(reason)
        finally:
            self._chooser.close()

    def _read_prompt(self) -> Generator[GenerationEvent, None, bool]:
        prompt = self._request.prompt
        self._check_usable()
        self._n_reused = n_read = self._context.keep_prefix_of(prompt)
        yield PromptRead(n_read, len(prompt))
        while n_read < len(prompt):
            started = time.perf_counter()
            part = prompt[n_read : n_read + PROMPT_SLICE]
            is_decoded = self._decode(part, with_logits=n_read + len(part) == len(prompt))
            self._prompt_s += time.perf_counter() - started
            if not is_decoded:
                return False
            n_read += len(part)
            yield PromptRead(n_read, len(prompt))
        return True

    def _write_answer(self) -> Generator[GenerationEvent, None, FinishReason]:
        token = -1
        while self._n_output < self._request.max_tokens:
            started = time.perf_counter()
            if self._n_output and not self._decode((token,), with_logits=True):
                return FinishReason.CANCELLED
            token, probabilities = self._choose()
            self._decode_s += time.perf_counter() - started
            if token in self._stop_ids:
                return FinishReason.STOP
            self._n_output += 1
            yield TokensGenerated((token,), self._vocabulary.piece(token), probabilities)
        return FinishReason.LENGTH

    def _decode(self, tokens: Sequence[int], *, with_logits: bool) -> bool:
        self._check_usable()
        return not self._is_cancelled() and self._context.decode(tokens, with_logits=with_logits)

    def _choose(self) -> tuple[int, tuple[float, ...]]:
        logits = self._context.logits()
        if not self._request.probabilities:
            return self._chooser.choose(logits), ()
        unchanged = logits.copy()
        token = self._chooser.choose(logits)
        return token, (probability(unchanged, token),)

    def _done(self, reason: FinishReason) -> GenerationDone:
        n_prompt = len(self._request.prompt)
        return GenerationDone(
            reason, TokenUsage(n_prompt, self._n_reused, self._n_output, self._prompt_s, self._decode_s)
        )
