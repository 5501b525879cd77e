"""What one client and the whole server may take: values, and the buckets that count."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from hymt_local.errors import BusyError, RequestTooLargeError, TimeLimitError

MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What one client may do; None is no limit."""

    requests_per_minute: int | None = None
    characters_per_minute: int | None = None
    characters_per_request: int | None = None
    seconds_per_request: float | None = None
    """From its arrival to its answer; documents excepted, which take as long as they take."""
    burst: int = 10
    """Requests that may come at once after a pause."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What the server takes of everybody together."""

    body_bytes: int = 8 * 1024 * 1024
    document_bytes: int = 32 * 1024 * 1024
    held_bytes: int = 256 * 1024 * 1024
    """Of all bodies in memory at once: some dialects send their token in them, so they come from anybody."""
    texts_per_request: int = 2048
    waiting_requests: int = 64
    """Translations under way or waiting, of all clients."""
    connections: int = 256
    """Requests of any kind at once; twice as many connections, so that there is an answer to those too many."""
    head_s: float = 10.0
    """Time for a whole request head."""
    body_s: float = 30.0
    """Time for a whole body."""
    write_s: float = 30.0
    """How long a reader may take nothing of what is sent to it."""
    linger_s: float = 2.0
    """How long the rest of a refused body is read and thrown away."""
    linger_bytes: int = 64 * 1024 * 1024
    ping_s: float = 10.0
    """Pause in a stream after which a comment keeps it alive."""


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """How long one request may take, on one asyncio loop."""

    most_s: float | None = None
    """None: as long as it takes."""
    ends_at: float | None = None
    """In the loop's time."""

    @classmethod
    def of(cls, limits: ClientLimits) -> TimeBudget:
        """Return the budget of a request that has just come."""
        most_s = limits.seconds_per_request
        return cls(most_s, None if most_s is None else asyncio.get_running_loop().time() + most_s)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Cancel what is awaited inside when the time is over.

        Raises:
            TimeLimitError: it is.
        """
        try:
            async with asyncio.timeout_at(self.ends_at) as timeout:
                yield
        except TimeoutError as error:
            if not timeout.expired():
                raise
            raise self.exceeded() from error

    def exceeded(self) -> TimeLimitError:
        """Return the error for a request whose time is over."""
        return TimeLimitError(
            f"the translation took longer than the {self.most_s:g} s that this client may have",
            hint="send it in parts, or raise the client's limit on the server",
        )


class Bucket:
    """A token bucket. Belongs to one thread.

    Args:
        per_minute: What flows in.
        capacity: What it holds at most, and at first.
        clock: Seconds, monotonic.
    """

    def __init__(self, per_minute: float, *, capacity: float, clock: Callable[[], float]) -> None:
        self._per_s = per_minute / MINUTE_S
        self._capacity = capacity
        self._clock = clock
        self._level = capacity
        self._seen_at = clock()

    def take(self, amount: float) -> float:
        """Take `amount` and return 0.0; or take nothing and return the seconds until that much is there.

        More than the bucket holds is taken from a full one, which owes the rest.
        """
        now = self._clock()
        self._level = min(self._capacity, self._level + (now - self._seen_at) * self._per_s)
        self._seen_at = now
        missing = min(amount, self._capacity) - self._level
        if missing > 0:
            return missing / self._per_s
        self._level -= amount
        return 0.0


class ClientAccount:
    """What one client has left. Belongs to the server's loop."""

    def __init__(self, limits: ClientLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._requests = _bucket(limits.requests_per_minute, limits.burst, clock)
        self._characters = _bucket(limits.characters_per_minute, limits.characters_per_minute, clock)

    def charge_request(self) -> None:
        """Count one request.

        Raises:
            BusyError: there were too many in the last minute.
        """
        _charge(self._requests, 1, what="requests")

    def charge_text(self, n_characters: int) -> None:
        """Count the text of one request.

        Raises:
            RequestTooLargeError: more than one request may hold.
            BusyError: too much in the last minute.
        """
        most = self._limits.characters_per_request
        if most is not None and n_characters > most:
            raise RequestTooLargeError(
                f"the text has {n_characters} characters; this client may send {most} at once",
                hint="send it in parts, or raise the client's limit on the server",
            )
        _charge(self._characters, n_characters, what="characters")


def _bucket(per_minute: int | None, capacity: int | None, clock: Callable[[], float]) -> Bucket | None:
    if per_minute is None:
        return None
    return Bucket(per_minute, capacity=max(1, capacity or 1), clock=clock)


def _charge(bucket: Bucket | None, amount: int, *, what: str) -> None:
    wait_s = bucket.take(amount) if bucket else 0.0
    if wait_s > 0:
        raise BusyError(
            f"too many {what} in a minute",
            hint=f"wait {math.ceil(wait_s)} s, or raise the client's limit on the server",
            retry_after_s=wait_s,
        )
