"""One connection: uvicorn's protocol with limits on peers that send or read too slowly."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import h11
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

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; behind the head of an answer there is no place for a refusal, so it breaks off.

        What still works on the request finds its client gone, instead of a connection that takes no second answer.
        """
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            super().send_400_response(msg)
        else:
            self.transport.close()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: whoever asks for WebSockets gets a plain answer, and the log no advice to install them."""

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
