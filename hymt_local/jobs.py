"""Jobs: the loop thread that runs translations in this process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from hymt_local.detect import LanguageDetector
from hymt_local.engine.base import ModelInfo
from hymt_local.errors import CancelledError, HymtError, StoreError
from hymt_local.events import Cancelled, Failed, TranslationRequest
from hymt_local.memory.phrase_cache import CachedPhrase, PhraseCache
from hymt_local.translation_job import Service, TranslationJob
from hymt_local.translator import OpenModel, Translator

__all__ = ["LocalService", "ModelOpener", "Service", "TranslationJob"]

T = TypeVar("T")
_logger = logging.getLogger(__name__)

RoomCheck = Callable[[str, Sequence[ModelInfo]], bool]
"""Tells whether a model can be loaded beside others that are loaded; on a worker thread."""
ModelOpener = Callable[[str | None], OpenModel]
"""Finds and checks the model of a reference, None for the default, without reading its weights; on a worker thread."""


class LocalService:
    """Runs jobs in this process, on one asyncio loop in a thread of its own. Safe to use from any thread.

    Args:
        open_model: See ModelOpener. Each model is opened once and kept until `unload` or `close`.
        cache_path: The database of the phrase cache; None for no cache. It is opened when first needed.
        has_room: See RoomCheck; models that no job uses make room. None: there always is.
        idle_unload_s: How long a model stays in memory that no job uses; None: until `unload` or `close`.
    """

    def __init__(
        self,
        open_model: ModelOpener,
        *,
        cache_path: Path | None,
        has_room: RoomCheck | None = None,
        idle_unload_s: float | None = None,
    ) -> None:
        self._open_model = open_model
        self._has_room = has_room
        self._idle_unload_s = idle_unload_s
        self.when_freed: Callable[[tuple[str, ...]], None] = lambda names: None
        """Told the names of models that were freed, on the thread of the jobs."""
        self._cache = None if cache_path is None else ForgivingCache(cache_path)
        self.detector = LanguageDetector()
        self._changed = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._tasks: dict[TranslationJob, asyncio.Task[None]] = {}
        self._opening: dict[str | None, asyncio.Future[Translator]] = {}
        self._translators: list[Translator] = []
        self._used: dict[TranslationJob, Translator] = {}
        self._used_at: dict[Translator, float] = {}
        self._freeing = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()

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

    def load(self, model: str | None = None) -> str:
        """Read the weights of a model ahead of its first job, and return its name. Blocks.

        Raises:
            HymtError: it cannot be loaded, or the service is closed.
        """
        with self._changed:
            if self._is_closed:
                raise CancelledError("the service is closed")
            loading = asyncio.run_coroutine_threadsafe(self._load(model), self._running_loop())
        return loading.result()

    def unload(self, model: str | None = None) -> tuple[str, ...]:
        """Free the models that no job uses, or one of that name; they are loaded again when needed.

        Blocks until their memory is given back; not for an event of a job.

        Returns:
            The names of those that were freed.
        """
        with self._changed:
            if self._is_closed or self._loop is None:
                return ()
            freeing = asyncio.run_coroutine_threadsafe(self._unload(model), self._loop)
        return freeing.result()

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
            self._used[job] = translator
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
            self._leave(self._used.pop(job, None))

    def _leave(self, translator: Translator | None) -> None:
        """Begin to count the time in which nobody uses a model."""
        if translator is None or self._idle_unload_s is None or self._idle_unload_s < 0:
            return
        loop = asyncio.get_running_loop()
        left_at = self._used_at[translator] = loop.time()

        def expire() -> None:
            if self._used_at.get(translator) == left_at and translator not in self._used.values():
                self._keep(asyncio.ensure_future(self._free([translator])))

        loop.call_later(self._idle_unload_s, expire)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _make_room(self, model: OpenModel) -> None:
        """Free models that no job uses when memory does not hold them and another one that is about to be loaded."""
        if self._has_room is None:
            return
        idle = {
            translator: translator.model.engine.info
            for translator in self._translators
            if translator.model is not model and translator not in self._used.values()
        }
        loaded = {translator: info for translator, info in idle.items() if info is not None}
        if not loaded:
            return
        if not await asyncio.to_thread(self._has_room, model.name, list(loaded.values())):
            _logger.info("made room for %s", model.name)
            await self._free([each for each in loaded if each not in self._used.values()])

    async def _translator(self, ref: str | None) -> Translator:
        """Open a model once, however many jobs wait for it; a failure is forgotten: the next job tries again."""
        while True:
            opening = self._opening.get(ref)
            if opening is None:
                opening = asyncio.ensure_future(self._open(ref))
                self._opening[ref] = opening
                opening.add_done_callback(lambda done: self._keep_if_opened(ref, done))
            translator = await asyncio.shield(opening)
            if translator in self._translators:  # else it was unloaded while this job waited for its turn
                return translator

    async def _load(self, model: str | None) -> str:
        translator = await self._translator(model)
        await translator.load()
        self._leave(translator)
        return translator.model.name

    async def _unload(self, model: str | None) -> tuple[str, ...]:
        in_use = {translator for job, translator in self._used.items() if not job.done}
        freed = [
            translator
            for translator in self._translators
            if translator not in in_use and model in {None, translator.model.name}
        ]
        await self._free(freed)
        return tuple(translator.model.name for translator in freed)

    async def _free(self, freed: Sequence[Translator]) -> None:
        self._translators = [translator for translator in self._translators if translator not in freed]
        self._opening = {
            ref: opening
            for ref, opening in self._opening.items()
            if not opening.done() or opening.result() not in freed
        }
        async with self._freeing:  # until the memory is free, no other model is opened
            for translator in freed:
                self._used_at.pop(translator, None)
                await translator.model.engine.close()
        self.when_freed(tuple(translator.model.name for translator in freed))

    def _keep_if_opened(self, ref: str | None, opening: asyncio.Future[Translator]) -> None:
        if opening.cancelled() or opening.exception() is not None:
            self._opening.pop(ref, None)

    async def _open(self, ref: str | None) -> Translator:
        async with self._freeing:
            pass
        model = await asyncio.to_thread(self._open_model, ref)
        for translator in self._translators:
            if translator.model.spec == model.spec and translator.model.fingerprint == model.fingerprint:
                if translator.model.engine is not model.engine:
                    await model.engine.close()  # never loaded: two references name one model
                return translator
        translator = Translator(
            model, cache=self._cache, detector=self.detector, before_load=lambda: self._make_room(model)
        )
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
