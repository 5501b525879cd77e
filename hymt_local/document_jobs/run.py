"""One document from its bytes to its translation: a file with journal and lock, or bytes in memory."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hymt_local.document_jobs.events import (
    DocumentEvent,
    DocumentFailed,
    DocumentFinished,
    DocumentOptions,
    DocumentSkipped,
    DocumentStarted,
    DocumentTask,
)
from hymt_local.document_jobs.files import check_may_write, check_size, claimed, digest_of, read_source, write_output
from hymt_local.document_jobs.journal import Journal, Remains, journal_path, key_of, read_journal
from hymt_local.document_jobs.meter import ProgressMeter
from hymt_local.document_jobs.work import Batch, DocumentWork
from hymt_local.documents.base import Format
from hymt_local.documents.registry import format_named, format_of
from hymt_local.documents.text_encoding import in_utf8
from hymt_local.errors import DocumentError, HymtError
from hymt_local.events import Event, ModelLoading, Started
from hymt_local.jobs import Service, TranslationJob

BATCHES_IN_FLIGHT = 2
LOW_WATER = 64
"""When no more texts than this are left of a batch, the next one follows: enough to keep any engine busy. Not earlier,
since the results of a batch are taken, and recorded, after those of the one before it."""

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class _Opened:
    """A document on its way."""

    name: str
    data: bytes
    format: Format
    options: DocumentOptions
    work: DocumentWork
    meter: ProgressMeter
    started_at: float
    journal: Journal | None = None
    notes: tuple[str, ...] = ()

    def started(self) -> DocumentStarted:
        work = self.work
        return DocumentStarted(self.format.name, len(work.units), work.n_known, work.characters, self.notes)

    def take(self, batch: Batch, event: Event) -> Iterator[DocumentEvent]:
        """Take one event of a batch's job and yield what it means for the document."""
        if isinstance(event, ModelLoading):
            self.meter.note_idle()
            yield self.meter.progress(loading=event.fraction)
        for settled in self.work.take(batch, event):
            if self.journal:
                self.journal.add(settled)
            yield settled
            if progress := self.meter.settled(settled):
                yield progress
        is_detected = isinstance(event, Started) and self.options.languages.source_lang is None
        if is_detected and self.journal and self.work.source_lang:
            self.journal.add_language(self.work.source_lang)

    def finished(self, *, elapsed_s: float) -> DocumentFinished:
        """Put the targets in place.

        Raises:
            DocumentError: the result could not be read again. Nothing has been written.
        """
        merged = self.work.merge()
        if merged.data != self.data:
            self._check_readable(merged.data)
        report = self.work.report(merged, name=self.name, format_name=self.format.name)
        faults = filter(None, [self.journal.fault if self.journal else ""])
        report = replace(
            report,
            elapsed_s=elapsed_s,
            rate=self.meter.overall_rate,
            notes=(*self.notes, *report.notes, *faults),
        )
        return DocumentFinished(report, merged.data)

    def _check_readable(self, data: bytes) -> None:
        try:
            self.format.read(data, self.options.languages)
        except DocumentError as error:
            raise DocumentError(
                f"the translated document would be broken: {error.message}", hint="please report it with the document"
            ) from error


def run_document(
    task: DocumentTask, service: Service, *, state_dir: Path | None, now: Clock = time.monotonic
) -> Iterator[DocumentEvent]:
    """Translate one file into another; yields the events, of which the last says how it ended.

    Closing the iterator, or an exception raised into it, cancels what is under way; the journal keeps what was settled.

    Args:
        task: What to do. The source is only read; the target appears complete, or stays as it was.
        service: Translates the units.
        state_dir: Where journals are kept; None keeps none.
        now: A monotonic clock, seconds.
    """
    file_run = _FileRun(task, service, state_dir=state_dir, now=now)
    try:
        yield from file_run.events()
    except HymtError as error:
        yield DocumentFailed(error.report(), n_kept=file_run.n_kept)


async def translate_bytes(
    data: bytes, name: str, *, options: DocumentOptions, service: Service, now: Clock = time.monotonic
) -> AsyncIterator[DocumentEvent]:
    """Translate a document in memory, with the events of `run_document`; the last one holds its bytes.

    Parsing and merging run in a worker thread. Closing the iterator cancels what is under way.

    Args:
        data: The document.
        name: Its file name, for the format and the messages; nothing is read or written.
        options: How it is translated.
        service: Translates the units.
        now: A monotonic clock, seconds.
    """
    try:
        opened = await asyncio.to_thread(_open, data, name, options=options, now=now)
        yield opened.started()
        in_flight: deque[tuple[Batch, TranslationJob]] = deque()
        try:
            while _submit(opened.work, service, in_flight):
                batch, job = in_flight[0]
                async for event in job:
                    for answer in opened.take(batch, event):
                        yield answer
                    _submit(opened.work, service, in_flight)
                in_flight.popleft()
        finally:
            _cancel(in_flight)
        yield await asyncio.to_thread(opened.finished, elapsed_s=now() - opened.started_at)
    except HymtError as error:
        yield DocumentFailed(error.report())


def _drive(opened: _Opened, service: Service) -> Iterator[DocumentEvent]:
    in_flight: deque[tuple[Batch, TranslationJob]] = deque()
    try:
        while _submit(opened.work, service, in_flight):
            batch, job = in_flight[0]
            for event in job:
                yield from opened.take(batch, event)
                _submit(opened.work, service, in_flight)
            in_flight.popleft()
    finally:
        _cancel(in_flight)


def _submit(work: DocumentWork, service: Service, in_flight: deque[tuple[Batch, TranslationJob]]) -> bool:
    """Keep enough batches under way; tells whether there is any."""
    while len(in_flight) < BATCHES_IN_FLIGHT and work.n_under_way < LOW_WATER and (batch := work.next_batch()):
        in_flight.append((batch, service.submit(batch.request)))
    return bool(in_flight)


def _cancel(in_flight: deque[tuple[Batch, TranslationJob]]) -> None:
    for _, job in in_flight:
        job.cancel()


def _open(data: bytes, name: str, *, options: DocumentOptions, now: Clock, format_: Format | None = None) -> _Opened:
    check_size(len(data), name=name)
    started_at = now()
    found = format_ or find_format(name, data, options)
    data = encoded_as_wanted(data, found, options)
    work = DocumentWork(found.read(data, options.languages), options)
    return _Opened(name, data, found, options, work, ProgressMeter(work, now=now), started_at)


def find_format(name: str, data: bytes, options: DocumentOptions) -> Format:
    """Return the format that is asked for, or the one that a document has.

    Raises:
        DocumentError: it is not known, or cannot do what the options ask.
    """
    found = format_named(options.format_name) if options.format_name else format_of(name, data)
    if options.is_bilingual and not found.can_be_bilingual:
        raise DocumentError(f"{name}: {found.name} cannot be bilingual", hint="leave out `--bilingual`")
    return found


def encoded_as_wanted(data: bytes, known: Format, options: DocumentOptions) -> bytes:
    """Return a document in the encoding that its translation shall have.

    Raises:
        DocumentError: it is in another one than it, or the user, says.
    """
    if not options.is_to_utf8 and options.encoding is None:
        return data
    return in_utf8(data, known, encoding=options.encoding)


class _FileRun:
    """The run of one task; `n_kept` outlives what goes wrong."""

    def __init__(self, task: DocumentTask, service: Service, *, state_dir: Path | None, now: Clock) -> None:
        self._task = task
        self._service = service
        self._state_dir = state_dir
        self._now = now
        self._journal: Journal | None = None
        self._notes: list[str] = []

    @property
    def n_kept(self) -> int:
        """Units that a resumed run finds settled."""
        return self._journal.n_kept if self._journal else 0

    def events(self) -> Iterator[DocumentEvent]:
        """Yield the events but the one of a failure.

        Raises:
            HymtError: the document was refused, or a job or the disk failed.
        """
        task = self._task
        data = read_source(task.source_path)
        found = find_format(task.source_path.name, data, task.options)
        data = encoded_as_wanted(data, found, task.options)
        with claimed(task.target_path, source=task.source_path) as target:
            key = key_of(task, data, format_name=found.name)
            remains = self._remains(target, key=key)
            if remains and remains.is_complete and digest_of(target) == remains.written:
                yield DocumentSkipped(task.target_path)
                return
            written = remains.written if remains else None
            replaces = check_may_write(target, shown=task.target_path, replaces=task.replaces, written=written)
            yield from self._translate(data, found, target=target, key=key, remains=remains, replaces=replaces)

    def _remains(self, target: Path, *, key: str) -> Remains | None:
        if self._state_dir is None:
            return None
        remains = read_journal(journal_path(self._state_dir, target), key=key)
        if self._task.resumes:
            if remains is None:
                self._notes.append("there is nothing to resume: it starts from the beginning")
            return remains
        if remains and remains.known.targets:
            n_lost = len(remains.known.targets)
            self._notes.append(f"{n_lost} units of an earlier run are left aside: `--resume` would have used them")
        return None

    def _translate(
        self, data: bytes, found: Format, *, target: Path, key: str, remains: Remains | None, replaces: bool
    ) -> Iterator[DocumentEvent]:
        task, started_at = self._task, self._now()
        if remains and remains.is_complete:  # its texts are gone, and so is its output
            remains = None
        document = found.read(data, task.options.languages)
        work = DocumentWork(document, task.options, known=remains.known if remains else None)
        self._journal = self._open_journal(target, key=key, remains=remains)
        try:
            opened = _Opened(
                name=str(task.source_path),
                data=data,
                format=found,
                options=task.options,
                work=work,
                meter=ProgressMeter(work, now=self._now),
                started_at=started_at,
                journal=self._journal,
                notes=tuple(self._notes),
            )
            yield opened.started()
            yield from _drive(opened, self._service)
            finished = opened.finished(elapsed_s=self._now() - started_at)
            if self._journal:
                self._journal.announce(finished.data)
            write_output(finished.data, target, source=task.source_path, replaces=replaces)
            if self._journal:
                self._journal.finish(finished.data, is_complete=not finished.report.failed)
            yield finished
        finally:
            if self._journal:
                self._journal.close()

    def _open_journal(self, target: Path, *, key: str, remains: Remains | None) -> Journal | None:
        if self._state_dir is None:
            return None
        path, names = journal_path(self._state_dir, target), (str(self._task.source_path), str(target))
        return Journal(path, key=key, names=names, remains=remains, now=self._now)
