"""How many requests are translated or wait: bounded for all, and for each client but the owner to half of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hymt_local.errors import BusyError
from hymt_local.server.clients import Client

RETRY_AFTER_S = 2.0


class WaitingLine:
    """Counts places. Belongs to the server's loop.

    Args:
        most: Places of all clients together.
        others: How many places work takes that no request waits for, by the name of its client.
    """

    def __init__(self, most: int, *, others: Callable[[], Counter[str]]) -> None:
        self._most = most
        self._others = others
        self._taken: Counter[str] = Counter()

    @property
    def n_taken(self) -> int:
        """Places that requests hold."""
        return self._taken.total()

    def enter(self, client: Client) -> Callable[[], None]:
        """Take a place, and return what gives it back, once.

        Raises:
            BusyError: none is free.
        """
        others = self._others()
        if self.n_taken + others.total() >= self._most:
            raise BusyError(
                f"{self._most} requests are under way or waiting",
                hint="try again in a moment",
                retry_after_s=RETRY_AFTER_S,
            )
        share = self._most if client.is_owner else max(1, self._most // 2)
        if self._taken[client.name] + others[client.name] >= share:
            raise BusyError(
                f"{share} requests of this client are under way or waiting",
                hint="wait for some of them",
                retry_after_s=RETRY_AFTER_S,
            )
        self._taken[client.name] += 1
        is_there = [True]

        def leave() -> None:
            if is_there:
                is_there.clear()
                self._taken[client.name] -= 1

        return leave

    @contextmanager
    def place(self, client: Client) -> Iterator[None]:
        """Hold a place inside the context; see `enter`."""
        leave = self.enter(client)
        try:
            yield
        finally:
            leave()
