"""The asynchronous face of a backend: one engine thread, a priority queue, cancellation, and typed errors.

The engine thread alone touches the backend, but to interrupt a step or, where the backend can, to tokenize beside one.
Everything else speaks to it through `_Worker`'s queues; what it has to say
goes back to the loop of whoever asked, so consumers on several loops may share one engine. Nothing here polls.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import heapq
import itertools
import logging
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Generic, TypeVar

from hymt_local.engine.base import (
    Backend,
    BackendOpener,
    Engine,
    FinishReason,
    GenerationDone,
    GenerationEvent,
    GenerationRequest,
    ModelInfo,
)
from hymt_local.engine.cancel import CancelFlag
from hymt_local.engine.counters import EngineCounters
from hymt_local.errors import DecodeError, EngineError, EngineLoadError, EngineStoppedError, HymtError
from hymt_local.events import Priority, TokenUsage

STACK_BYTES = 64 << 20
"""llama.cpp's tokenizer recurses once per character of a run (std::regex): the default stack overflows."""
_TEXTS_PER_CALL = 32
"""Texts tokenized between two steps: about 5 ms."""
_WINDOW = 64
"""Successive generations of a document of which the longest come first: else it ends with a few long ones alone. Who
comes later never overtakes a window, so that nobody waits for ever."""
_PROGRESS_STEP = 0.01
_INTERRUPT_S = 2.0
_EXIT_JOIN_S = 5.0

_logger = logging.getLogger(__name__)
_stack_size_lock = threading.Lock()
T = TypeVar("T")


class ThreadedEngine(Engine):
    """Gives a backend a thread and a queue; loads it on first use.

    As many generations run at once as the backend has room for; the others wait: INTERACTIVE before REQUEST before
    DOCUMENT, first come first served inside a class. Tokenizing is served beside or between the steps. A failed load is
    raised to everybody who waits, and the next use tries again. Safe to use from several loops and threads.

    Args:
        opener: Loads the backend; called on the engine thread.
        name: Named in errors and in the thread's name.
    """

    def __init__(self, opener: BackendOpener, name: str) -> None:
        self.name = name
        self._worker = _Worker(opener, name)
        weakref.finalize(self, self._worker.stop)  # also runs at exit: no decode may outlive the interpreter

    @property
    def info(self) -> ModelInfo | None:
        """Facts about the model while it is loaded."""
        return self._worker.info

    async def load(self, on_progress: Callable[[float], None] | None = None) -> ModelInfo:
        """Load the model if need be; `on_progress` (0.0 to 1.0) is called on this loop."""
        info = self._worker.info
        if info is not None:
            return info
        return await self._call(lambda backend: backend.info, on_progress)

    async def tokenize(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Tokenize plain texts, in order; one bad text fails the call."""
        ids: list[tuple[int, ...]] = []
        for start in range(0, len(texts), _TEXTS_PER_CALL):
            part = texts[start : start + _TEXTS_PER_CALL]
            ids += await self._tokenize_part(part)
        return ids

    async def _tokenize_part(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        backend = self._worker.busy_tokenizer
        if backend is not None:
            with contextlib.suppress(EngineStoppedError):  # only the engine thread starts its process again
                return await asyncio.to_thread(_tokenize_aside, texts, backend)
        return await self._call(functools.partial(_tokenize, texts))

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationEvent, None]:
        """Yield the events of one generation, which joins the queue at the first step of the iteration.

        The last event is `GenerationDone`; its reason is CANCELLED only when the engine was closed meanwhile.

        Raises:
            HymtError: whatever the backend raised; anything else it raised comes as a DecodeError.
        """
        generation = _Generation(request, asyncio.get_running_loop())
        self._worker.submit(generation)
        try:
            while True:
                event = await generation.next_event()
                yield event
                if isinstance(event, GenerationDone):
                    return
        finally:
            self._worker.withdraw(generation)

    async def counters(self) -> EngineCounters:
        """Return what was done since the model was loaded, between two steps; zeros when it is not loaded."""
        if self._worker.info is None:
            return EngineCounters()
        return await self._call(lambda backend: backend.counters)

    async def close(self) -> None:
        """Cancel what runs, free the model and end the thread; closing twice is fine, using it later is an error."""
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        if self._worker.request_stop(lambda: _post(loop, _settle, ended, None, None)):
            await ended
        self._worker.join()

    async def _call(self, work: Callable[[Backend], T], on_progress: Callable[[float], None] | None = None) -> T:
        call = _Call(work, asyncio.get_running_loop(), on_progress)
        self._worker.submit(call)
        try:
            return await call.result
        finally:
            self._worker.withdraw(call)


class _Call(Generic[T]):
    """A short piece of work whose result one coroutine awaits."""

    def __init__(
        self,
        work: Callable[[Backend], T],
        loop: asyncio.AbstractEventLoop,
        on_progress: Callable[[float], None] | None,
    ) -> None:
        self.result: asyncio.Future[T] = loop.create_future()
        self._work = work
        self._loop = loop
        self._on_progress = on_progress

    def run(self, backend: Backend) -> None:
        try:
            result = self._work(backend)
        except Exception as error:
            self.fail(_typed(error, EngineError))
        else:
            _post(self._loop, _settle, self.result, result, None)

    def fail(self, error: HymtError) -> None:
        _post(self._loop, _settle, self.result, None, _own_copy(error))

    def report(self, fraction: float) -> None:
        if self._on_progress is not None:
            _post(self._loop, self._on_progress, fraction)


class _Generation:
    """One generation: its request, its cancel flag, and its events on the way to the consumer's loop.

    A slow consumer lets events pile up; it is woken once for all that came meanwhile.
    """

    def __init__(self, request: GenerationRequest, loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        self.flag = CancelFlag()
        self._loop = loop
        self._items: deque[GenerationEvent | HymtError] = deque()
        self._ready = asyncio.Event()
        self._is_notified = False
        self._is_ended = False

    def put(self, item: GenerationEvent) -> None:
        """Hand over one event; nothing follows the last one. Runs on the engine thread."""
        self._append(item, is_last=isinstance(item, GenerationDone))

    def fail(self, error: HymtError) -> None:
        self._append(_own_copy(error), is_last=True)

    def end_cancelled(self) -> None:
        self.put(GenerationDone(FinishReason.CANCELLED, TokenUsage(prompt_tokens=len(self.request.prompt))))

    async def next_event(self) -> GenerationEvent:
        while not self._items:
            self._ready.clear()
            await self._ready.wait()
        item = self._items.popleft()
        if isinstance(item, HymtError):
            raise item
        return item

    def _append(self, item: GenerationEvent | HymtError, *, is_last: bool) -> None:
        if self._is_ended:
            return
        self._is_ended = is_last
        self._items.append(item)
        if not self._is_notified:
            self._is_notified = True
            if not _post(self._loop, self._wake):
                self.flag.cancel()

    def _wake(self) -> None:
        self._is_notified = False  # before the consumer looks: what is appended from now on wakes it again
        self._ready.set()


class _Worker:
    """The engine thread, its backend and its queues."""

    def __init__(self, opener: BackendOpener, name: str) -> None:
        self._opener = opener
        self._name = name
        self._changed = threading.Condition()
        self._calls: deque[_Call[Any]] = deque()
        self._waiting: list[tuple[tuple[int, int, int, int], _Generation]] = []
        self._order = itertools.count()
        self._running: dict[int, _Generation] = {}
        self._interrupted_at = -math.inf
        self._backend: Backend | None = None
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._has_ended = False
        self._when_ended: list[Callable[[], object]] = []
        self._reported = 0.0

    # Called from any thread.

    @property
    def info(self) -> ModelInfo | None:
        """Facts about the model when it is loaded."""
        backend = self._backend
        return backend.info if backend is not None else None

    @property
    def busy_tokenizer(self) -> Backend | None:
        """The backend when its thread is busy and it can tokenize elsewhere: a step may take a second."""
        backend = self._backend
        return backend if self._running and backend is not None and backend.tokenizes_anywhere else None

    def submit(self, work: _Call[Any] | _Generation) -> None:
        with self._changed:
            if self._is_closing:
                raise EngineError(f"the engine of {self._name} is closed", hint="open the model again")
            if self._thread is None:
                self._thread = _start_thread(self._run, f"hymt-engine-{self._name}")
            if isinstance(work, _Generation):
                heapq.heappush(self._waiting, (_turn(work.request, next(self._order)), work))
                self._hurry_for(work)
            else:
                self._calls.append(work)
            self._changed.notify()

    def withdraw(self, work: _Call[Any] | _Generation) -> None:
        """Cancel work, or forget work that has ended; both are fine at any time."""
        with self._changed:
            if isinstance(work, _Generation):
                work.flag.cancel()
                self._stop_step_for_nobody()
                self._waiting = [entry for entry in self._waiting if entry[1] is not work]
                heapq.heapify(self._waiting)
            elif work in self._calls:
                self._calls.remove(work)

    def request_stop(self, when_ended: Callable[[], object] | None = None) -> bool:
        """Cancel everything and let the thread end; return False when there is none to wait for."""
        with self._changed:
            self._is_closing = True
            if self._backend is not None:
                self._backend.interrupt()
            self._changed.notify()
            is_alive = self._thread is not None and not self._has_ended
            if is_alive and when_ended is not None:
                self._when_ended.append(when_ended)
            return is_alive

    def stop(self) -> None:
        self.request_stop()
        self.join(timeout_s=_EXIT_JOIN_S)

    def join(self, *, timeout_s: float | None = None) -> None:
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _hurry_for(self, work: _Generation) -> None:
        """Cut the step under way short for the first interactive generation; not again and again, or it never ends."""
        running = [generation.request.priority for generation in self._running.values()]
        if work.request.priority is not Priority.INTERACTIVE or not running or Priority.INTERACTIVE in running:
            return
        now = time.monotonic()
        if self._backend is not None and now - self._interrupted_at >= _INTERRUPT_S:
            self._interrupted_at = now
            self._backend.interrupt()

    def _stop_step_for_nobody(self) -> None:
        if self._backend is not None and self._running and all(work.flag() for work in self._running.values()):
            self._backend.interrupt()

    # Called on the engine thread.

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._step()
        finally:
            self._finish()

    def _wait_for_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing or self._calls or self._waiting or self._running)
            return not self._is_closing

    def _step(self) -> None:
        backend = self._backend or self._load()
        if backend is None:
            return
        self._serve_calls(backend)
        self._drop_cancelled(backend)
        while self._admit_next(backend):
            pass
        if self._running:
            self._advance(backend)

    def _load(self) -> Backend | None:
        self._reported = 0.0
        try:
            backend = self._backend = self._opener(self._report_progress)
        except Exception as error:
            if not self._is_closing:
                self._fail_all(_typed(error, EngineLoadError))
            return None
        return backend

    def _report_progress(self, fraction: float) -> bool:
        if fraction >= 1.0 or fraction - self._reported >= _PROGRESS_STEP:
            self._reported = fraction
            with self._changed:
                calls = list(self._calls)
            for call in calls:
                call.report(fraction)
        return not self._is_closing

    def _serve_calls(self, backend: Backend) -> None:
        for _ in range(len(self._calls)):  # not those that arrive meanwhile: generation must go on
            with self._changed:
                call = self._calls.popleft() if self._calls else None
            if call is not None:
                call.run(backend)

    def _drop_cancelled(self, backend: Backend) -> None:
        for ticket, generation in list(self._running.items()):
            if generation.flag():
                self._finish_one(ticket).put(backend.drop(ticket))

    def _admit_next(self, backend: Backend) -> bool:
        """Start the first waiting generation if there is room for it; nobody overtakes it."""
        with self._changed:
            if self._is_closing or not self._waiting:
                return False
            generation = self._waiting[0][1]
            if self._running and not backend.can_open(generation.request):
                return False
            heapq.heappop(self._waiting)
        try:
            ticket = backend.open(generation.request)
        except Exception as error:
            generation.fail(_typed(error, DecodeError))
        else:
            with self._changed:
                self._running[ticket] = generation
        return True

    def _advance(self, backend: Backend) -> None:
        try:
            outcomes = backend.step()
        except Exception as error:
            self._fail_running(backend, _typed(error, DecodeError))
            return
        for ticket, event in outcomes:
            if isinstance(event, Exception):
                self._finish_one(ticket).fail(_typed(event, DecodeError))
            elif isinstance(event, GenerationDone):
                self._finish_one(ticket).put(event)
            else:
                self._running[ticket].put(event)

    def _fail_running(self, backend: Backend, error: HymtError) -> None:
        for ticket in list(self._running):
            self._finish_one(ticket).fail(error)
            backend.drop(ticket)

    def _finish_one(self, ticket: int) -> _Generation:
        with self._changed:
            return self._running.pop(ticket)

    def _fail_all(self, error: HymtError) -> None:
        for work in self._take_all():
            work.fail(error)

    def _take_all(self) -> list[_Call[Any] | _Generation]:
        with self._changed:
            waiting = [entry[1] for entry in self._waiting]
            work: list[_Call[Any] | _Generation] = [*self._calls, *waiting, *self._running.values()]
            self._running.clear()
            self._calls.clear()
            self._waiting.clear()
            return work

    def _finish(self) -> None:
        try:
            if self._backend is not None:
                self._backend.close()
        except Exception:
            _logger.exception("closing the backend of %s failed", self._name)
        self._backend = None
        for work in self._take_all():
            if isinstance(work, _Generation):
                work.end_cancelled()
            else:
                work.fail(EngineError(f"the engine of {self._name} was closed meanwhile"))
        with self._changed:
            self._has_ended = True
            callbacks = self._when_ended
        for callback in callbacks:
            callback()


def _turn(request: GenerationRequest, order: int) -> tuple[int, int, int, int]:
    """Return what sorts waiting generations; `order` counts arrivals, and no two have the same."""
    if request.priority is not Priority.DOCUMENT:
        return request.priority, 0, 0, order
    return request.priority, order // _WINDOW, -(len(request.prompt) + request.max_tokens), order


def _tokenize(texts: Sequence[str], backend: Backend) -> list[tuple[int, ...]]:
    return [backend.tokenize(text) for text in texts]


def _tokenize_aside(texts: Sequence[str], backend: Backend) -> list[tuple[int, ...]]:
    try:
        return _tokenize(texts, backend)
    except Exception as error:
        raise _typed(error, EngineError) from error


def _start_thread(target: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, daemon=True)
    with _stack_size_lock:
        previous = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(previous)
    return thread


def _post(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *arguments: object) -> bool:
    try:
        loop.call_soon_threadsafe(callback, *arguments)
    except RuntimeError:  # the loop was closed: nobody is left to hear it
        return False
    return True


def _settle(future: asyncio.Future[Any], result: object, error: HymtError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
        future.exception()  # marks it as seen: the waiter may just have been cancelled


def _typed(error: Exception, kind: type[EngineError]) -> HymtError:
    if isinstance(error, HymtError):
        return error
    typed = kind(f"the engine failed: {type(error).__name__}: {error}", hint="run `hymt doctor`")
    typed.__cause__ = error
    return typed


def _own_copy(error: HymtError) -> HymtError:
    """Return a copy with a traceback of its own: raising one exception in several tasks would mix theirs."""
    copied = copy.copy(error)
    copied.__cause__ = error
    return copied
