"""Choosing the next token from the logits of one position."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hymt_local.errors import ConfigError, DecodeError
from hymt_local.events import SamplingParams

PENALTY_WINDOW = 64
"""Generated tokens that the repetition penalty looks back on: llama.cpp's default."""
MAX_CANDIDATES = 4096
"""Stands for "no top-k" before top-p, which would sort the whole vocabulary otherwise (8 ms instead of 0.2)."""

Logits = NDArray[np.float32]


class Chooser(Protocol):
    """Chooses tokens one after the other; knows what it has chosen."""

    def choose(self, logits: Logits, *, row: int = -1) -> int:
        """Return the id of the next token.

        Args:
            logits: Shape [n_vocab]; may be changed.
            row: Their place in the context's last call, -1 for the last output.

        Raises:
            DecodeError: a logit is NaN.
        """

    def accept(self, tokens: Sequence[int]) -> None:
        """Take tokens as chosen that were chosen elsewhere."""

    def close(self) -> None:
        """Free what belongs to C; closing twice is fine."""


def check_sampling(sampling: SamplingParams) -> None:
    """Raise ConfigError for a value outside its range."""
    ranges = {
        "temperature": math.isfinite(sampling.temperature) and sampling.temperature >= 0,
        "top_k": sampling.top_k >= 0,
        "top_p": 0 < sampling.top_p <= 1,
        "repetition_penalty": math.isfinite(sampling.repetition_penalty) and sampling.repetition_penalty > 0,
    }
    for name, is_valid in ranges.items():
        if not is_valid:
            raise ConfigError(f"{name} = {getattr(sampling, name)} is out of range", hint="see `hymt config schema`")


class Greedy:
    """The likeliest token after the repetition penalty, which counts the last generated tokens only."""

    def __init__(self, repetition_penalty: float) -> None:
        self._penalty = np.float32(repetition_penalty)
        self._recent: deque[int] = deque(maxlen=PENALTY_WINDOW)

    def choose(self, logits: Logits, *, row: int = -1) -> int:
        """Return the id of the next token."""
        if self._recent and self._penalty != 1:
            penalized = list(set(self._recent))
            values = logits[penalized]
            logits[penalized] = np.where(values > 0, values / self._penalty, values * self._penalty)
        token = checked_argmax(logits)
        self._recent.append(token)
        return token

    def accept(self, tokens: Sequence[int]) -> None:
        """Let the penalty count tokens that were chosen elsewhere."""
        self._recent.extend(tokens)

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


class Sampled:
    """llama.cpp's sampler chain: top-k, penalties on the generated tokens, top-k, top-p, temperature, draw.

    The first top-k keeps as many tokens more than the second as the penalty can push out, so that the result is that of
    penalizing the whole vocabulary, at a quarter of its price.

    Args:
        library: The module `llama_cpp.llama_cpp`.
        context: The llama context whose outputs are sampled.
        sampling: Temperature above 0.
        n_vocab: Size of the vocabulary.
    """

    def __init__(self, library: Any, context: Any, *, sampling: SamplingParams, n_vocab: int) -> None:
        self._library = library
        self._context = context
        self._chain = library.llama_sampler_chain_init(library.llama_sampler_chain_default_params())
        for sampler in self._samplers(sampling, n_vocab):
            if not sampler:  # a chain with a NULL in it crashes
                self.close()
                raise DecodeError("llama.cpp could not make a sampler")
            library.llama_sampler_chain_add(self._chain, sampler)

    def choose(self, logits: Logits, *, row: int = -1) -> int:
        """Return the id of the next token."""
        checked_argmax(logits)
        return int(self._library.llama_sampler_sample(self._chain, self._context, row))

    def accept(self, tokens: Sequence[int]) -> None:
        """Let the penalty count tokens that were chosen elsewhere."""
        for token in tokens[-PENALTY_WINDOW:]:
            self._library.llama_sampler_accept(self._chain, token)

    def close(self) -> None:
        """Free the chain."""
        if self._chain is not None:
            self._library.llama_sampler_free(self._chain)
            self._chain = None

    def _samplers(self, sampling: SamplingParams, n_vocab: int) -> list[Any]:
        library, top_k = self._library, sampling.top_k or (MAX_CANDIDATES if sampling.top_p < 1 else n_vocab)
        samplers = []
        if sampling.repetition_penalty != 1:
            if sampling.repetition_penalty > 1:  # below 1 any token may rise
                samplers.append(library.llama_sampler_init_top_k(top_k + PENALTY_WINDOW))
            samplers.append(
                library.llama_sampler_init_penalties(n_vocab, PENALTY_WINDOW, sampling.repetition_penalty, 0.0, 0.0)
            )
        if top_k < n_vocab:
            samplers.append(library.llama_sampler_init_top_k(top_k))
        if sampling.top_p < 1:
            samplers.append(library.llama_sampler_init_top_p(sampling.top_p, 1))
        samplers.append(library.llama_sampler_init_temp(sampling.temperature))
        samplers.append(library.llama_sampler_init_dist(sampling.seed % 0xFFFFFFFF))  # the last value means "random"
        return samplers


def checked_argmax(logits: Logits) -> int:
    """Return the index of the largest logit, or raise DecodeError when one is NaN."""
    index = int(logits.argmax())  # numpy returns the first NaN when there is one
    if math.isnan(logits[index]):
        raise DecodeError(
            "the model computed NaN instead of probabilities",
            hint="its file is damaged (`hymt models verify`), or this quantization does not work on this machine",
        )
    return index


def probability(logits: Logits, token: int) -> float:
    """Return the softmax probability of one token."""
    return float(1 / np.exp(logits - logits[token]).sum(dtype=np.float64))
