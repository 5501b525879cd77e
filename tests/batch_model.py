"""A model of llama.cpp's batch API that believes nothing: it checks every precondition and computes from what it holds.

The next token is a digest of all tokens before it, so a token that is lost, doubled, moved or taken from another
sequence changes everything that follows.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hymt_local.engine.sampling import Logits
from hymt_local.engine.slots import Run
from hymt_local.errors import DecodeError

N_VOCAB = 40
STOP = 0
POISON = 39
"""A call with this token in it fails."""
NAN = 38
"""After this token the logits are NaN."""


def next_token(tokens: Sequence[int]) -> int:
    """Return what the model says after these tokens; about one in twenty is the end."""
    digest = hashlib.blake2b(bytes(tokens), digest_size=2).digest()
    return STOP if digest[0] < 12 else 1 + digest[1] % (NAN - 1)


def answer_to(prompt: Sequence[int], max_tokens: int) -> list[int]:
    """Return what the model answers when nobody else is there."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < max_tokens and (token := next_token(tokens)) != STOP:
        tokens.append(token)
    return tokens[len(prompt) :]


@dataclass
class Journal:
    """What the decoder was asked."""

    calls: list[tuple[Run, ...]] = field(default_factory=list)
    n_interrupted: int = 0


class ModelDecoder:
    """The context.

    Args:
        slots: Sequences.
        cells: Tokens.
        rows: Most tokens of a call.
        outputs: Most tokens of a call with logits; one per slot when not given.
        interruptions: Decides call by call whether it is interrupted half-way.
        cost_s: Seconds that a call takes on `clock_s`.
    """

    def __init__(
        self,
        slots: int,
        *,
        cells: int,
        rows: int = 64,
        outputs: int | None = None,
        interruptions: random.Random | None = None,
        cost_s: Callable[[int], float] = float,
    ) -> None:
        self.n_slots = slots
        self.n_cells = cells
        self.n_rows = rows
        self.n_outputs = outputs or slots
        self.clock_s = 0.0
        self.journal = Journal()
        self._interruptions = interruptions
        self._cost_s = cost_s
        self._held: list[list[tuple[int, int]]] = [[] for _ in range(slots)]
        self._n_cells_made = 0
        self._logits: dict[int, list[int]] = {}

    def tokens(self, slot: int) -> list[int]:
        return [token for token, _ in self._held[slot]]

    def decode(self, runs: Sequence[Run]) -> bool:
        n_rows = sum(len(run.tokens) for run in runs)
        assert 0 < n_rows <= self.n_rows
        assert sum(run.n_logits for run in runs) <= self.n_outputs
        assert len({run.slot for run in runs}) == len(runs)
        self.journal.calls.append(tuple(runs))
        self.clock_s += self._cost_s(n_rows)
        self._logits = {}
        n_done = n_rows
        if self._interruptions is not None and self._interruptions.random() < 0.2:
            self.journal.n_interrupted += 1
            n_done = self._interruptions.randrange(n_rows)
        self._compute(runs, n_done)
        assert len({cell for held in self._held for _, cell in held}) <= self.n_cells
        if any(POISON in run.tokens for run in runs):
            raise DecodeError("poisoned")
        return n_done == n_rows

    def _compute(self, runs: Sequence[Run], n_done: int) -> None:
        row = 0
        for run in runs:
            assert run.start == len(self._held[run.slot])
            assert run.tokens
            for index, token in enumerate(run.tokens):
                if row < n_done:
                    assert 0 <= token < N_VOCAB
                    self._held[run.slot].append((token, self._n_cells_made))
                    self._n_cells_made += 1
                    if index >= len(run.tokens) - run.n_logits:
                        self._logits[row] = self.tokens(run.slot)
                row += 1
        if n_done < row:
            self._logits = {}

    def n_held(self, slot: int) -> int:
        return len(self._held[slot])

    def logits(self, row: int) -> Logits:
        tokens = self._logits[row]
        logits = np.zeros(N_VOCAB, dtype=np.float32)
        logits[next_token(tokens)] = np.nan if NAN in tokens else 1.0
        return logits

    def truncate(self, slot: int, n_kept: int) -> bool:
        del self._held[slot][n_kept:]
        return True

    def put(self, slot: int, tokens: Sequence[int]) -> bool:
        """Let an empty sequence hold these tokens, in cells of its own."""
        assert not self._held[slot]
        for token in tokens:
            self._held[slot].append((token, self._n_cells_made))
            self._n_cells_made += 1
        return True

    def copy(self, source: int, target: int, n_tokens: int) -> None:
        assert source != target
        assert not self._held[target]
        assert n_tokens <= len(self._held[source])
        self._held[target] = self._held[source][:n_tokens]


class ModelPrefixes:
    """Keeps beginnings for ever."""

    def __init__(self, decoder: ModelDecoder) -> None:
        self._decoder = decoder
        self._kept: set[tuple[int, ...]] = set()

    def restore(self, slot: int, tokens: list[int]) -> bool:
        return tuple(tokens) in self._kept and self._decoder.put(slot, tokens)

    def save(self, slot: int, tokens: list[int]) -> None:
        assert self._decoder.tokens(slot)[: len(tokens)] == tokens
        self._kept.add(tuple(tokens))

    def note_computed(self, n_tokens: int, seconds: float) -> None:
        assert n_tokens > 0
        assert seconds >= 0
