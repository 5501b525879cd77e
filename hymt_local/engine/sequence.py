"""One generation in the batch: what it has to compute next, and what comes of the logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hymt_local.engine.base import (
    FinishReason,
    GenerationDone,
    GenerationEvent,
    GenerationRequest,
    PromptRead,
    TokensGenerated,
)
from hymt_local.engine.draft import Draft
from hymt_local.engine.sampling import Chooser, Logits, probability
from hymt_local.events import Priority, TokenUsage


class Generation:
    """The state of one generation between two steps.

    Args:
        request: Already checked.
        ticket: Its number; lower is older.
        slot: The sequence of the context that is its own.
        chooser: Chooses the tokens; closed by `close`.
        stop_ids: The model's and the request's.
        draft: What the answer probably is.
    """

    def __init__(
        self,
        request: GenerationRequest,
        *,
        ticket: int,
        slot: int,
        chooser: Chooser,
        stop_ids: frozenset[int],
        draft: Draft | None = None,
    ) -> None:
        self.request = request
        self.ticket = ticket
        self.slot = slot
        self.draft = draft
        self.prompt = list(request.prompt)
        self.tokens = [*request.prompt, *request.answered]
        """Prompt and answer; what the slot holds is the beginning of it."""
        self.is_started = False
        """False until the slot holds what it can share with others, and again after it had to give up its cells."""
        self._chooser = chooser
        self._stop_ids = stop_ids
        self._n_prompt_read = 0
        self._n_reused: int | None = None
        self._prompt_s = 0.0
        self._decode_s = 0.0

    @property
    def priority(self) -> Priority:
        """Its class."""
        return self.request.priority

    @property
    def order(self) -> tuple[int, int]:
        """Sorts by priority, then age."""
        return self.request.priority, self.ticket

    @property
    def n_output(self) -> int:
        """Tokens of the answer so far."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def n_left(self) -> int:
        """Tokens that the answer may still have."""
        return self.request.max_tokens - self.n_output

    def note_reused(self, n_tokens: int) -> Iterator[GenerationEvent]:
        """Take note of tokens found computed when it starts; only the first start is progress."""
        self.is_started = True
        if self._n_reused is None:
            self._n_reused = self._n_prompt_read = min(n_tokens, len(self.request.prompt))
            yield PromptRead(self._n_reused, len(self.request.prompt))

    def note_held(self, n_held: int) -> Iterator[GenerationEvent]:
        """Take note of how many of its tokens are computed."""
        n_read = min(n_held, len(self.request.prompt))
        if n_read > self._n_prompt_read:
            self._n_prompt_read = n_read
            yield PromptRead(n_read, len(self.request.prompt))

    def note_time(self, seconds: float, *, is_answer: bool) -> None:
        """Take its share of the time of a step, in which tokens of its answer or of its prompt were computed."""
        if is_answer:
            self._decode_s += seconds
        else:
            self._prompt_s += seconds

    def choose(
        self,
        rows: Sequence[int],
        *,
        logits: Callable[[int], Logits],
        piece: Callable[[int], bytes],
        guess: Sequence[int],
    ) -> Iterator[GenerationEvent]:
        """Choose tokens as long as they agree with the guess that was computed with them; yield what comes of it.

        Args:
            rows: Places of the logits: after the last token, then after each token of the guess.
            logits: Gives the logits of a row.
            piece: Gives the bytes of a token.
            guess: One token less than rows.

        Raises:
            DecodeError: a logit is NaN.
        """
        reason = None if self.n_left > 0 else FinishReason.LENGTH
        ids: list[int] = []
        chances: list[float] = []
        for row, guessed in zip(rows, (*guess, None), strict=True):
            if reason is not None:
                break
            token, chance = self._choose_one(logits(row), row)
            if token in self._stop_ids:
                reason = FinishReason.STOP
                break
            ids.append(token)
            chances.append(chance)
            self.tokens.append(token)
            reason = None if self.n_left > 0 else FinishReason.LENGTH
            if token != guessed:
                break
        if ids:
            data = b"".join(map(piece, ids))
            yield TokensGenerated(tuple(ids), data, tuple(chances) if self.request.probabilities else ())
        if reason is not None:
            yield self.done(reason)

    def done(self, reason: FinishReason) -> GenerationDone:
        """Return the last event."""
        usage = TokenUsage(len(self.request.prompt), self._n_reused or 0, self.n_output, self._prompt_s, self._decode_s)
        return GenerationDone(reason, usage)

    def close(self) -> None:
        """Free what belongs to C; closing twice is fine."""
        self._chooser.close()

    def _choose_one(self, logits: Logits, row: int) -> tuple[int, float]:
        if not self.request.probabilities:
            return self._chooser.choose(logits, row=row), 0.0
        unchanged = logits.copy()
        token = self._chooser.choose(logits, row=row)
        return token, probability(unchanged, token)
