"""A flight as a response: Server-Sent Events until its end, or until the reader goes away."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hymt_local.errors import TimeLimitError
from hymt_local.event_stream import MEDIA_TYPE, PING, encode_event
from hymt_local.events import Event, Failed
from hymt_local.server.context import while_connected
from hymt_local.server.flights import Flight
from hymt_local.server.limits import TimeBudget

HEADERS = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
MAX_EVENTS_AT_ONCE = 256


class EventStream(Response):
    """Sends the events of a flight; `boarded` is left with the connection, at once when the reader closes it.

    Args:
        flight: What to follow.
        boarded: Holds the place in the flight.
        start: Index of the first event to send.
        ping_s: Pause after which a comment is sent.
        budget: The stream ends with an error when its time is over.
    """

    def __init__(
        self, flight: Flight, boarded: AsyncExitStack, *, start: int, ping_s: float, budget: TimeBudget
    ) -> None:
        super().__init__(media_type=MEDIA_TYPE, headers={**HEADERS, "X-Job-Id": flight.id})
        del self.headers["content-length"]
        self._flight = flight
        self._boarded = boarded
        self._start = start
        self._ping_s = ping_s
        self._budget = budget

    def encode(self, index: int, event: Event) -> bytes:
        """Return one event as the reader wants it; nothing for one that it has no use for."""
        return encode_event(index, event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the end."""
        async with self._boarded:
            with suppress(ClientDisconnect):
                await while_connected(receive, self._send_in_time(send))

    async def _send_in_time(self, send: Send) -> None:
        try:
            async with self._budget.kept():
                await self._send(send)
        except TimeLimitError as error:
            body = self.encode(len(self._flight.events), Failed(error.report()))
            await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        index = self._start
        while True:
            events = self._flight.events[index : index + MAX_EVENTS_AT_ONCE]
            body = b"".join(self.encode(index + offset, event) for offset, event in enumerate(events))
            index += len(events)
            if body:
                await send({"type": "http.response.body", "body": body, "more_body": True})
            if events:
                await asyncio.sleep(0)  # a reader that keeps up must not keep the others waiting
                continue
            if self._flight.last is not None:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            if not await self._flight.grows(index, timeout_s=self._ping_s):
                await send({"type": "http.response.body", "body": PING, "more_body": True})
