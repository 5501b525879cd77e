"""Many generations at once for a backend that knows only one at a time: each step takes each of them one event on."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Sequence

from hymt_local.engine.base import (
    Backend,
    FinishReason,
    GenerationDone,
    GenerationEvent,
    GenerationRequest,
    Outcome,
    TokensGenerated,
)
from hymt_local.engine.context import has_slot
from hymt_local.errors import DecodeError, EngineError
from hymt_local.events import TokenUsage


class OneByOneBackend(Backend):
    """Base of the backends without a model. Subclasses say what one generation yields.

    Args:
        slots: Generations at once, beside one more that is kept for interactive work when there are several.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._tickets = itertools.count()
        self._open: dict[int, tuple[GenerationRequest, Iterator[GenerationEvent | None]]] = {}
        self._n_output: dict[int, int] = {}

    @abstractmethod
    def play(self, request: GenerationRequest) -> Iterator[GenerationEvent | None]:
        """Yield the events of one generation, the last of them a `GenerationDone`; None when there is nothing yet."""

    def can_open(self, request: GenerationRequest) -> bool:
        """Return whether a slot is free."""
        return has_slot(request.priority, n_open=len(self._open), slots=self._slots)

    def open(self, request: GenerationRequest) -> int:
        """Start a generation."""
        if not self.can_open(request):
            raise EngineError(f"all {self._slots} slots are taken")
        events = _without(len(request.answered), self.play(request))
        ticket = next(self._tickets)
        self._open[ticket] = (request, iter(events))
        self._n_output[ticket] = len(request.answered)
        return ticket

    def step(self) -> Sequence[Outcome]:
        """Return the next event of each open generation."""
        outcomes = [(ticket, self._advance(ticket)) for ticket in list(self._open)]
        return [(ticket, event) for ticket, event in outcomes if event is not None]

    def drop(self, ticket: int) -> GenerationDone:
        """End an open generation."""
        request, _ = self._open.pop(ticket)
        usage = TokenUsage(prompt_tokens=len(request.prompt), output_tokens=self._n_output.pop(ticket))
        return GenerationDone(FinishReason.CANCELLED, usage)

    def interrupt(self) -> None:
        """Do nothing: a step is short."""

    def close(self) -> None:
        """Forget what is open."""
        self._open.clear()

    def _advance(self, ticket: int) -> GenerationEvent | Exception | None:
        try:
            event = next(self._open[ticket][1])
        except StopIteration:
            return self._end(ticket, DecodeError("the engine ended a generation without a reason"))
        except Exception as error:  # here it is still known whose it is; the engine thread gives it a type
            return self._end(ticket, error)
        if isinstance(event, TokensGenerated):
            self._n_output[ticket] += len(event.ids)
        return self._end(ticket, event) if isinstance(event, GenerationDone) else event

    def _end(self, ticket: int, last: GenerationDone | Exception) -> GenerationDone | Exception:
        del self._open[ticket], self._n_output[ticket]
        return last


def _without(n_answered: int, events: Iterator[GenerationEvent | None]) -> Iterator[GenerationEvent | None]:
    """Yield the events but for the first tokens, each of which stands for one byte."""
    for event in events:
        if n_answered and isinstance(event, TokensGenerated):
            n_dropped = min(n_answered, len(event.ids))
            n_answered -= n_dropped
            rest = TokensGenerated(event.ids[n_dropped:], event.data[n_dropped:], event.probabilities[n_dropped:])
            if rest.ids:
                yield rest
        else:
            yield event
