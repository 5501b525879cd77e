"""Documents that clients have sent: translated in memory, fetched by an id, forgotten after a while.

Nothing is read or written by a name that a client gives. Belongs to the server's loop.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

from hymt_local.application import Application
from hymt_local.client_keys import OWNER
from hymt_local.document_jobs.events import (
    DocumentFailed,
    DocumentFinished,
    DocumentOptions,
    DocumentProgress,
    DocumentReport,
    DocumentStarted,
    UnitSettled,
)
from hymt_local.document_jobs.run import translate_bytes
from hymt_local.errors import BusyError, CancelledError, ErrorReport, HymtError
from hymt_local.server.residency import Residency
from hymt_local.translation_job import Service

KEPT_S = 900.0
"""Time to fetch a result."""
MAX_DOCUMENTS = 32
MAX_BYTES = 256 * 1024 * 1024
"""Of all documents and results together. A client other than the owner may have half of either."""
MAX_NAME_CHARACTERS = 200
_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class DocumentJob:
    """One document on its way."""

    id: str
    owner: str
    """Name of the client that has sent it."""
    name: str
    """Of the file, without folders."""
    size_bytes: int
    state: Literal["running", "done", "failed"] = "running"
    n_units: int | None = None
    """None until it is read."""
    n_done: int = 0
    n_failed: int = 0
    characters: int = 0
    eta_s: float | None = None
    report: DocumentReport | None = None
    result: bytes | None = field(default=None, repr=False)
    error: ErrorReport | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    def take(self, event: object) -> None:
        """Take one event of its translation."""
        match event:
            case DocumentStarted():
                self.n_units, self.n_done, self.characters = event.n_units, event.n_known, event.characters
            case UnitSettled():
                self.n_failed += event.error is not None
            case DocumentProgress():
                self.n_done, self.eta_s = event.done_units, event.eta_s
            case DocumentFinished():
                self.state, self.report, self.result = "done", event.report, event.data
                self.n_done, self.n_failed = event.report.n_units, len(event.report.failed)
            case DocumentFailed():
                self.fail(event.error)

    def fail(self, error: ErrorReport) -> None:
        """End without a result."""
        self.state, self.error = "failed", error


class Documents:
    """Translates documents, a few at a time, and keeps their results for a while.

    Args:
        app: Tells which model a reference means.
        service: Translates their units.
        residency: Told that a model is used.
    """

    def __init__(self, app: Application, service: Service, residency: Residency) -> None:
        self._app = app
        self._service = service
        self._residency = residency
        self._jobs: dict[str, DocumentJob] = {}
        self._owners: dict[str, str] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def n_running(self) -> int:
        """Documents that are not finished."""
        return len(self._tasks)

    @property
    def running(self) -> Counter[str]:
        """Documents that are not finished, by their clients' names."""
        return Counter(self._owners.values())

    def start(self, data: bytes, name: str, *, owner: str, options: DocumentOptions) -> DocumentJob:
        """Begin with a document and return at once.

        Raises:
            BusyError: there are too many, or too large ones.
        """
        self._check_room(list(self._jobs.values()), len(data), share=1)
        if owner != OWNER:
            self._check_room([job for job in self._jobs.values() if job.owner == owner], len(data), share=2)
        job = DocumentJob(secrets.token_urlsafe(12), owner, base_name(name), len(data))
        self._jobs[job.id] = job
        task = asyncio.get_running_loop().create_task(self._run(job, data, options))
        self._tasks[job.id], self._owners[job.id] = task, owner
        task.add_done_callback(lambda _: self._end(job))
        return job

    @staticmethod
    def _check_room(jobs: Sequence[DocumentJob], n_bytes: int, *, share: int) -> None:
        size_bytes = sum(job.size_bytes + len(job.result or b"") for job in jobs)
        if len(jobs) >= MAX_DOCUMENTS // share or size_bytes + n_bytes > MAX_BYTES // share:
            raise BusyError(
                f"{len(jobs)} documents are kept already",
                hint="fetch or delete some of them; they are forgotten after a quarter of an hour",
                retry_after_s=60.0,
            )

    def get(self, document_id: str) -> DocumentJob | None:
        """Return a document that has not been forgotten."""
        return self._jobs.get(document_id)

    def forget(self, job: DocumentJob) -> None:
        """Cancel and drop it."""
        self._jobs.pop(job.id, None)
        if job.id in self._tasks:
            self._tasks[job.id].cancel()

    def cancel_all(self) -> None:
        """Cancel everything."""
        for task in self._tasks.values():
            task.cancel()

    async def _run(self, job: DocumentJob, data: bytes, options: DocumentOptions) -> None:
        model: str | None = None
        try:
            model = (await asyncio.to_thread(self._app.resolve_model, options.model)).ref
            self._residency.begin(model)
            events = translate_bytes(data, job.name, options=options, service=self._service)
            async with aclosing(events):  # type: ignore[type-var]
                async for event in events:
                    job.take(event)
        except HymtError as error:
            job.fail(error.report())
        except Exception as error:  # the root of every document: a bug in one must not leave its client waiting
            _logger.exception("a document failed")
            job.fail(HymtError(f"internal error: {type(error).__name__}", hint="see the server's log").report())
        finally:
            if job.state == "running":
                job.fail(CancelledError("the document was cancelled").report())
            job.ended.set()
            if model is not None:
                self._residency.end(model)

    def _end(self, job: DocumentJob) -> None:
        self._tasks.pop(job.id, None)
        self._owners.pop(job.id, None)
        if not asyncio.get_running_loop().is_closed():
            asyncio.get_running_loop().call_later(KEPT_S, self._jobs.pop, job.id, None)


def base_name(name: str) -> str:
    """Return a client's file name without folders and control characters; only its end means anything here."""
    plain = "".join(character for character in name if character.isprintable())
    name = PurePath(plain.replace("\\", "/")).name[-MAX_NAME_CHARACTERS:]
    return "document" if name in {"", ".."} else name
