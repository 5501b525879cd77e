"""The service whose jobs are done in the resident server."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from hymt_local.errors import BusyError, CancelledError, HymtError, InputEncodingError, ServerError, StoreError
from hymt_local.event_stream import MEDIA_TYPE, decode_events
from hymt_local.events import Cancelled, Failed, LastEvent, TranslationRequest
from hymt_local.server_call import Call, not_ours
from hymt_local.server_file import ServerFile
from hymt_local.translation_job import Service, TranslationJob

BUSY_PATIENCE_S = 600.0
"""How long a document waits for a place in the server's line, at each of its requests."""
BUSY_PAUSE_S = 30.0
"""The longest pause between two tries, whatever the server says."""
LEAST_PAUSE_S = 0.05
"""The shortest one."""
ServiceOpener = Callable[[], Service]


class ResidentService:
    """Runs jobs in the resident server; each has a connection and a thread of its own.

    Args:
        find: Returns the server, or None; may start it, so it is called on the thread of a job.
        fall_back: Opens the service that takes over when there is no server; None to fail instead.
        patience_s: How long a request with units waits while the server is busy. One with a text fails at once:
            somebody sits before it.
    """

    def __init__(
        self,
        find: Callable[[], ServerFile | None],
        *,
        fall_back: ServiceOpener | None = None,
        patience_s: float = BUSY_PATIENCE_S,
    ) -> None:
        self._find = find
        self._patience_s = patience_s
        self._fall_back = fall_back
        self._changed = threading.Lock()
        self._finding = threading.Lock()
        self._server: ServerFile | None = None
        self._substitute: Service | None = None
        self._is_closed = False
        self._running: dict[TranslationJob, _Remote] = {}
        self._warnings: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What went wrong without stopping anything, one line each; grows while jobs run."""
        substitute = self._substitute
        return self._warnings + (substitute.warnings if substitute else ())

    def prepare(self) -> None:
        """Find or start the server ahead of the first job; returns at once."""
        threading.Thread(target=self._prepare, name="hymt-resident-start", daemon=True).start()

    def submit(self, request: TranslationRequest) -> TranslationJob:
        """Start a job and return at once. Every error comes as its last event; after `close`, that is Cancelled."""
        job = TranslationJob(request, cancel=self._cancel)
        with self._changed:
            if self._is_closed:
                job.put(Cancelled())
                return job
            remote = self._running[job] = _Remote()
        threading.Thread(target=self._run, args=[job, remote], name="hymt-resident-job", daemon=True).start()
        return job

    def close(self) -> None:
        """Cancel every job; the server stays."""
        with self._changed:
            self._is_closed = True
            running, substitute = list(self._running), self._substitute
        for job in running:
            self._cancel(job)
        if substitute is not None:
            substitute.close()

    def _cancel(self, job: TranslationJob) -> None:
        job.put(Cancelled())
        with self._changed:
            remote = self._running.get(job)
        if remote is not None:
            remote.cancel()

    # On threads of its own

    def _prepare(self) -> None:
        with contextlib.suppress(HymtError):  # the first job will say it
            self._locate()

    def _run(self, job: TranslationJob, remote: _Remote) -> None:
        try:
            server = self._locate()
            if server is None or not self._follow(job, remote, server):
                self._follow_substitute(job, remote)
        except HymtError as error:
            job.put(Failed(error.report()))
        except Exception as error:  # the root of every job: a bug in one must not leave its consumer waiting
            job.put(Failed(HymtError(f"internal error: {error!r}", hint="please report it").report()))
        finally:
            job.put(Cancelled())  # ignored after a last event
            with self._changed:
                self._running.pop(job, None)

    def _locate(self) -> ServerFile | None:
        """Find the server once for all jobs; a failure to start it is a warning when something can take over."""
        with self._finding:
            if self._server is None and self._substitute is None:
                try:
                    self._server = self._find()
                except (ServerError, StoreError) as error:
                    if self._fall_back is None:
                        raise
                    self._warnings += (error.message,)
            return self._server

    def _follow(self, job: TranslationJob, remote: _Remote, server: ServerFile) -> bool:
        """Like `_follow_once`, but a document waits while the server is busy.

        Raises:
            HymtError: why it cannot be done.
        """
        deadline = time.monotonic() + (self._patience_s if job.request.units else 0.0)
        while True:
            try:
                return self._follow_once(job, remote, server)
            except BusyError as error:
                pause_s = min(max(error.retry_after_s, LEAST_PAUSE_S), BUSY_PAUSE_S)
                if time.monotonic() + pause_s > deadline or remote.wait_for_cancel(pause_s):
                    raise

    def _follow_once(self, job: TranslationJob, remote: _Remote, server: ServerFile) -> bool:
        """Put the events of the server's job; False when the server could not be had and nothing has come of it.

        Raises:
            HymtError: why it cannot be done.
        """
        n_events = 0
        try:
            with remote.calling(server) as call:
                reply = call.send("POST", "/v1/translate", _encoded(job.request), accept=MEDIA_TYPE)
                if reply.status != 200:
                    reply.value()
                    raise not_ours(reply.status)
                for event in decode_events(reply.lines):
                    n_events += 1
                    job.put(event)
                    if isinstance(event, LastEvent):
                        return True
        except (OSError, msgspec.DecodeError) as error:
            return self._after_break(job, server, n_events, reason=str(error))
        return self._after_break(job, server, n_events, reason="the stream ended early")

    def _after_break(self, job: TranslationJob, server: ServerFile, n_events: int, *, reason: str) -> bool:
        if job.done:
            return True
        with self._finding:
            if self._server is server:
                self._server = None  # the next job looks for another one
        if n_events == 0 and self._fall_back is not None:
            return False
        raise ServerError(
            f"the server at {server.url} went away: {reason}",
            hint="try again; `hymt serve` starts it, its log says why",
        )

    def _follow_substitute(self, job: TranslationJob, remote: _Remote) -> None:
        """Let a service of this process do it.

        Raises:
            ServerError: there is none.
        """
        with self._changed:
            if self._substitute is None:
                if self._fall_back is None:
                    raise ServerError("no server runs", hint="`hymt serve` starts one")
                if self._is_closed:
                    raise CancelledError("the service is closed")
                self._substitute = self._fall_back()
            substitute = self._substitute
        local = substitute.submit(job.request)
        remote.takes_over(local)
        for event in local:
            job.put(event)


class _Remote:
    """What cancels the work behind a job, wherever it is done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._end: Callable[[], None] | None = None

    def calling(self, server: ServerFile) -> Call:
        call = Call(server)
        self._set(call.close)
        return call

    def takes_over(self, local: TranslationJob) -> None:
        self._set(local.cancel)

    def wait_for_cancel(self, timeout_s: float) -> bool:
        return self._cancelled.wait(timeout_s)

    def cancel(self) -> None:
        with self._lock:
            self._cancelled.set()
            end = self._end
        if end is not None:
            end()

    def _set(self, end: Callable[[], None]) -> None:
        with self._lock:
            self._end = end
            is_late = self._cancelled.is_set()
        if is_late:
            end()


def _encoded(request: TranslationRequest) -> bytes:
    """Return the body of a request.

    Raises:
        InputEncodingError: the text holds half a character.
    """
    body: dict[str, Any] = msgspec.structs.asdict(request)
    body |= {"priority": request.priority.name.lower(), "stream": True}
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        raise InputEncodingError(
            f"the text holds half a character at position {error.start}", hint="save it as UTF-8"
        ) from error
