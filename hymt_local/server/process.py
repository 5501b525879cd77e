"""The server as a process: one per user, found by its file, ended by signal or request. Owns lock, file and token."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hymt_local import __version__
from hymt_local.application import Application
from hymt_local.client_keys import TOKEN_BYTES
from hymt_local.errors import HymtError, ServerError, UsageError
from hymt_local.jobs import LocalService
from hymt_local.process_lock import ProcessLock
from hymt_local.server.context import LOOPBACK_NAMES, Access
from hymt_local.server.running import LOOPBACK, RunningServer, Tls, bind, bind_first, serve
from hymt_local.server_file import PROTOCOL, ServerFile, find_server, read_own, write_server_file

ANY_ADDRESS = frozenset({"0.0.0.0", "::", ""})
CLOSE_S = 0.8
"""For the engine to stop, after streams had two seconds to end: three together."""
OTHER_STARTS_S = 10.0
"""How long the winner of a race may take until its file is there."""
FIRST_PASSED_DESCRIPTOR = 3
"""systemd's convention for sockets it has opened (sd_listen_fds)."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How to serve."""

    port: int | None = None
    """None: the setting's, or one of the next."""
    listen: str | None = None
    """An address beyond loopback."""
    tls: Tls | None = None
    allows_plain_text: bool = False
    """Beyond loopback without TLS."""
    exit_idle_s: float | None = None
    """End when nothing was translated for so long."""
    loads_model: bool = True
    """Read the default model right after the start."""


class AlreadyRunningError(ServerError):
    """This user's server runs already."""

    code = "already_running"


def run_server(
    app: Application,
    options: ServeOptions,
    *,
    environ: Mapping[str, str],
    on_ready: Callable[[RunningServer, ServerFile], None],
) -> None:
    """Serve until a signal or `hymt stop`. For the main thread.

    Raises:
        AlreadyRunningError: there is one.
        UsageError: it would listen beyond this machine without protection.
        ServerError: no port is free.
        StoreError: the state folder cannot be written.
    """
    check_reach(options)
    _logger.debug("%d models are known", len(app.catalog.models))  # a wrong catalog is told now, not to every client
    with _only_server(app), _passed_socket(environ) or _bind(app, options) as listener:
        token = secrets.token_urlsafe(TOKEN_BYTES)
        server_file = _describe(listener, options, token=token)
        cache_path = app.paths.database if app.settings.cache else None
        service = LocalService(app.open_model, cache_path=cache_path, has_room=app.has_room)

        def ready(server: RunningServer) -> None:
            write_server_file(app.paths, server_file)
            if options.loads_model:
                threading.Thread(target=_load, args=[service, server], name="hymt-load", daemon=True).start()
            on_ready(server, server_file)

        try:
            serve(
                app,
                service,
                [listener],
                token=token,
                access=_access(app, options),
                tls=options.tls,
                exit_idle_s=options.exit_idle_s,
                on_ready=ready,
                request_log=app.paths.request_log,
            )
        finally:
            _remove(app.paths.server_file, token)
            close_or_leave(service)


def check_reach(options: ServeOptions) -> None:
    """Refuse to listen beyond this machine in plain text, unless that is asked for in so many words.

    Raises:
        UsageError: the options are not enough.
    """
    if options.listen is None or options.listen in LOOPBACK_NAMES:
        return
    if options.tls is None and not options.allows_plain_text:
        raise UsageError(
            f"listening on {options.listen or 'every address'} would send texts and tokens in plain text",
            hint="add --tls-certificate FILE --tls-key FILE, or --plain-text where the network is yours alone",
        )


@contextmanager
def _only_server(app: Application) -> Iterator[None]:
    """Hold the lock, or wait for the file of the one that has it.

    Raises:
        AlreadyRunningError: it runs.
        ServerError: it holds the lock and takes no requests.
    """
    lock = ProcessLock(app.paths.server_lock)
    deadline = time.monotonic() + OTHER_STARTS_S
    while not lock.acquire():
        server = find_server(app.paths)
        if server is not None:
            raise AlreadyRunningError(
                f"a server runs already at {server.url} (process {server.pid})", hint="`hymt stop` ends it"
            )
        if time.monotonic() > deadline:
            raise ServerError("another server is starting or stopping", hint="try again in a moment")
    try:
        with contextlib.suppress(OSError):  # writing it anew will say what is wrong
            app.paths.server_file.unlink(missing_ok=True)  # a killed one's: with this lock held it would be believed
        yield
    finally:
        lock.release()


def _passed_socket(environ: Mapping[str, str]) -> socket.socket | None:
    """Return the listening socket that systemd has opened for this process."""
    if environ.get("LISTEN_PID") != str(os.getpid()) or environ.get("LISTEN_FDS", "0") == "0":
        return None
    return socket.socket(fileno=FIRST_PASSED_DESCRIPTOR)


def _bind(app: Application, options: ServeOptions) -> socket.socket:
    host = options.listen or LOOPBACK
    if options.port is None:
        return bind_first(app.settings.server_port, host=host)
    try:
        return bind(options.port, host=host)
    except OSError as error:
        raise ServerError(
            f"cannot listen on {host}, port {options.port}: {error.strerror or error}",
            hint="leave --port out to take a free one",
        ) from error


def _describe(listener: socket.socket, options: ServeOptions, *, token: str) -> ServerFile:
    host, port, *_ = listener.getsockname()
    return ServerFile(
        pid=os.getpid(),
        protocol=PROTOCOL,
        version=__version__,
        started_at=time.time(),
        host=LOOPBACK if host in ANY_ADDRESS else host,
        port=port,
        token=token,
        certificate=str(options.tls.certificate.absolute()) if options.tls else None,
    )


def _access(app: Application, options: ServeOptions) -> Access:
    names = {*LOOPBACK_NAMES, *(name.lower() for name in _listed(app.settings.server_hosts))}
    if options.listen and options.listen not in ANY_ADDRESS:
        names.add(options.listen.lower())
    return Access(frozenset(names), frozenset(_listed(app.settings.server_origins)))


def _listed(text: str) -> list[str]:
    return [part.strip().rstrip("/") for part in text.split(",") if part.strip()]


def _load(service: LocalService, server: RunningServer) -> None:
    """Read the default model, so that the first request need not wait; a failure is that request's to tell."""
    try:
        name = service.load()
    except HymtError as error:
        _logger.warning("the model was not loaded ahead: %s", error.message)
        return
    with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
        server.loop.call_soon_threadsafe(server.context.residency.touch, name)


def _remove(file: Path, token: str) -> None:
    """Remove the file unless another server has written it."""
    with contextlib.suppress(OSError):
        if token.encode() in read_own(file):
            file.unlink()


def close_or_leave(service: LocalService) -> None:
    """Close the service; when the engine hangs, end the process without it."""
    closer = threading.Thread(target=service.close, name="hymt-closer", daemon=True)
    closer.start()
    closer.join(CLOSE_S)
    if closer.is_alive():
        _logger.warning("the engine does not stop: the server ends without it")
        os._exit(0)
