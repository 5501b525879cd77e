"""One connection: uvicorn's protocol with limits on peers that send or read too slowly."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from hymt_local.server.limits import ServerLimits


class GuardedProtocol(H11Protocol):
    """Drops a peer that does not send a whole head in time, or takes nothing of what it is sent."""

    limits: ClassVar[ServerLimits] = ServerLimits()
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give the first head its time."""
        super().connection_made(transport)
        if len(self.connections) > 2 * self.limits.connections:
            transport.abort()
            return
        self._limit(self.limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting."""
        self._unlimit()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Stop counting with a whole head, and begin with the first byte of the next one."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._unlimit()
        elif self.cycle is not None and self.cycle.response_complete and self._timer is None:
            self._limit(self.limits.head_s)

    def pause_writing(self) -> None:
        """Give a reader that falls behind its time."""
        super().pause_writing()
        self._limit(self.limits.write_s)

    def resume_writing(self) -> None:
        """It has caught up."""
        super().resume_writing()
        self._unlimit()

    def _limit(self, most_s: float) -> None:
        self._unlimit()
        self._timer = self.loop.call_later(most_s, self.transport.abort)

    def _unlimit(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def guarded_protocol(limits: ServerLimits) -> type[GuardedProtocol]:
    """Return the protocol with these limits."""
    return type("LimitedProtocol", (GuardedProtocol,), {"limits": limits})
