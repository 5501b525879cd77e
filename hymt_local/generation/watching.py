"""One generation as it arrives, and what makes it not worth waiting for the rest."""

from __future__ import annotations

from dataclasses import dataclass, field

from hymt_local.checks import repeats_at_end
from hymt_local.engine.base import FinishReason, GenerationDone, TokensGenerated
from hymt_local.engine.utf8 import Utf8Stream
from hymt_local.events import TokenUsage
from hymt_local.generation.asking import Prepared

_LOOP_CHECK_TOKENS = 16


@dataclass(slots=True)
class Record:
    """What has come of one generation so far."""

    prepared: Prepared
    watches_loops: bool
    least_probability: float
    """A token below it shows that the source lies outside a closed domain; what follows is not worth waiting for."""
    most_characters: int | None = None
    """A longer answer is wrong, whatever follows."""
    done: GenerationDone | None = None
    lowest_probability: float = 1.0
    is_looping: bool = False
    _ids: list[int] = field(default_factory=list)
    _parts: list[str] = field(default_factory=list)
    _stream: Utf8Stream = field(default_factory=Utf8Stream)
    _n_checked: int = 0
    _n_characters: int = 0

    def add(self, event: TokensGenerated) -> str:
        """Take new tokens, return the text they complete."""
        self._ids += event.ids
        self.lowest_probability = min(self.lowest_probability, *event.probabilities, 1.0)
        if self.watches_loops and len(self._ids) - self._n_checked >= _LOOP_CHECK_TOKENS:
            self._n_checked = len(self._ids)
            self.is_looping = repeats_at_end(self._ids, allowed=self.prepared.prompt)
        return self._keep(self._stream.feed(event.data))

    def finish(self) -> str:
        """Return what a broken last character leaves."""
        return self._keep(self._stream.finish())

    @property
    def is_hopeless(self) -> bool:
        """Whether it is refused already, whatever follows."""
        return self.is_looping or self.is_unsure or self.is_overlong

    @property
    def is_overlong(self) -> bool:
        """Whether it is longer than any translation of its source."""
        return self.most_characters is not None and self._n_characters > self.most_characters

    @property
    def is_unsure(self) -> bool:
        """Whether a closed-domain model has shown that it does not know the source."""
        return self.lowest_probability < self.least_probability

    @property
    def finish_reason(self) -> str:
        """Why it ended: as the engine says, or what it was ended for."""
        for reason, is_it in (("unsure", self.is_unsure), ("loop", self.is_looping), ("overlong", self.is_overlong)):
            if is_it:
                return reason
        return (self.done.reason if self.done else FinishReason.CANCELLED).value

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self._parts)

    @property
    def n_invalid(self) -> int:
        """Sequences that are not UTF-8."""
        return self._stream.n_invalid

    @property
    def usage(self) -> TokenUsage:
        """The engine's figures, or what can be counted of a generation that was ended."""
        if self.done:
            return self.done.usage
        return TokenUsage(prompt_tokens=len(self.prepared.prompt), output_tokens=len(self._ids))

    def _keep(self, text: str) -> str:
        self._parts.append(text)
        self._n_characters += len(text)
        return text
