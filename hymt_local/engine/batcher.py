"""Continuous batching: many generations in one decode call, joined and left at every step.

A step gives each generation that writes its answer one row, and fills the call with slices of the prompts that are
being read, by priority and age. A prompt whose beginning another sequence holds shares it; while a beginning is just
being read by somebody, others wait for it. When cells run short, idle sequences are forgotten first, then the youngest
generation of the lowest priority gives up its cells and computes its tokens again later; no token of its answer is
lost.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hymt_local.engine.base import FinishReason, GenerationDone, GenerationEvent, GenerationRequest, Outcome
from hymt_local.engine.context import has_slot
from hymt_local.engine.draft import Draft, DraftMeter
from hymt_local.engine.fairness import TimeAccount
from hymt_local.engine.sampling import Chooser
from hymt_local.engine.sequence import Generation
from hymt_local.engine.slots import BatchDecoder, Run, Slots, n_common
from hymt_local.errors import DecodeError, EngineError, HymtError
from hymt_local.events import Priority, SamplingParams

MIXED_ROWS = 63
"""Rows of a call with several generations. From 64 on, llama.cpp computes attention by another kernel on the CPU: it
looks at the cells of all sequences, and rounds otherwise, so that an answer would depend on its company."""
LEAST_SHARED = 8
"""Tokens of a common beginning that are worth waiting for, or sharing."""
EXPECTED_EXTRA = 32
"""An answer is expected to have as many tokens as its source and so many more; few have twice that."""
MOST_IDLE = {True: 1, False: 2}
"""Finished sequences, interactive and other, that are remembered. More would not be found again, and slow each step."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What one generation computes in a step."""

    generation: Generation
    run: Run
    guess: tuple[int, ...] = ()


class PrefixKeeper(Protocol):
    """Keeps the states of fixed beginnings beyond the life of a sequence."""

    def restore(self, slot: int, tokens: list[int]) -> bool:
        """Let an empty sequence hold the state of exactly these tokens; False when it is not known."""

    def save(self, slot: int, tokens: list[int]) -> None:
        """Keep the state of these tokens, the first that a sequence holds."""

    def note_computed(self, n_tokens: int, seconds: float) -> None:
        """Note how long tokens of one prompt took."""


class Batcher:
    """Drives a decoder. Belongs to one thread.

    Args:
        decoder: Empty.
        slots: Generations at once; the decoder has one more when there are several.
        make_chooser: Makes what chooses the tokens of one generation.
        piece: Gives the bytes of a token.
        stop_ids: The model's.
        prefixes: Keeps fixed beginnings.
        is_exact: Compute each prompt from its first token in the same slices, whatever was computed before: kernels
            differ in the last digits with the number of rows.
        clock: Seconds, for sharing time out.
    """

    def __init__(
        self,
        decoder: BatchDecoder,
        *,
        slots: int,
        make_chooser: Callable[[SamplingParams], Chooser],
        piece: Callable[[int], bytes],
        stop_ids: frozenset[int] = frozenset(),
        prefixes: PrefixKeeper | None = None,
        is_exact: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._decoder = decoder
        self._n_most = slots
        self._make_chooser = make_chooser
        self._piece = piece
        self._stop_ids = stop_ids
        self._prefixes = None if is_exact else prefixes
        self._is_exact = is_exact
        self._clock = clock
        self._slots = Slots(decoder)
        self._tickets = itertools.count()
        self._live: dict[int, Generation] = {}
        self._idle: list[int] = list(range(decoder.n_slots))
        """Slots of nobody, the longest unused first."""
        self._was_interactive = [False] * decoder.n_slots
        self._suspects: dict[int, int] = {}
        """Tickets of a call that failed, and how far each was to come: until then each runs alone, to tell whose fault
        it was."""
        self._account = TimeAccount()
        self.meter = DraftMeter()

    # Coming and going

    def can_open(self, request: GenerationRequest) -> bool:
        """Return whether a slot is free, and as many cells as the generation is expected to take."""
        if not has_slot(request.priority, n_open=len(self._live), slots=self._n_most):
            return False
        if not self._live or request.priority is Priority.INTERACTIVE:
            return True
        requests = [*(generation.request for generation in self._live.values()), request]
        n_shared = sum(map(len, {one.prompt[: one.n_fixed] for one in requests}))
        return n_shared + sum(map(_expected, requests)) <= self._decoder.n_cells

    def open(self, request: GenerationRequest) -> int:
        """Let a checked request join at the next step; return its ticket."""
        if not has_slot(request.priority, n_open=len(self._live), slots=self._n_most):
            raise EngineError(f"all {self._n_most} slots are taken")
        chooser = self._make_chooser(request.sampling)
        chooser.accept(request.answered)
        ticket = next(self._tickets)
        self._live[ticket] = Generation(
            request,
            ticket=ticket,
            slot=self._free_slot(list(request.prompt)),
            chooser=chooser,
            stop_ids=self._stop_ids | request.stop_ids,
            draft=self._draft_of(request),
        )
        return ticket

    def _draft_of(self, request: GenerationRequest) -> Draft | None:
        can_verify = self._decoder.n_outputs > self._decoder.n_slots
        is_wanted = request.draft and not request.answered  # a draft is followed from its first token only
        return Draft(request.draft) if is_wanted and can_verify and self.meter.admits() else None

    def drop(self, ticket: int) -> GenerationDone:
        """End a generation."""
        generation = self._live[ticket]
        self._retire(generation)
        return generation.done(FinishReason.CANCELLED)

    def close(self) -> None:
        """Free what the open generations hold; the decoder may be closed already."""
        for generation in self._live.values():
            generation.close()
        self._live.clear()

    # One step

    def step(self) -> list[Outcome]:
        """Decode once, and return what came of it."""
        outcomes: list[Outcome] = []
        chosen, is_alone = self._participants()
        parts = self._plan(chosen, is_alone=is_alone, outcomes=outcomes)
        if not parts:
            self._suspects.clear()
            return outcomes
        started = self._clock()
        try:
            is_done = self._decoder.decode([part.run for part in parts])
            decode_s = self._clock() - started
        except DecodeError as error:
            outcomes += self._blame(parts, error)
            return outcomes
        if is_done:
            outcomes += self._harvest(parts, decode_s)
        else:
            self._salvage(parts)
        self._note_time(parts, self._clock() - started, is_alone=is_alone)
        return outcomes

    def _participants(self) -> tuple[list[Generation], bool]:
        """Return who takes part in the next step, by priority and age, and whether others wait for them."""
        ordered = sorted(self._live.values(), key=lambda generation: generation.order)
        self._suspects = {ticket: n_far for ticket, n_far in self._suspects.items() if ticket in self._live}
        for ticket in self._suspects:
            return [self._live[ticket]], False
        interactive = [generation for generation in ordered if generation.priority is Priority.INTERACTIVE]
        if not interactive or len(interactive) == len(ordered):
            return ordered, False
        awaits_first = any(not generation.n_output for generation in interactive)
        if self._account.allows_sharing(awaits_first_token=awaits_first):
            return ordered, False
        return interactive, True

    # Planning

    def _plan(self, chosen: Sequence[Generation], *, is_alone: bool, outcomes: list[Outcome]) -> list[_Part]:
        parts: list[_Part] = []
        writers = [generation for generation in chosen if self._n_pending(generation) == 1]
        n_left = self._most_rows(chosen, n_writers=len(writers))
        for generation in [*writers, *(other for other in chosen if other not in writers)]:
            if n_left <= 0:
                break
            part = self._part_of(generation, parts, n_rows=n_left, outcomes=outcomes)
            if part is not None:
                parts.append(part)
                n_left -= len(part.run.tokens)
        return parts

    def _most_rows(self, chosen: Sequence[Generation], *, n_writers: int) -> int:
        if len(chosen) == 1:
            return self._decoder.n_rows
        return min(self._decoder.n_rows, max(n_writers, MIXED_ROWS))

    def _part_of(
        self, generation: Generation, parts: Sequence[_Part], *, n_rows: int, outcomes: list[Outcome]
    ) -> _Part | None:
        """Return what a generation computes next, or None when it has to wait."""
        if not generation.is_started and not self._start(generation, parts, outcomes=outcomes):
            return None
        n_held = self._slots.n_held(generation.slot)
        n_wanted = min(len(generation.tokens) - n_held, n_rows)
        n_possible = self._make_room(generation, parts, n_wanted=n_wanted)
        if n_possible <= 0:
            return None
        tokens = tuple(generation.tokens[n_held : n_held + n_possible])
        is_last = n_held + n_possible == len(generation.tokens)
        if not is_last:
            return _Part(generation, Run(generation.slot, n_held, tokens, 0))
        guess = self._guess(generation, parts, n_rows=n_rows - n_possible, n_beside=n_possible)
        return _Part(generation, Run(generation.slot, n_held, tokens + guess, 1 + len(guess)), guess)

    def _guess(self, generation: Generation, parts: Sequence[_Part], *, n_rows: int, n_beside: int) -> tuple[int, ...]:
        """Return what to verify beside the tokens that have to be computed, as far as there is room to spare."""
        if generation.draft is None:
            return ()
        n_outputs = self._decoder.n_outputs - self._decoder.n_slots - sum(len(part.guess) for part in parts)
        n_cells = self._slots.n_free - sum(len(part.run.tokens) for part in parts)
        n_cells -= len(generation.tokens) - self._slots.n_held(generation.slot)
        n_most = max(0, min(n_rows, n_outputs, n_cells, generation.n_left - 1))
        return generation.draft.guess(n_most, n_beside=n_beside + sum(len(part.run.tokens) for part in parts))

    def _n_pending(self, generation: Generation) -> int:
        return len(generation.tokens) - self._slots.n_held(generation.slot) if generation.is_started else -1

    # Sharing beginnings

    def _start(self, generation: Generation, parts: Sequence[_Part], *, outcomes: list[Outcome]) -> bool:
        """Let the slot hold the longest beginning that any slot holds; return False to wait for a longer one."""
        wanted = [] if self._is_exact else generation.tokens[:-1]  # the last has to be computed for its logits
        source, n_best = self._best_source(wanted)
        if self._is_just_being_read(generation, wanted, beyond=n_best):
            return False
        if parts and not self._has_room_to_start(generation, parts, n_shared=n_best):
            return False
        if source == generation.slot:
            self._slots.truncate(source, n_best)
        else:
            self._slots.copy(source, generation.slot, n_best)
        n_held = max(n_best, self._restore(generation, parts, beyond=n_best))
        outcomes += ((generation.ticket, event) for event in generation.note_reused(n_held))
        return True

    def _restore(self, generation: Generation, parts: Sequence[_Part], *, beyond: int) -> int:
        """Take a kept beginning if it is longer than what the slot holds; return its length, or 0."""
        n_fixed = generation.request.n_fixed
        is_useful = beyond + LEAST_SHARED <= n_fixed < len(generation.prompt)
        n_free = self._slots.n_free - sum(len(part.run.tokens) for part in parts)
        if self._prefixes is None or not is_useful or n_free < n_fixed:
            return 0
        self._slots.truncate(generation.slot, 0)
        tokens = generation.prompt[:n_fixed]
        if self._prefixes.restore(generation.slot, tokens):
            self._slots.extend(generation.slot, tokens)
        return self._slots.n_held(generation.slot)

    def _keep_prefix(self, part: _Part) -> None:
        """Keep a fixed beginning when it has just been computed."""
        n_fixed = part.generation.request.n_fixed
        if self._prefixes is not None and part.run.start < n_fixed <= part.run.start + len(part.run.tokens):
            self._prefixes.save(part.run.slot, part.generation.prompt[:n_fixed])

    def _best_source(self, wanted: list[int]) -> tuple[int, int]:
        """Return the slot that holds the longest beginning, and its length."""
        lengths = [n_common(self._slots.tokens(slot), wanted) for slot in range(self._decoder.n_slots)]
        slot = max(range(len(lengths)), key=lengths.__getitem__)
        return slot, lengths[slot]

    def _is_just_being_read(self, generation: Generation, wanted: list[int], *, beyond: int) -> bool:
        return not self._suspects and any(
            other.order < generation.order
            and other.is_started
            and not other.n_output
            and n_common(other.prompt, wanted) >= beyond + LEAST_SHARED
            for other in self._live.values()
        )

    # Room

    def _has_room_to_start(self, generation: Generation, parts: Sequence[_Part], *, n_shared: int) -> bool:
        """Return whether it is unlikely that the cells would have to be given up again soon."""
        if generation.priority is Priority.INTERACTIVE:
            return True
        n_free = self._slots.n_free + sum(self._slots.n_held(slot) for slot in self._idle)
        n_wanted = len(generation.tokens) - n_shared + min(generation.n_left, EXPECTED_EXTRA)
        return n_free - sum(len(part.run.tokens) for part in parts) >= n_wanted

    def _make_room(self, generation: Generation, parts: Sequence[_Part], *, n_wanted: int) -> int:
        """Return how many rows a generation may compute, after others have made room as far as they must."""
        n_planned = sum(len(part.run.tokens) for part in parts)
        while self._slots.n_free - n_planned < n_wanted:
            if not self._forget_one_idle() and not self._park_one(generation, parts):
                break
        return min(n_wanted, self._slots.n_free - n_planned)

    def _forget_one_idle(self) -> bool:
        for slot in self._idle:
            if self._slots.n_held(slot):
                self._slots.truncate(slot, 0)
                return True
        return False

    def _park_one(self, generation: Generation, parts: Sequence[_Part]) -> bool:
        """Take the cells of the last in order that is behind `generation` and not part of this step."""
        busy = {part.generation.ticket for part in parts}
        victims = [
            other
            for other in self._live.values()
            if other.order > generation.order and other.ticket not in busy and self._slots.n_held(other.slot)
        ]
        if not victims:
            return False
        victim = max(victims, key=lambda other: other.order)
        self._slots.truncate(victim.slot, 0)
        victim.is_started = False
        return True

    def _free_slot(self, prompt: list[int]) -> int:
        """Return an idle slot, an empty one if there is one, else the one least worth keeping."""
        empty = [slot for slot in self._idle if not self._slots.n_held(slot)]
        slot = min(empty or self._idle, key=lambda other: n_common(self._slots.tokens(other), prompt))
        self._idle.remove(slot)
        return slot

    def _retire(self, generation: Generation) -> None:
        """Forget a generation; its tokens stay for a while, for those that begin alike."""
        del self._live[generation.ticket]
        generation.close()
        self._idle.append(generation.slot)
        kind = self._was_interactive[generation.slot] = generation.priority is Priority.INTERACTIVE
        kept = [slot for slot in self._idle if self._slots.n_held(slot) and self._was_interactive[slot] is kind]
        for slot in kept[: -MOST_IDLE[kind]]:
            self._slots.truncate(slot, 0)

    # What comes of it

    def _harvest(self, parts: Sequence[_Part], decode_s: float) -> Iterable[Outcome]:
        first_row = 0
        for part in parts:
            generation, run = part.generation, part.run
            self._slots.extend(run.slot, run.tokens)
            self._keep_prefix(part)
            rows = range(first_row + len(run.tokens) - run.n_logits, first_row + len(run.tokens))
            first_row += len(run.tokens)
            yield from self._outcomes_of(generation, generation.note_held(self._slots.n_held(run.slot)))
            if rows:
                events = generation.choose(rows, logits=self._decoder.logits, piece=self._piece, guess=part.guess)
                yield from self._outcomes_of(generation, events)
                self._follow_draft(part, decode_s if len(parts) == 1 else None)
            if self._slots.n_held(run.slot) >= self._suspects.get(generation.ticket, 0):
                self._suspects.pop(generation.ticket, None)

    def _follow_draft(self, part: _Part, decode_s: float | None) -> None:
        """Drop what was guessed wrong, and learn from it."""
        generation, run, n_guessed = part.generation, part.run, len(part.guess)
        n_before = run.start + len(run.tokens) - n_guessed
        n_right = n_common(generation.tokens[n_before:], list(part.guess))
        self._slots.truncate(run.slot, n_before + n_right)
        if generation.draft is not None:
            n_new = len(generation.tokens) - n_before
            answer = generation.tokens[len(generation.prompt) :]
            generation.draft.follow(answer, n_new=n_new, n_right=n_right, n_guessed=n_guessed)
        alone_s = decode_s if run.start >= len(generation.prompt) else None
        if n_guessed:
            self.meter.note_slice(alone_s, n_guessed=n_guessed, n_accepted=n_right)
        elif alone_s is not None and len(run.tokens) == 1:
            self.meter.note_row(alone_s)

    def _outcomes_of(self, generation: Generation, events: Iterable[GenerationEvent]) -> Iterable[Outcome]:
        try:
            for event in events:
                if isinstance(event, GenerationDone):
                    self._retire(generation)
                yield generation.ticket, event
        except HymtError as error:
            self._retire(generation)
            self._slots.truncate(generation.slot, 0)  # what gave NaN is not worth keeping
            yield generation.ticket, error

    def _salvage(self, parts: Sequence[_Part]) -> None:
        """Keep what an interrupted call has computed; a row whose logits are wanted is computed again."""
        for part in parts:
            run = part.run
            n_done = min(self._decoder.n_held(run.slot) - run.start, len(run.tokens))
            self._slots.extend(run.slot, run.tokens[: max(0, n_done)])
            n_kept = 0 if self._is_exact else min(n_done, len(run.tokens) - run.n_logits)
            self._slots.truncate(run.slot, run.start + n_kept)

    def _blame(self, parts: Sequence[_Part], error: DecodeError) -> Iterable[Outcome]:
        """Undo a call that failed. Of one generation it is the end; of several, each is tried alone."""
        for part in parts:
            self._slots.clear(part.run.slot)
            part.generation.is_started = False
        if len(parts) > 1:
            self._suspects = {part.generation.ticket: part.run.start + len(part.run.tokens) for part in parts}
            return []
        generation = parts[0].generation
        self._retire(generation)
        return [(generation.ticket, error)]

    def _note_time(self, parts: Sequence[_Part], step_s: float, *, is_alone: bool) -> None:
        n_rows = sum(len(part.run.tokens) for part in parts)
        for part in parts:
            is_answer = part.run.start >= len(part.generation.prompt)
            part.generation.note_time(step_s * len(part.run.tokens) / n_rows, is_answer=is_answer)
        kinds = {part.generation.priority is Priority.INTERACTIVE for part in parts}
        if self._prefixes is not None and len(parts) == 1 and not parts[0].generation.n_output:
            self._prefixes.note_computed(n_rows, step_s)
        if is_alone:
            self._account.note_alone(step_s)
        elif False in kinds:
            self._account.note_shared(step_s, with_interactive=True in kinds)


def _expected(request: GenerationRequest) -> int:
    """Return the cells that a generation probably takes beside the beginning that it shares."""
    n_own = len(request.prompt) - request.n_fixed
    return n_own + min(request.max_tokens, n_own + EXPECTED_EXTRA)
