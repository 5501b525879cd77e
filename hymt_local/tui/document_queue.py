"""The queue of documents: one after the other on a worker thread, paused and resumed by the journal of each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from hymt_local.errors import ErrorReport, HymtError
from hymt_local.events import TranslationRequest
from hymt_local.tui.environment import Environment

if TYPE_CHECKING:
    from hymt_local.document_jobs.events import DocumentEvent, FailedUnit
    from hymt_local.jobs import Service, TranslationJob


class DocumentPhase(StrEnum):
    """Where a document is; the value is part of the key of its text."""

    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    INCOMPLETE = "incomplete"
    """Written, but some units kept their source text."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class QueuedDocument:
    """One document as of its latest event."""

    source: Path
    target: Path
    source_lang: str | None
    target_lang: str
    model: str
    phase: DocumentPhase = DocumentPhase.WAITING
    format: str = ""
    n_units: int = 0
    done_units: int = 0
    eta_s: float | None = None
    rate: float | None = None
    """Characters per second."""
    loading: float | None = None
    failed: tuple[FailedUnit, ...] = ()
    n_warnings: int = 0
    notes: tuple[str, ...] = ()
    error: ErrorReport | None = None
    last_source: str = ""
    """The unit that was settled last, and what became of it."""
    last_target: str = ""
    replaces: bool = False

    @property
    def key(self) -> str:
        """What tells it from others: where it is written to."""
        return str(self.target)

    @property
    def fraction(self) -> float:
        """How much is settled, 0.0 to 1.0."""
        return self.done_units / self.n_units if self.n_units else 0.0


@dataclass(slots=True)
class _Stoppable:
    """A service whose jobs can all be cancelled at once, from another thread."""

    service: Service
    stopped: threading.Event = field(default_factory=threading.Event)
    jobs: list[TranslationJob] = field(default_factory=list)

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.service.warnings

    def submit(self, request: TranslationRequest) -> TranslationJob:
        job = self.service.submit(request)
        self.jobs = [*(each for each in self.jobs if not each.done), job]
        if self.stopped.is_set():
            job.cancel()
        return job

    def close(self) -> None:
        """It is somebody else's."""

    def stop(self) -> None:
        self.stopped.set()
        for job in self.jobs:
            job.cancel()


class DocumentQueue:
    """Owns the documents. Its methods are called on the program's loop.

    Args:
        environment: Service, folders and models.
        on_change: Told of every new state of a document.
    """

    def __init__(self, environment: Environment, on_change: Callable[[QueuedDocument], None]) -> None:
        self._environment = environment
        self._on_change = on_change
        self._documents: dict[str, QueuedDocument] = {}
        self._running: tuple[str, _Stoppable] | None = None
        self.is_paused = False

    @property
    def documents(self) -> list[QueuedDocument]:
        """All, in the order in which they were added."""
        return list(self._documents.values())

    def of(self, key: str) -> QueuedDocument | None:
        """Return one document."""
        return self._documents.get(key)

    def add(self, source: Path, *, source_lang: str | None, target_lang: str, model: str) -> QueuedDocument:
        """Put a document at the end; where it is there already, it starts again."""
        from hymt_local.document_jobs.selection import default_target

        target = default_target(source, target_lang)
        known = self._documents.get(str(target))
        if known is not None and known.phase is DocumentPhase.RUNNING:
            return known
        document = QueuedDocument(source, target, source_lang, target_lang, model)
        self._change(document)
        return document

    def pause(self) -> None:
        """Stop what runs; its journal keeps what was settled."""
        self.is_paused = True
        self.stop()

    def resume(self) -> None:
        """Let everything that was paused wait for its turn again."""
        self.is_paused = False
        for document in self.documents:
            if document.phase is DocumentPhase.PAUSED:
                self._change(replace(document, phase=DocumentPhase.WAITING))

    def retry(self, key: str, *, replaces: bool = False) -> None:
        """Translate again what failed of a document; what went well is known from its journal."""
        document = self._documents.get(key)
        if document is not None and document.phase in {DocumentPhase.FAILED, DocumentPhase.INCOMPLETE}:
            again = replace(document, phase=DocumentPhase.WAITING, error=None, failed=(), done_units=0)
            self._change(replace(again, replaces=replaces))

    def remove(self, key: str) -> None:
        """Take a document off the list; files that were written stay."""
        if self._running and self._running[0] == key:
            self.stop()
        self._documents.pop(key, None)

    def stop(self) -> None:
        """Cancel what runs, for a pause or the end of the program."""
        if self._running is not None:
            self._running[1].stop()

    async def work(self) -> None:
        """Translate whatever waits, one document after the other, until nothing does or the queue is paused."""
        while self._running is None and not self.is_paused and (document := self._next()) is not None:
            await self._translate(document)

    def _next(self) -> QueuedDocument | None:
        waiting = (document for document in self.documents if document.phase is DocumentPhase.WAITING)
        return next(waiting, None)

    async def _translate(self, document: QueuedDocument) -> None:
        stoppable = _Stoppable(self._environment.service)
        self._running = (document.key, stoppable)
        self._change(replace(document, phase=DocumentPhase.RUNNING))
        loop = asyncio.get_running_loop()

        def report(event: DocumentEvent) -> None:
            loop.call_soon_threadsafe(self._take, document.key, event)

        try:
            await asyncio.to_thread(_run, self._environment, document, stoppable, report)
            await asyncio.sleep(0)  # the last events are on their way to the loop
        except HymtError as error:
            self._fail(document.key, error.report())
        finally:
            stoppable.stop()
            self._running = None

    def _take(self, key: str, event: DocumentEvent) -> None:
        from hymt_local.document_jobs.events import DocumentFailed

        document = self._documents.get(key)
        if document is None:
            return
        if isinstance(event, DocumentFailed):
            self._fail(key, event.error)
        else:
            self._change(advance(document, event))

    def _fail(self, key: str, error: ErrorReport) -> None:
        document = self._documents.get(key)
        if document is None:
            return
        if error.code == "cancelled" and self.is_paused:
            self._change(replace(document, phase=DocumentPhase.PAUSED))
        else:
            self._change(replace(document, phase=DocumentPhase.FAILED, error=error))

    def _change(self, document: QueuedDocument) -> None:
        self._documents[document.key] = document
        self._on_change(document)


def advance(document: QueuedDocument, event: DocumentEvent) -> QueuedDocument:
    """Return a document after one more event of its run, other than a failure."""
    from hymt_local.document_jobs import events

    match event:
        case events.DocumentStarted():
            return replace(
                document, format=event.format, n_units=event.n_units, done_units=event.n_known, notes=event.notes
            )
        case events.UnitSettled():
            return replace(document, last_source=event.source, last_target=event.target, loading=None)
        case events.DocumentProgress():
            return replace(
                document, done_units=event.done_units, eta_s=event.eta_s, rate=event.rate, loading=event.loading
            )
        case events.DocumentFinished():
            report = event.report
            return replace(
                document,
                phase=DocumentPhase.INCOMPLETE if report.failed else DocumentPhase.DONE,
                done_units=report.n_units,
                failed=report.failed,
                n_warnings=report.n_warnings,
                notes=report.notes,
                rate=report.rate,
                eta_s=None,
            )
        case events.DocumentSkipped():
            return replace(document, phase=DocumentPhase.DONE, done_units=document.n_units)
    return document


def _run(
    environment: Environment,
    document: QueuedDocument,
    stoppable: _Stoppable,
    report: Callable[[DocumentEvent], None],
) -> None:
    """Run one document to its end on this thread."""
    from hymt_local.document_jobs.events import DocumentOptions, DocumentTask
    from hymt_local.document_jobs.journal import journal_path
    from hymt_local.document_jobs.run import run_document
    from hymt_local.documents.base import Languages

    application = environment.application
    task = DocumentTask(
        document.source,
        document.target,
        DocumentOptions(
            Languages(document.source_lang, document.target_lang),
            model=document.model,
            use_cache=application.settings.cache,
        ),
        model_identity=_identity(environment, document.model),
        replaces=document.replaces,
        resumes=journal_path(application.paths.state_dir, document.target.resolve()).exists(),
    )
    for event in run_document(task, stoppable, state_dir=application.paths.state_dir):
        report(event)


def _identity(environment: Environment, ref: str) -> str:
    try:
        return environment.application.resolve_model(ref).fingerprint
    except HymtError:
        return ""  # the translation says what is wrong with the model
