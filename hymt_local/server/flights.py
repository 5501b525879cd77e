"""Translations under way: identical ones are computed once, followed by many, and end with their last follower.

A flight keeps its events, so that a follower may come late or come back. Everything here belongs to the server's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from hymt_local.errors import CancelledError, error_of
from hymt_local.events import Event, Failed, Finished, LastEvent, Priority, Started, TranslationRequest
from hymt_local.translation_job import Service, TranslationJob

RETRY_GRACE_S = 2.0
"""Clients that give up after a timeout send the same request again at once."""
KEPT_S = 60.0
"""How long an answer that nobody waited for is kept for the one who asks again."""
DETACHED_S = 600.0
"""How long a detached job's events are kept after its end."""
MAX_KEPT = 64
EVENTS_AT_ONCE = 256
"""Of one flight, before others have their turn."""


class Flight:
    """One translation and everybody who follows it."""

    def __init__(self, job: TranslationJob, *, is_detached: bool) -> None:
        self.id = secrets.token_urlsafe(12)
        self.started_at = time.monotonic()
        self.job = job
        self.is_detached = is_detached
        self.followers: Counter[str] = Counter()
        """Clients by name, with how often each follows."""
        self.owners: set[str] = set()
        """Names of the clients that may see and cancel it by its id."""
        self.events: list[Event] = []
        self._changed = asyncio.Event()

    @property
    def n_followers(self) -> int:
        """How many follow."""
        return self.followers.total()

    def disown(self, client: str) -> bool:
        """Take a client's claim away; True when nobody else wants the translation any more."""
        self.owners.discard(client)
        if not self.owners:
            self.is_detached = False
        return not self.owners and self.n_followers == self.followers[client]

    @property
    def last(self) -> LastEvent | None:
        """The end, once it has come."""
        last = self.events[-1] if self.events else None
        return last if isinstance(last, LastEvent) else None

    @property
    def model(self) -> str | None:
        """The model's name, once it is known."""
        return next((event.model for event in self.events if isinstance(event, Started)), None)

    def add(self, event: Event) -> None:
        """Append one event."""
        self.events.append(event)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def grows(self, n_seen: int, *, timeout_s: float | None) -> bool:
        """Wait until there are more than `n_seen` events; False when the time is over, or the end has been seen."""
        if len(self.events) <= n_seen and self.last is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):  # `wait_for` of Python 3.11 may swallow a cancellation
                    await self._changed.wait()
        return len(self.events) > n_seen

    async def ended(self) -> LastEvent:
        """Wait for the last event."""
        while self.last is None:
            await self._changed.wait()
        return self.last

    async def finished(self) -> Finished:
        """Wait for the end.

        Raises:
            HymtError: it failed or was cancelled.
        """
        last = await self.ended()
        if isinstance(last, Finished):
            return last
        if isinstance(last, Failed):
            raise error_of(last.error)
        raise CancelledError("the translation was cancelled", hint="the server is stopping, or the job was cancelled")


Observer = Callable[[Flight, Event], None]
"""Told of every event of every flight, once."""


class Flights:
    """All translations under way.

    Args:
        service: Where they are computed.
        observer: See Observer.
    """

    def __init__(self, service: Service, *, observer: Observer) -> None:
        self._service = service
        self._observer = observer
        self._by_request: dict[TranslationRequest, Flight] = {}
        self._by_id: dict[str, Flight] = {}
        self._pumps: set[asyncio.Task[None]] = set()

    @property
    def n_active(self) -> int:
        """Flights that have not ended."""
        return len(self._pumps)

    def by_id(self, flight_id: str) -> Flight | None:
        """Return a flight that is under way, or detached and kept."""
        return self._by_id.get(flight_id)

    @asynccontextmanager
    async def board(
        self, request: TranslationRequest, *, client: str, grace_s: float = 0.0, detached: bool = False
    ) -> AsyncIterator[Flight]:
        """Follow the flight of a request, which is started unless an identical one is under way.

        Leaving the context leaves the flight; `grace_s` after its last follower it is cancelled, unless detached.
        """
        flight = self._find(request) or self._start(request, detached=detached)
        flight.is_detached |= detached
        async with self.rejoin(flight, client=client, grace_s=grace_s):
            yield flight

    @asynccontextmanager
    async def rejoin(self, flight: Flight, *, client: str, grace_s: float = 0.0) -> AsyncIterator[Flight]:
        """Follow a flight that is known already."""
        flight.followers[client] += 1
        try:
            yield flight
        finally:
            flight.followers[client] -= 1
            if grace_s > 0:
                asyncio.get_running_loop().call_later(grace_s, self._cancel_if_left, flight)
            else:
                self._cancel_if_left(flight)

    @property
    def detached(self) -> Counter[str]:
        """Flights under way that nobody needs to follow, each counted for one of its clients."""
        under_way = [flight for flight in self._by_id.values() if flight.is_detached and flight.last is None]
        return Counter(min(flight.owners, default="") for flight in under_way)

    def cancel_all(self) -> None:
        """End every flight with Cancelled; their followers see it."""
        for flight in list(self._by_id.values()):
            flight.job.cancel()

    def _find(self, request: TranslationRequest) -> Flight | None:
        flight = self._by_request.get(_key(request))
        if flight is None or isinstance(flight.last, Finished):
            return flight
        return None if flight.job.done else flight  # a cancelled one has not heard of it yet

    def _start(self, request: TranslationRequest, *, detached: bool) -> Flight:
        flight = Flight(self._service.submit(request), is_detached=detached)
        self._by_request[_key(request)] = flight
        self._by_id[flight.id] = flight
        pump = asyncio.get_running_loop().create_task(self._pump(flight))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)
        return flight

    async def _pump(self, flight: Flight) -> None:
        async for event in flight.job:
            flight.add(event)
            self._observer(flight, event)
            if len(flight.events) % EVENTS_AT_ONCE == 0:
                await asyncio.sleep(0)  # a long text out of the cache comes in one piece, and the loop is everybody's
        kept_s = DETACHED_S if flight.is_detached else 0.0 if flight.n_followers else KEPT_S
        if not isinstance(flight.last, Finished) and not flight.is_detached:
            kept_s = 0.0
        if kept_s > 0 and len(self._by_id) - self.n_active < MAX_KEPT:
            asyncio.get_running_loop().call_later(kept_s, self._forget, flight)
        else:
            self._forget(flight)

    def _cancel_if_left(self, flight: Flight) -> None:
        if flight.n_followers == 0 and not flight.is_detached and flight.last is None:
            flight.job.cancel()

    def _forget(self, flight: Flight) -> None:
        self._by_id.pop(flight.id, None)
        key = _key(flight.job.request)
        if self._by_request.get(key) is flight:
            del self._by_request[key]


def _key(request: TranslationRequest) -> TranslationRequest:
    """Return what makes two requests identical: all but how urgent they are and what is guessed of the answer."""
    return msgspec.structs.replace(request, priority=Priority.REQUEST, draft=None)
