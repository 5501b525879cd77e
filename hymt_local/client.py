"""The resident server as its clients see it: where it runs, what it can be asked, and its ResidentService.

Speaks HTTP over a plain socket: the standard library's client would cost more time than the server takes to answer.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec

from hymt_local import __version__
from hymt_local.config import write_atomically
from hymt_local.errors import (
    BusyError,
    CancelledError,
    ErrorReport,
    HymtError,
    InputEncodingError,
    ServerError,
    StoreError,
    error_of,
)
from hymt_local.event_stream import MEDIA_TYPE, decode_events
from hymt_local.events import Cancelled, Failed, LastEvent, TranslationRequest
from hymt_local.paths import Paths
from hymt_local.process_lock import is_locked
from hymt_local.translation_job import Service, TranslationJob

PROTOCOL = 1
"""Of `server.json` and the native interface; a server of another one is left alone."""
CONNECT_S = 2.0
SILENCE_S = 60.0
"""The server pings every ten seconds."""
START_S = 20.0
"""Python, the packages and a slow disk."""
STOP_S = 6.0
"""It takes three at most."""
POLL_S = 0.05
BUSY_PATIENCE_S = 600.0
"""How long a document waits for a place in the server's line, at each of its requests."""
BUSY_PAUSE_S = 30.0
"""The longest pause between two tries, whatever the server says."""
MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_HEAD_LINE_BYTES = 64 * 1024
MAX_FILE_BYTES = 64 * 1024
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class ServerFile(msgspec.Struct, frozen=True, kw_only=True):
    """`server.json`: the running server and how to talk to it. Private."""

    pid: Annotated[int, msgspec.Meta(gt=0, lt=2**31)]
    protocol: int
    version: str
    started_at: float
    """Seconds since 1970."""
    host: Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z.:_-]+$", max_length=255)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)]
    token: Annotated[str, msgspec.Meta(pattern=r"^[!-~]+$", max_length=1000)]
    certificate: str | None = None
    """With TLS: what its clients on this machine trust."""

    @property
    def url(self) -> str:
        """The address for people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}"


def write_server_file(paths: Paths, server: ServerFile) -> None:
    """Say where the server is; the caller holds the lock.

    Raises:
        StoreError: the file cannot be written.
    """
    write_atomically(paths.server_file, msgspec.json.encode(server).decode() + "\n")


def find_server(paths: Paths) -> ServerFile | None:
    """Return the running server of this user, or None. The lock decides: a file that a killed one left says nothing.

    Its token goes nowhere else: whoever has taken the port of a dead server is not spoken to.
    """
    try:
        server = msgspec.json.decode(read_own(paths.server_file), type=ServerFile)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
    is_there = server.protocol == PROTOCOL and is_locked(paths.server_lock) and _lives(server.pid)
    return server if is_there else None


def read_own(file: Path) -> bytes:
    """Return a file that only this user can have written: texts go where `server.json` says.

    Raises:
        OSError: it is none, or a link, or another user may write it.
    """
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError(f"{file} is not a file")
        if sys.platform != "win32" and (status.st_uid != os.getuid() or status.st_mode & _WRITABLE_BY_OTHERS):
            raise PermissionError(f"{file} may be another user's work")
        return stream.read(MAX_FILE_BYTES)


def usable_server(paths: Paths) -> ServerFile | None:
    """Return the running server if it is of this version: another one may not know what a request of today says."""
    server = find_server(paths)
    return server if server is not None and server.version == __version__ else None


def stop_server(paths: Paths, server: ServerFile) -> None:
    """Stop the server and wait for its end.

    Raises:
        ServerError: it does not end.
    """
    ask(server, "POST", "/v1/stop")
    deadline = time.monotonic() + STOP_S
    while is_locked(paths.server_lock):
        if time.monotonic() > deadline:
            raise ServerError(
                f"the server (process {server.pid}) does not end", hint=f"end it with `kill -9 {server.pid}`"
            )
        time.sleep(POLL_S)


def _lives(pid: int) -> bool:
    """Tell whether a process may exist: the lock may be that of a successor, which has not written its file yet."""
    if sys.platform == "win32":
        return True  # there the same call would end it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@dataclass(frozen=True, slots=True)
class Reply:
    """The head of a response, and its body line by line."""

    status: int
    lines: Iterator[bytes]
    retry_after_s: float | None = None

    def value(self) -> Any:
        """Return the body, decoded.

        Raises:
            HymtError: the server says what went wrong.
            ServerError: the answer is not one of this program's server.
        """
        body = b"".join(self.lines)
        try:
            value = msgspec.json.decode(body) if body else None
        except msgspec.DecodeError as error:
            raise _not_ours(self.status) from error
        if self.status < 400:
            return value
        reported = _reported(value, self.status)
        if isinstance(reported, BusyError) and self.retry_after_s is not None:
            reported.retry_after_s = self.retry_after_s
        raise reported


class Call:
    """One request on a connection of its own. `close` may come from any thread, and ends a read under way."""

    def __init__(self, server: ServerFile) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_closed = False

    def send(self, method: str, path: str, body: bytes = b"", *, accept: str = "application/json") -> Reply:
        """Send the request and wait for the head of its response.

        Raises:
            OSError: no connection, or it broke.
            ServerError: what answers does not speak HTTP.
        """
        connection = self._connect()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._server.host}:{self._server.port}\r\n"
            f"Authorization: Bearer {self._server.token}\r\nAccept: {accept}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        connection.sendall(head.encode("latin-1") + body)
        stream = connection.makefile("rb")
        status = _read_status(stream)
        headers = _read_headers(stream)
        is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        lines = _chunked_lines(stream) if is_chunked else iter(stream.readline, b"")
        return Reply(status, lines, _seconds(headers.get("retry-after", "")))

    def close(self) -> None:
        """End it."""
        with self._lock:
            self._is_closed = True
            connection, self._socket = self._socket, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def __enter__(self) -> Call:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection((self._server.host, self._server.port), timeout=CONNECT_S)
        if self._server.certificate is not None:
            connection = _secured(connection, self._server)
        connection.settimeout(SILENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            if not self._is_closed:
                self._socket = connection
                return connection
        connection.close()
        raise ConnectionAbortedError("cancelled")


def ask(server: ServerFile, method: str, path: str, body: object = None) -> Any:
    """Ask the server one thing and return its answer.

    Raises:
        HymtError: what the server says went wrong.
        ServerError: it does not answer.
    """
    data = b"" if body is None else msgspec.json.encode(body)
    try:
        with Call(server) as call:
            return call.send(method, path, data).value()
    except OSError as error:
        raise _unreachable(server, error) from error


def start_server(paths: Paths, environ: Mapping[str, str]) -> ServerFile:
    """Start the server in the background and wait until it takes requests; one of another version makes way.

    Of several who do this at once one server comes out, and all of them get it.

    Raises:
        ServerError: it does not start.
    """
    import subprocess  # only here: the shell's path does without

    old = find_server(paths)
    if old is not None and old.version != __version__:
        stop_server(paths, old)
    process = subprocess.Popen(
        [sys.executable, "-m", "hymt_local", "serve", "--background"],
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        close_fds=True,
    )
    threading.Thread(target=process.wait, name="hymt-server-reaper", daemon=True).start()
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        server = usable_server(paths)
        if server is not None:
            return server
        if process.returncode not in {None, 0}:  # 0: another one has won
            break
        time.sleep(POLL_S)
    raise ServerError("the server did not start in the background", hint="`hymt serve` says why")


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
                pause_s = min(max(error.retry_after_s, POLL_S), BUSY_PAUSE_S)
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
                    raise _not_ours(reply.status)
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
    body: dict[str, Any] = {each.name: getattr(request, each.name) for each in fields(request)}
    body |= {"priority": request.priority.name.lower(), "stream": True}
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        raise InputEncodingError(
            f"the text holds half a character at position {error.start}", hint="save it as UTF-8"
        ) from error


def _read_status(stream: BinaryIO) -> int:
    line = stream.readline(MAX_HEAD_LINE_BYTES)
    if not line.endswith(b"\n"):
        raise ConnectionResetError("it closed the connection without an answer")
    version, _, rest = line.partition(b" ")
    status = rest[:3]
    if not version.startswith(b"HTTP/1.") or not status.isdigit():
        raise _not_ours(0)
    return int(status)


def _read_headers(stream: BinaryIO) -> dict[str, str]:
    headers = {}
    while (line := stream.readline(MAX_HEAD_LINE_BYTES)) not in {b"\r\n", b"\n"}:
        if not line.endswith(b"\n"):
            raise ConnectionResetError("it closed the connection in the middle of its answer")
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return headers


def _seconds(value: str) -> float | None:
    """Return a number of seconds of a header, None when it is none."""
    return float(value[:9]) if value.isascii() and value.isdigit() else None


def _chunked_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a chunked body as soon as they are whole.

    Raises:
        ConnectionResetError: it broke off.
    """
    rest = b""
    while True:
        size = stream.readline(MAX_HEAD_LINE_BYTES).partition(b";")[0].strip()
        try:
            n_bytes = int(size, 16)
        except ValueError as error:
            raise ConnectionResetError("the stream broke off") from error
        data = stream.read(n_bytes)
        if len(data) < n_bytes or not stream.readline(MAX_HEAD_LINE_BYTES):
            raise ConnectionResetError("the stream broke off")
        if n_bytes == 0:
            break
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise ConnectionResetError("the stream makes no sense")
        yield from lines
    if rest:
        yield rest


def _secured(connection: socket.socket, server: ServerFile) -> socket.socket:
    import ssl

    context = ssl.create_default_context(cafile=server.certificate)
    context.check_hostname = False  # the very certificate of the server is trusted, and nothing else
    return context.wrap_socket(connection)


def _reported(value: Any, status: int) -> HymtError:
    """Return the error in the server's answer as one of this process."""
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict):
        return _not_ours(status)
    code, message, hint = (str(error.get(name, "")) for name in ("code", "message", "hint"))
    return error_of(ErrorReport(code, message, hint, ServerError.exit_status, status))


def _not_ours(status: int) -> ServerError:
    return ServerError(
        f"the server gave an answer that makes no sense (status {status})",
        hint="`hymt stop` and `hymt serve` start it anew",
    )


def _unreachable(server: ServerFile, error: OSError) -> ServerError:
    return ServerError(
        f"the server at {server.url} does not answer: {error.strerror or error}",
        hint=f"it is process {server.pid}; `hymt serve` starts a new one when it has ended",
    )
