"""The handle by which any thread or loop follows one translation, and the seam of what computes it.

Imported by every front end: nothing heavier than the standard library's threads.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Protocol, Self

from hymt_local.errors import CancelledError, error_of
from hymt_local.events import Event, Failed, Finished, LastEvent, TranslationRequest


class TranslationJob:
    """One request on its way: an iterator over its events, for plain code (`for`) and any asyncio loop (`async for`).

    The events are handed out once: give a job to one consumer. `result` and `cancel` work from anywhere. Leaving a
    `with` block, or being cancelled inside `async for`, cancels the job.
    """

    def __init__(self, request: TranslationRequest, *, cancel: Callable[[TranslationJob], None]) -> None:
        self.request = request
        self._cancel = cancel
        self._changed = threading.Lock()
        self._events: deque[Event] = deque()
        self._wakers: list[Callable[[], object]] = []
        self._last: LastEvent | None = None
        self._ended = threading.Event()

    @property
    def done(self) -> bool:
        """True once the last event has come, read or not."""
        return self._ended.is_set()

    def cancel(self) -> None:
        """End the job with Cancelled, unless it has ended. Any thread, any number of times."""
        self._cancel(self)

    def result(self, timeout_s: float | None = None) -> Finished:
        """Wait for the end without consuming events. Blocks: not for a thread that runs an asyncio loop.

        Raises:
            HymtError: the job failed or was cancelled; `report()` is the report of its last event.
            TimeoutError: it was still running after `timeout_s`.
        """
        if not self._ended.wait(timeout_s):
            raise TimeoutError(f"no result within {timeout_s} s")
        if isinstance(self._last, Finished):
            return self._last
        if isinstance(self._last, Failed):
            raise error_of(self._last.error)
        raise CancelledError("the translation was cancelled")

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        woken = threading.Event()
        while (event := self._take(woken.set)) is None:
            woken.wait()
            woken.clear()
        if isinstance(event, _End):
            raise StopIteration
        return event

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        import asyncio  # 40 ms that plain code does not pay

        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        while (event := self._take(lambda: loop.call_soon_threadsafe(woken.set))) is None:
            try:
                await woken.wait()
            except asyncio.CancelledError:
                self.cancel()
                raise
            woken.clear()
        if isinstance(event, _End):
            raise StopAsyncIteration
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.cancel()

    def put(self, event: Event) -> None:
        """Hand one event to the consumer; ignored after the last. For the service; any thread."""
        with self._changed:
            if self._last is not None:
                return
            self._events.append(event)
            if isinstance(event, LastEvent):
                self._last = event
                self._ended.set()
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            with contextlib.suppress(RuntimeError):  # the consumer's loop has closed
                wake()

    def _take(self, wake: Callable[[], object]) -> Event | _End | None:
        """Return the next event, or None and call `wake` once there is one."""
        with self._changed:
            if self._events:
                return self._events.popleft()
            if self._last is not None:
                return _End()
            self._wakers.append(wake)
            return None


class _End:
    """Stands for the end of the events."""


class Service(Protocol):
    """What front ends see: this process's LocalService, or a resident one behind HTTP."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What went wrong without stopping anything, one line each; grows while jobs run."""

    def submit(self, request: TranslationRequest) -> TranslationJob:
        """Start a job and return at once. Every error comes as its last event."""

    def close(self) -> None:
        """Cancel every job and free the models; closing twice is fine."""
