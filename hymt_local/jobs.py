"""Jobs: the loop thread that runs translations, and the handle by which any thread or loop follows one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from hymt_local.detect import LanguageDetector
from hymt_local.errors import CancelledError, ErrorReport, HymtError, StoreError
from hymt_local.events import Cancelled, Event, Failed, Finished, LastEvent, TranslationRequest
from hymt_local.memory.phrase_cache import CachedPhrase, PhraseCache
from hymt_local.translator import OpenModel, Translator

T = TypeVar("T")
_logger = logging.getLogger(__name__)

ModelOpener = Callable[[str | None], OpenModel]
"""Finds and checks the model of a reference, None for the default, without reading its weights; on a worker thread."""


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


def error_of(report: ErrorReport) -> HymtError:
    """Return a report as the error it was made of, to be raised."""
    kind = _error_kinds(HymtError).get(report.code, HymtError)
    return kind(report.message, hint=report.hint)


def _error_kinds(kind: type[HymtError]) -> dict[str, type[HymtError]]:
    """Return every class of the error tree by its code."""
    kinds = {kind.code: kind}
    for narrower in kind.__subclasses__():
        kinds |= _error_kinds(narrower)
    return kinds


class Service(Protocol):
    """What front ends see: this process's LocalService, or a resident one behind HTTP."""

    def submit(self, request: TranslationRequest) -> TranslationJob:
        """Start a job and return at once. Every error comes as its last event."""

    def close(self) -> None:
        """Cancel every job and free the models; closing twice is fine."""


class LocalService:
    """Runs jobs in this process, on one asyncio loop in a thread of its own. Safe to use from any thread.

    Args:
        open_model: See ModelOpener. Each model is opened once and kept.
        cache_path: The database of the phrase cache; None for no cache. It is opened when first needed.
    """

    def __init__(self, open_model: ModelOpener, *, cache_path: Path | None) -> None:
        self._open_model = open_model
        self._cache = None if cache_path is None else ForgivingCache(cache_path)
        self._detector = LanguageDetector()
        self._changed = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._tasks: dict[TranslationJob, asyncio.Task[None]] = {}
        self._opening: dict[str | None, asyncio.Future[Translator]] = {}
        self._translators: list[Translator] = []

    @property
    def warnings(self) -> tuple[str, ...]:
        """What went wrong without stopping anything, one line each; grows while jobs run."""
        return self._cache.warnings if self._cache else ()

    def submit(self, request: TranslationRequest) -> TranslationJob:
        """Start a job and return at once. Every error comes as its last event; after `close`, that is Cancelled."""
        job = TranslationJob(request, cancel=self._cancel)
        with self._changed:
            if self._is_closed:
                job.put(Cancelled())
            else:
                self._running_loop().call_soon_threadsafe(self._start, job)
        return job

    def close(self) -> None:
        """Cancel every job, free the models and join the thread. Not to be called from an event of a job."""
        with self._changed:
            self._is_closed = True
            loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            with contextlib.suppress(RuntimeError):  # closed before: the loop is gone
                loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _cancel(self, job: TranslationJob) -> None:
        """End the job for its consumer at once; the engine is told on the loop."""
        job.put(Cancelled())
        with self._changed:
            if self._loop is None or self._loop.is_closed():
                return
            self._loop.call_soon_threadsafe(self._stop, job)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop, started by the first job: a service that is never used costs nothing."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run_loop, args=[self._loop], name="hymt-jobs", daemon=True)
            self._thread.start()
        return self._loop

    # On the loop's thread

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()  # until close()
        try:
            loop.run_until_complete(self._shut_down())
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            with self._changed:
                loop.close()

    async def _shut_down(self) -> None:
        for job in list(self._tasks):
            job.put(Cancelled())
        tasks: list[asyncio.Future[Any]] = [*self._tasks.values(), *self._opening.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        engines = [translator.model.engine.close() for translator in self._translators]
        for error in await asyncio.gather(*engines, return_exceptions=True):
            if isinstance(error, BaseException):
                _logger.error("closing an engine failed", exc_info=error)
        if self._cache is not None:
            self._cache.close()

    def _start(self, job: TranslationJob) -> None:
        if job.done:
            return
        task = asyncio.get_running_loop().create_task(self._run(job))
        self._tasks[job] = task
        task.add_done_callback(lambda _: self._tasks.pop(job))

    def _stop(self, job: TranslationJob) -> None:
        task = self._tasks.get(job)
        if task is not None:
            task.cancel()

    async def _run(self, job: TranslationJob) -> None:
        try:
            translator = await self._translator(job.request.model)
            async with contextlib.aclosing(translator.run(job.request)) as events:
                async for event in events:
                    job.put(event)
        except HymtError as error:
            job.put(Failed(error.report()))
        except Exception as error:  # the root of every job: a bug in one must neither vanish nor stop the loop
            _logger.exception("a job failed")
            internal = HymtError(f"internal error: {error!r}", hint="please report it with the log file")
            job.put(Failed(internal.report()))
        finally:
            job.put(Cancelled())  # ignored unless the task itself was cancelled

    async def _translator(self, ref: str | None) -> Translator:
        """Open a model once, however many jobs wait for it; a failure is forgotten: the next job tries again."""
        opening = self._opening.get(ref)
        if opening is None:
            opening = asyncio.ensure_future(self._open(ref))
            self._opening[ref] = opening
            opening.add_done_callback(lambda done: self._keep_if_opened(ref, done))
        return await asyncio.shield(opening)

    def _keep_if_opened(self, ref: str | None, opening: asyncio.Future[Translator]) -> None:
        if opening.cancelled() or opening.exception() is not None:
            self._opening.pop(ref, None)

    async def _open(self, ref: str | None) -> Translator:
        model = await asyncio.to_thread(self._open_model, ref)
        for translator in self._translators:
            if translator.model.spec == model.spec and translator.model.fingerprint == model.fingerprint:
                if translator.model.engine is not model.engine:
                    await model.engine.close()  # never loaded: two references name one model
                return translator
        translator = Translator(model, cache=self._cache, detector=self._detector)
        self._translators.append(translator)
        return translator


class ForgivingCache:
    """The phrase cache as a job sees it: opened on first use, and gone without harm when the disk or the file is bad.

    Belongs to the loop's thread, except for `warnings`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cache: PhraseCache | None = None
        self._is_broken = False
        self.warnings: tuple[str, ...] = ()

    def get(self, signature: str, source: str) -> CachedPhrase | None:
        """Return what is stored, or None."""
        return self._attempt(lambda cache: cache.get(signature, source))

    def edited(self, source: str, *, source_lang: str, target_lang: str) -> str | None:
        """Return a person's target, or None."""
        return self._attempt(lambda cache: cache.edited(source, source_lang=source_lang, target_lang=target_lang))

    def put(self, signature: str, source: str, *, target: str) -> None:
        """Remember one translation if possible."""
        self._attempt(lambda cache: cache.put(signature, source, target=target))

    def close(self) -> None:
        """Close the database if it is open."""
        if self._cache is not None:
            self._attempt(lambda cache: cache.close())
        self._cache, self._is_broken = None, True

    def _attempt(self, use: Callable[[PhraseCache], T]) -> T | None:
        if self._is_broken:
            return None
        try:
            if self._cache is None:
                self._cache = PhraseCache(self._path)
            return use(self._cache)
        except StoreError as error:
            self._is_broken = True
            self.warnings += (f"translations are not remembered: {error.message}",)
            return None
