"""A backend in a process of its own: crashes, kills and hangs of llama.cpp become errors, and the work goes on.

When the process ends, it is started again. Each generation that was in it is tried once more, alone, to tell whose
fault it was; it goes on where its answer stopped. The others wait and lose nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from hymt_local.engine.base import (
    Backend,
    BackendOpener,
    FinishReason,
    GenerationDone,
    GenerationEvent,
    GenerationRequest,
    ModelInfo,
    Outcome,
    PromptRead,
    TokensGenerated,
)
from hymt_local.engine.context import check_fits, has_slot
from hymt_local.engine.counters import EngineCounters
from hymt_local.engine.fit import GpuFacts
from hymt_local.engine.pipe import AskCounters, AskGpus, CanOpen, Drop, Happened, Load, Open, Order, Step, Tokenize
from hymt_local.engine.process import EngineProcess, Patience, ProcessGoneError
from hymt_local.engine.utf8 import encode_text
from hymt_local.errors import EngineError, EngineLoadError, EngineMemoryError, EngineStoppedError, HymtError
from hymt_local.events import Priority, TokenUsage

TRIAL_TOKENS = 8
"""A generation that comes so far beyond the place of a crash, alone, was not its reason."""
MOST_CRASHES = 3
"""Of the process that one generation may have been in; already the second is its fault if it was alone then."""
MOST_LOADS = 3
"""Until a process that crashes while it loads is given up; the next use tries again."""

_logger = logging.getLogger(__name__)


class Orders(Protocol):
    """What to load, and what to load instead when memory is short."""

    @property
    def order(self) -> Order:
        """What to load now."""

    def step_down(self, error: EngineLoadError) -> bool:
        """Choose something smaller after this error; False when there is nothing, or nothing smaller would help."""


class FixedOrder(Orders):
    """One order and no other.

    Args:
        order: It.
    """

    def __init__(self, order: Order) -> None:
        self._order = order

    @property
    def order(self) -> Order:
        """It."""
        return self._order

    def step_down(self, error: EngineLoadError) -> bool:
        """Never."""
        return False


Planner = Callable[[Callable[[], tuple[GpuFacts, ...]]], Orders]
"""Decides what to load; it is given a function that asks the process for the GPUs."""


def open_hosted(planner: Planner, *, name: str, patience: Patience | None = None) -> BackendOpener:
    """Return the opener of a backend in a process of its own.

    Args:
        planner: Called when the process has been started.
        name: Of the model, for errors and the log.
        patience: How long to wait for the process.
    """
    return lambda on_progress: HostedBackend(planner, name=name, on_progress=on_progress, patience=patience)


@dataclass(slots=True)
class _Guest:
    """One open generation."""

    request: GenerationRequest
    ticket: int
    inner: int | None = None
    """Its ticket in the process; None while it is not in it."""
    n_read: int = -1
    n_crashes: int = 0
    trial_left: int = 0
    """Tokens that it has to bring alone before it is trusted again."""
    n_skipped: int = 0
    """Tokens that come a second time and are dropped."""

    @property
    def order(self) -> tuple[int, int]:
        return self.request.priority, self.ticket


class HostedBackend(Backend):
    """See the module. All methods but `interrupt` and `tokenize` belong to the thread that made it.

    Args:
        planner: Decides what to load.
        name: Of the model.
        on_progress: Called with 0.0 to 1.0 while loading, also after a restart.
        patience: How long to wait.

    Raises:
        HymtError: of `planner`, or of loading.
    """

    def __init__(
        self,
        planner: Planner,
        *,
        name: str,
        on_progress: Callable[[float], bool],
        patience: Patience | None = None,
    ) -> None:
        self._name = name
        self._patience = patience or Patience()
        self._on_progress = on_progress
        self._owner = threading.get_ident()
        self._hurry = threading.Event()
        self._guests: dict[int, _Guest] = {}
        self._n_opened = 0
        self._n_crashes = 0
        """Of the process in a row, without an answer that came to its end."""
        self._outcomes: list[Outcome] = []
        self._process: EngineProcess | None = None
        try:
            self._orders = planner(self._query_gpus)
            self._info = self._load()
        except BaseException:
            self.close()
            raise

    @property
    def info(self) -> ModelInfo:
        """Facts about the loaded model; after a crash for want of memory the context may be smaller."""
        return self._info

    @property
    def counters(self) -> EngineCounters:
        """What the process did since it loaded the model; one that was started again begins at nothing."""
        if self._process is None:
            return EngineCounters()
        try:
            counters: EngineCounters = self._process.call(AskCounters())
        except ProcessGoneError as gone:
            self._note_end(gone)
            return EngineCounters()
        return counters

    @property
    def tokenizes_anywhere(self) -> bool:
        """Yes, beside a step; but only the owner's thread starts the process again."""
        return True

    @property
    def pid(self) -> int | None:
        """Number of the process; None between two of them."""
        return self._process.pid if self._process else None

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Return the ids of plain text. From any thread.

        Raises:
            EngineStoppedError: the process has ended; on the owner's thread only when it does so over and over.
        """
        command = Tokenize(encode_text(text).decode())
        is_owner = threading.get_ident() == self._owner
        for is_last in (False, True):
            process = self._ready() if is_owner else self._process
            if process is None:
                raise EngineStoppedError(f"the engine of {self._name} is being started again", hint="try again")
            try:
                ids: tuple[int, ...] = process.call(command)
            except ProcessGoneError as gone:
                if is_owner:
                    self._note_end(gone)
                if is_last or not is_owner:
                    raise EngineStoppedError(gone.error.message, hint=gone.error.hint) from gone
            else:
                return ids
        raise AssertionError("unreachable")

    def can_open(self, request: GenerationRequest) -> bool:
        """Return whether there is room; while generations are tried alone, only their number counts."""
        if not has_slot(request.priority, n_open=len(self._guests), slots=self._info.slots):
            return False
        if not self._guests or self._process is None or self._suspects():
            return True
        try:
            return bool(self._process.call(CanOpen(request)))
        except ProcessGoneError as gone:
            self._note_end(gone)
            return True

    def open(self, request: GenerationRequest) -> int:
        """Let a generation join at the next step."""
        check_fits(request, context_length=self._info.context_length)
        if not has_slot(request.priority, n_open=len(self._guests), slots=self._info.slots):
            raise EngineError(f"all {self._info.slots} slots are taken")
        guest = _Guest(request, ticket=self._n_opened)
        self._n_opened += 1
        self._guests[guest.ticket] = guest
        is_first = len(self._guests) == 1
        if not self._suspects() and (is_first or self._process is not None):  # else it comes in with the others
            try:
                self._admit(guest)
            except HymtError:
                self._guests.pop(guest.ticket, None)
                raise
        return guest.ticket

    def step(self) -> list[Outcome]:
        """Take the generations in the process one step further."""
        if not self._outcomes:
            self._ready()
            self._arrange()
        process = self._process
        if process is not None and not self._outcomes:
            try:
                self._outcomes += self._outer(process.call(Step()))
            except ProcessGoneError as gone:
                self._note_end(gone)
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def drop(self, ticket: int) -> GenerationDone:
        """End an open generation."""
        guest = self._guests.pop(ticket, None)
        self._outcomes = [outcome for outcome in self._outcomes if outcome[0] != ticket]
        if guest is None:
            return GenerationDone(FinishReason.CANCELLED, TokenUsage())
        n_output = len(guest.request.answered)
        done = GenerationDone(FinishReason.CANCELLED, TokenUsage(len(guest.request.prompt), output_tokens=n_output))
        if guest.inner is not None and self._process is not None:
            try:
                done = self._process.call(Drop(guest.inner))
            except ProcessGoneError as gone:
                self._note_end(gone)
        return done

    def interrupt(self) -> None:
        """Cut the step under way short, or the pause before a restart. From any thread."""
        self._hurry.set()
        process = self._process
        if process is not None:
            process.interrupt()

    def close(self) -> None:
        """Free the model and end the process; closing twice is fine."""
        process, self._process = self._process, None
        self._guests.clear()
        if process is not None:
            process.close()

    # Who is in the process

    def _suspects(self) -> list[_Guest]:
        return [guest for guest in self._guests.values() if guest.trial_left]

    def _arrange(self) -> None:
        """Bring the generations that may run into the process, and the others out of it."""
        running = self._allowed()
        for guest in list(self._guests.values()):
            if guest.inner is not None and guest not in running:
                self._park(guest)
        for guest in sorted(running, key=lambda guest: (-guest.request.priority, guest.ticket)):
            if self._process is None:
                return  # it ended again: everybody comes in anew, in this order
            if guest.inner is None:  # interactive work last: the slot that is kept for it is nobody else's
                try:
                    self._admit(guest)
                except HymtError as error:
                    self._end_one(guest, error)

    def _allowed(self) -> list[_Guest]:
        ordered = sorted(self._guests.values(), key=lambda guest: guest.order)
        suspects = self._suspects()
        if not suspects:
            return ordered
        if not ordered[0].trial_left and ordered[0].request.priority is Priority.INTERACTIVE:
            return ordered[:1]
        return [min(suspects, key=lambda guest: guest.order)]

    def _admit(self, guest: _Guest) -> None:
        process = self._ready()
        request = guest.request
        if self._info.is_deterministic and request.answered:  # read at once, it might not be the same to the last bit
            guest.n_skipped = len(request.answered)
            request = replace(request, answered=())
        try:
            guest.inner = process.call(Open(request))
        except ProcessGoneError as gone:
            guest.inner = -1  # it was in it, if only for a moment
            self._note_end(gone)

    def _park(self, guest: _Guest) -> None:
        inner, guest.inner = guest.inner, None
        if self._process is not None and inner is not None:
            try:
                self._process.call(Drop(inner))
            except ProcessGoneError as gone:
                self._note_end(gone)

    # What comes out of it

    def _outer(self, happenings: list[Happened]) -> Iterator[Outcome]:
        by_inner = {guest.inner: guest for guest in self._guests.values()}
        for happening in happenings:
            inner, event = happening.outcome()
            guest = by_inner.get(inner)
            if guest is None:
                continue
            if isinstance(event, GenerationDone | Exception):
                del self._guests[guest.ticket]
                self._n_crashes = 0
                yield guest.ticket, event
            elif (news := _news(guest, event)) is not None:
                yield guest.ticket, news

    # Its end and its return

    def _note_end(self, gone: ProcessGoneError) -> None:
        """Take note that the process is gone, and settle what that means for those who were in it."""
        error = gone.error
        process, self._process = self._process, None
        if process is None:
            return
        process.close()
        self._n_crashes += 1
        inside = [guest for guest in self._guests.values() if guest.inner is not None]
        _logger.warning("%s; %d generations were under way", error.message, len(inside))
        if isinstance(error, EngineMemoryError):
            self._orders.step_down(error)
            error = EngineStoppedError(error.message, hint=error.hint)  # of one generation, not of the model
        for guest in inside:
            guest.inner = None
            if gone.was_killed:
                continue
            guest.n_crashes += 1
            is_proven = guest.trial_left and len(inside) == 1
            if is_proven or guest.n_crashes >= MOST_CRASHES:
                self._end_one(guest, error)
            guest.trial_left = TRIAL_TOKENS

    def _end_one(self, guest: _Guest, error: HymtError) -> None:
        if self._guests.pop(guest.ticket, None) is not None:
            self._outcomes.append((guest.ticket, error))

    def _ready(self) -> EngineProcess:
        """Return the process, started again if need be.

        Raises:
            HymtError: it does not load its model any more.
        """
        if self._process is None:
            self._pause()
            self._info = self._load()
        return self._started()

    def _pause(self) -> None:
        """Wait before a restart, the longer the more often it was in vain."""
        if self._n_crashes > 1:
            self._hurry.clear()
            pause_s = self._patience.restart_s * 2 ** min(self._n_crashes - 2, 10)
            self._hurry.wait(min(pause_s, self._patience.longest_restart_s))

    def _load(self) -> ModelInfo:
        """Load what is ordered, or what is smaller; a process that crashes over it is tried again."""
        gate = _Gate(self._on_progress)
        level = logging.getLogger("hymt_local").getEffectiveLevel()
        n_crashes = 0
        while True:
            try:
                info: ModelInfo = self._started().call(Load(self._orders.order, level), on_progress=gate)
            except ProcessGoneError as gone:
                self._give_process_up()
                n_crashes += 1
                if gate.is_shut:
                    raise EngineLoadError("loading was given up") from gone
                if not self._may_load_again(gone.error, n_crashes):
                    raise gone.error from gone
            except HymtError as error:
                if not isinstance(error, EngineLoadError) or not self._orders.step_down(error):
                    self._give_process_up()
                    raise
            else:
                return info

    def _may_load_again(self, error: EngineError, n_crashes: int) -> bool:
        if isinstance(error, EngineMemoryError):
            return self._orders.step_down(error)
        return n_crashes < MOST_LOADS

    def _started(self) -> EngineProcess:
        """Return the process, loaded or not."""
        if self._process is None:
            self._process = EngineProcess(self._name, patience=self._patience)
        return self._process

    def _give_process_up(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def _query_gpus(self) -> tuple[GpuFacts, ...]:
        """Ask the process; a driver that crashes means that there are none."""
        try:
            gpus: tuple[GpuFacts, ...] = self._started().call(AskGpus())
        except ProcessGoneError as gone:
            self._give_process_up()
            _logger.warning("no GPU is used, because asking for one failed: %s", gone.error.message)
            return ()
        return gpus


class _Gate:
    """A progress callback that stays shut once it said no."""

    def __init__(self, on_progress: Callable[[float], bool]) -> None:
        self.is_shut = False
        self._on_progress = on_progress

    def __call__(self, fraction: float) -> bool:
        self.is_shut = self.is_shut or not self._on_progress(fraction)
        return not self.is_shut


def _news(guest: _Guest, event: GenerationEvent) -> GenerationEvent | None:
    """Return what of an event is new to the consumer, and take note of it."""
    if isinstance(event, PromptRead):
        if event.done <= guest.n_read:
            return None
        guest.n_read = event.done
        return event
    if not isinstance(event, TokensGenerated):
        return event
    guest.trial_left = max(0, guest.trial_left - len(event.ids))
    if guest.n_skipped:  # one token an event: the engine is deterministic
        guest.n_skipped -= 1
        guest.trial_left = max(guest.trial_left, 1)
        return None
    guest.request = replace(guest.request, answered=guest.request.answered + event.ids)
    return event
