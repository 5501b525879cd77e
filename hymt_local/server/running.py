"""The server while it runs: uvicorn with limits on slow peers, and a stop that does not wait for open streams."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from hymt_local.application import Application
from hymt_local.errors import ServerError
from hymt_local.jobs import LocalService
from hymt_local.server.app import build_app
from hymt_local.server.connection import guarded_protocol
from hymt_local.server.context import Access, ServerContext, build_context
from hymt_local.server.limits import ServerLimits
from hymt_local.server.request_log import RequestLog

LOOPBACK = "127.0.0.1"
N_PORTS = 20
"""Ports tried from the first one on."""
GRACE_S = 2
"""What is left of a stop after every translation was cancelled."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that takes requests."""

    context: ServerContext
    loop: asyncio.AbstractEventLoop
    stop: Callable[[], None]
    """Begin to stop; any thread, any number of times."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Files for TLS."""

    certificate: Path
    key: Path


def bind(port: int, *, host: str = LOOPBACK) -> socket.socket:
    """Return a listening socket; port 0 is any free one.

    Raises:
        OSError: the port is taken, or may not be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
        listener.set_inheritable(False)
    except BaseException:
        listener.close()
        raise
    return listener


def bind_first(port: int, *, host: str = LOOPBACK) -> socket.socket:
    """Return a listening socket on the first free port from `port` on: one that is taken is a stranger's.

    Raises:
        ServerError: none of them is free.
    """
    failure: OSError | None = None
    for candidate in range(port, port + N_PORTS):
        try:
            return bind(candidate, host=host)
        except OSError as error:
            failure = error
    raise ServerError(
        f"cannot listen on {host}, ports {port} to {port + N_PORTS - 1}: {failure}",
        hint="name another one: `hymt serve --port N`",
    )


def serve(
    app: Application,
    service: LocalService,
    listeners: Sequence[socket.socket],
    *,
    token: str,
    limits: ServerLimits | None = None,
    access: Access | None = None,
    tls: Tls | None = None,
    exit_idle_s: float | None = None,
    on_ready: Callable[[RunningServer], None],
    request_log: Path | None,
) -> None:
    """Serve until it is stopped, by a signal when this is the main thread. The caller closes the service."""
    limits = limits or ServerLimits(waiting_requests=app.settings.server_queue)

    async def run() -> None:
        stop = _Stop()
        context = build_context(app, service, token=token, stop=stop, limits=limits, access=access)
        log = RequestLog(request_log, alert=lambda line: _alert(context, line))
        try:
            server = _Server(_config(context, log, limits, tls), context)
            stop.server = server
            loop = asyncio.get_running_loop()
            server.on_start = lambda: on_ready(RunningServer(context, loop, stop))
            watching = loop.create_task(_stop_when_idle(context, exit_idle_s)) if exit_idle_s else None
            await server.serve(sockets=list(listeners))
            if watching is not None:
                watching.cancel()
        finally:
            context.residency.close()
            log.close()

    asyncio.run(run())


async def _stop_when_idle(context: ServerContext, idle_s: float) -> None:
    """Only translations count: whoever looks whether the server lives does not keep it alive."""
    while True:
        rest_s = context.watch.used_at + idle_s - time.monotonic()
        if rest_s <= 0 and not context.flights.n_active and not context.documents.n_running:
            context.stop()
            return
        await asyncio.sleep(max(rest_s, 1.0))


def _alert(context: ServerContext, line: str) -> None:
    context.metrics.count_alert()
    _logger.warning("alert: %s", line)


def _config(context: ServerContext, log: RequestLog, limits: ServerLimits, tls: Tls | None) -> uvicorn.Config:
    return uvicorn.Config(
        build_app(context, log=log),
        http=guarded_protocol(limits),
        ws="none",
        loop="asyncio",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
    )


class _Stop:
    """Makes the server stop, once there is one; any thread."""

    server: uvicorn.Server | None = None

    def __call__(self) -> None:
        if self.server is not None:
            self.server.should_exit = True


class _Server(uvicorn.Server):
    """Tells when it is ready, and cancels every translation before it waits for connections to end."""

    def __init__(self, config: uvicorn.Config, context: ServerContext) -> None:
        super().__init__(config)
        self.on_start: Callable[[], None] = lambda: None
        self._context = context

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal, without raising it once more as uvicorn does: there are files to tidy."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._context.flights.cancel_all()
        self._context.documents.cancel_all()
        await super().shutdown(sockets)


def address(listener: socket.socket, *, tls: Tls | None = None) -> str:
    """Return the base URL of a listening socket."""
    host, port, *_ = _name(listener)
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{port}"


def _name(listener: socket.socket) -> tuple[Any, ...]:
    name = listener.getsockname()
    assert isinstance(name, tuple)
    return name
