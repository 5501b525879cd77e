"""What each sequence of a context holds: tokens, and how many cells of the shared KV cache they take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hymt_local.engine.sampling import Logits


@dataclass(frozen=True, slots=True)
class Run:
    """Successive tokens of one sequence, to be computed in one decode call."""

    slot: int
    start: int
    """Position of the first; the sequence holds exactly the tokens before it."""
    tokens: tuple[int, ...]
    n_logits: int
    """Of the last so many tokens the logits are wanted."""


class BatchDecoder(Protocol):
    """A context with several sequences in one KV cache. Misuse is refused with an error and changes nothing."""

    @property
    def n_slots(self) -> int:
        """Sequences."""

    @property
    def n_cells(self) -> int:
        """Tokens that all sequences hold together; a token shared by copying counts once."""

    @property
    def n_rows(self) -> int:
        """Most tokens of one call."""

    @property
    def n_outputs(self) -> int:
        """Most tokens of one call whose logits are computed."""

    def decode(self, runs: Sequence[Run]) -> bool:
        """Compute all runs; return False when it was interrupted: then ask `n_held` what was computed.

        Raises:
            DecodeError: nothing is known about the sequences of the runs any more; truncate them.
        """

    def n_held(self, slot: int) -> int:
        """Return how many tokens a sequence holds."""

    def logits(self, row: int) -> Logits:
        """Return the logits of a token of the last call, counted over all runs: shape [n_vocab], soon overwritten."""

    def truncate(self, slot: int, n_kept: int) -> bool:
        """Drop all tokens but the first ones; return False when that failed and nothing is left."""

    def copy(self, source: int, target: int, n_tokens: int) -> None:
        """Let an empty sequence share the first tokens of another."""


class Slots:
    """The book-keeping of a decoder's sequences.

    Args:
        decoder: Empty.
    """

    def __init__(self, decoder: BatchDecoder) -> None:
        self._decoder = decoder
        self._tokens: list[list[int]] = [[] for _ in range(decoder.n_slots)]
        self._cells: list[list[int]] = [[] for _ in range(decoder.n_slots)]
        self._users: Counter[int] = Counter()
        self._next_cell = 0

    @property
    def n_free(self) -> int:
        """Cells that nobody uses."""
        return self._decoder.n_cells - len(self._users)

    def tokens(self, slot: int) -> list[int]:
        """Return the tokens that a sequence holds; not to be changed."""
        return self._tokens[slot]

    def n_held(self, slot: int) -> int:
        """Return how many tokens a sequence holds."""
        return len(self._tokens[slot])

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        """Note that tokens were decoded."""
        cells = range(self._next_cell, self._next_cell + len(tokens))
        self._next_cell += len(tokens)
        self._tokens[slot].extend(tokens)
        self._cells[slot].extend(cells)
        self._users.update(cells)

    def truncate(self, slot: int, n_kept: int) -> None:
        """Drop all tokens of a sequence but the first `n_kept`."""
        if n_kept >= len(self._tokens[slot]):
            return
        if not self._decoder.truncate(slot, n_kept):
            n_kept = 0
        for cell in self._cells[slot][n_kept:]:
            self._users[cell] -= 1
            if not self._users[cell]:
                del self._users[cell]
        del self._tokens[slot][n_kept:], self._cells[slot][n_kept:]

    def copy(self, source: int, target: int, n_tokens: int) -> None:
        """Let `target` hold the first tokens of `source` and nothing else."""
        self.truncate(target, 0)
        if n_tokens:
            self._decoder.copy(source, target, n_tokens)
            self._tokens[target] = self._tokens[source][:n_tokens]
            self._cells[target] = self._cells[source][:n_tokens]
            self._users.update(self._cells[target])

    def clear(self, slot: int) -> None:
        """Drop all tokens of a sequence, even those of which nothing is known."""
        self._decoder.truncate(slot, 0)
        self.truncate(slot, 0)


def n_common(held: list[int], wanted: list[int]) -> int:
    """Return the length of the longest common prefix; compares slices, not element by element."""
    low, high = 0, min(len(held), len(wanted))
    if held[:high] == wanted[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if held[low:middle] == wanted[low:middle]:
            low = middle
        else:
            high = middle
    return low
