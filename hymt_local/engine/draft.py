"""Drafts: a guess at an answer, verified in slices, aligned again after each disagreement.

Verifying a slice costs less than writing its tokens one by one, because kernels compute 16 rows for little more than a
few. What comes out is what would have come without a draft, up to near-ties of the arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hymt_local.engine.counters import DraftStats
from hymt_local.engine.options import DRAFT_SLICE, KERNEL_ROWS, LONG_DRAFT_SLICE

ANCHOR = 2
"""Tokens that have to agree before the draft is followed again after a disagreement."""
LONGEST_ANCHOR = 16
PROVEN = 8
"""Guessed tokens that have to be right before an alignment is believed. One that fails earlier was chance, as happens
in texts that repeat themselves, and the next anchor must be twice as long."""
REACH = 48
"""Tokens around the expected place in which the draft is searched for an anchor."""
TRIALS = 4
"""Slices before their worth is judged."""
RETRY_EVERY = 32
"""When drafts do not pay, one request in so many tries them again."""
_WEIGHT = 0.2


class Draft:
    """Follows one answer through its draft.

    Args:
        tokens: The guess.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = list(tokens)
        self._at: int | None = 0
        """Place in the draft of the answer's next token; None while they disagree."""
        self._expected = 0
        """Where the answer's next token probably is in the draft, by the last alignment that was proven."""
        self._n_right = PROVEN
        """Since the alignment; the beginning is one that needs no proof."""
        self._anchor = ANCHOR
        self._size = LONG_DRAFT_SLICE  # most edits leave the beginning as it was

    def guess(self, n_most: int, *, n_beside: int = 1) -> tuple[int, ...]:
        """Return the tokens that probably come next, at most `n_most`; none while answer and draft disagree.

        Args:
            n_most: Bound.
            n_beside: Rows that the call has anyway; with them, a few rows beyond what kernels compute at a time are
                left to the next call.
        """
        if self._at is None:
            return ()
        size = min(self._size, n_most)
        n_over = (n_beside + size) % KERNEL_ROWS
        is_last = len(self._tokens) - self._at <= size
        if n_over <= KERNEL_ROWS // 2 and size > n_over and not is_last:
            size -= n_over
        return tuple(self._tokens[self._at : self._at + size])

    def follow(self, answer: Sequence[int], *, n_new: int, n_right: int, n_guessed: int) -> None:
        """Take note of new tokens.

        Args:
            answer: All tokens of it so far.
            n_new: How many of them are new.
            n_right: How many of these were guessed.
            n_guessed: How many tokens had been guessed.
        """
        self._expected += n_new
        if self._at is not None:
            self._at += n_right
            self._n_right += n_right
            self._size = LONG_DRAFT_SLICE if n_guessed and n_right == n_guessed else DRAFT_SLICE
            if n_new > n_right and self._tokens[self._at : self._at + 1] == list(answer[-1:]):
                self._at += 1  # the token after a slice that was right throughout
                self._n_right += 1
            elif n_new > n_right:
                self._lose(self._at)
        if self._at is None:
            self._at = self._aligned(answer)
            self._n_right = 0 if self._at is not None else self._n_right
        elif self._n_right >= PROVEN:
            self._expected = self._at

    def _lose(self, at: int) -> None:
        """Take note of a disagreement: the answer's last token is not the draft's at this place."""
        if self._n_right >= PROVEN:
            self._expected, self._anchor = at + 1, ANCHOR
        else:
            self._anchor = min(2 * self._anchor, LONGEST_ANCHOR)
        self._at = None

    def _aligned(self, answer: Sequence[int]) -> int | None:
        """Return the place after the nearest run of the draft that equals the answer's last tokens."""
        length = self._anchor
        anchor = list(answer[-length:])
        if len(anchor) < length:
            return None
        first = max(length, self._expected - REACH)
        last = min(len(self._tokens) - 1, self._expected + REACH)
        places = [at for at in range(first, last + 1) if self._tokens[at - length : at] == anchor]
        return min(places, key=lambda at: abs(at - self._expected), default=None)


@dataclass(slots=True)
class DraftMeter:
    """Decides whether drafts pay, by what they cost and bring on this machine with these texts."""

    n_slices: int = 0
    n_guessed: int = 0
    n_accepted: int = 0
    _row_s: float = 0.0
    _slice_s: float = 0.0
    _tokens_per_slice: float = 0.0
    _n_asked: int = 0

    @property
    def pays(self) -> bool:
        """False when slices have brought fewer tokens than their time is worth."""
        if self.n_slices < TRIALS or not self._row_s or not self._slice_s:
            return True
        return self._tokens_per_slice * self._row_s >= self._slice_s

    @property
    def stats(self) -> DraftStats:
        """What was counted."""
        return DraftStats(self.n_slices, self.n_guessed, self.n_accepted, is_given_up=not self.pays)

    def admits(self) -> bool:
        """Return whether the next request may use its draft; now and then also when they do not pay."""
        self._n_asked += 1
        return self.pays or self._n_asked % RETRY_EVERY == 0

    def note_row(self, step_s: float) -> None:
        """Note the time of a step of one row alone."""
        self._row_s = _smoothed(self._row_s, step_s)

    def note_slice(self, step_s: float | None, *, n_guessed: int, n_accepted: int) -> None:
        """Note a slice, with the time of its step when it was alone in it."""
        self.n_slices += 1
        self.n_guessed += n_guessed
        self.n_accepted += n_accepted
        self._tokens_per_slice = _smoothed(self._tokens_per_slice, n_accepted + 1)
        if step_s is not None:
            self._slice_s = _smoothed(self._slice_s, step_s)


def _smoothed(old: float, new: float) -> float:
    return old + _WEIGHT * (new - old) if old else new
