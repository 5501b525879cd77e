"""A server in a thread of this process, on a port of its own, around a service of the test; and a small HTTP client."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hymt_local import __version__
from hymt_local.application import open_application
from hymt_local.errors import BusyError
from hymt_local.jobs import LocalService
from hymt_local.server.clients import Client
from hymt_local.server.context import Access, ServerContext
from hymt_local.server.limits import ServerLimits
from hymt_local.server.running import RunningServer, bind, serve
from hymt_local.server_file import PROTOCOL, ServerFile

TOKEN = "t" * 43
WAIT_S = 10.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A running server and how to talk to it."""

    port: int
    context: ServerContext
    loop: asyncio.AbstractEventLoop
    stop: Callable[[], None] = field(repr=False)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = TOKEN,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request on a connection of its own; a body that is not bytes goes as JSON."""
        sent = dict(headers or {})
        if token is not None:
            sent.setdefault("Authorization", f"Bearer {token}")
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.request(method, path, body=body, headers=sent)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        """Return a raw connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)

    def fill_line(self) -> None:
        """Take every place in the waiting line for good, once the requests before have given theirs back."""
        deadline = time.monotonic() + WAIT_S
        while self.context.line.n_taken:
            assert time.monotonic() < deadline
            time.sleep(0.002)

        def fill() -> None:
            with contextlib.suppress(BusyError):
                while True:
                    self.context.line.enter(Client("owner", is_owner=True))

        self.on_loop(fill)

    def on_loop(self, work: Callable[[], Any]) -> Any:
        """Run something on the server's loop."""

        async def run() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(WAIT_S)


@contextmanager
def serving(
    service: LocalService,
    *,
    limits: ServerLimits | None = None,
    access: Access | None = None,
    settings: Mapping[str, Any] | None = None,
    model: str = "echo",
    environ: Mapping[str, str] | None = None,
    request_log: Path | None = None,
) -> Iterator[Served]:
    """Serve until the context is left; the service is closed with it."""
    app = open_application(environ or os.environ, flags={"model": model, **(settings or {})})
    listener = bind(0)
    ready: list[RunningServer] = []
    started = threading.Event()

    def on_ready(server: RunningServer) -> None:
        ready.append(server)
        started.set()

    def run() -> None:
        more: dict[str, Any] = {"limits": limits, "access": access, "request_log": request_log}
        serve(app, service, [listener], token=TOKEN, on_ready=on_ready, **more)

    thread = threading.Thread(target=run, name="test-server")
    thread.start()
    try:
        assert started.wait(WAIT_S)
        server = ready[0]
        yield Served(listener.getsockname()[1], server.context, server.loop, server.stop)
    finally:
        for server in ready:
            server.stop()
        thread.join(WAIT_S)
        service.close()
        assert not thread.is_alive()


def server_file(served: Served, *, token: str = TOKEN) -> ServerFile:
    """Return what `server.json` would say of it."""
    where: dict[str, Any] = {"host": "127.0.0.1", "port": served.port}
    return ServerFile(pid=os.getpid(), protocol=PROTOCOL, version=__version__, started_at=0.0, token=token, **where)


@dataclass(frozen=True)
class Form:
    """A form with a file, as it is sent."""

    headers: Mapping[str, str]
    body: bytes


def multipart(fields: Mapping[str, str], *, name: str, data: bytes) -> Form:
    """Return a form; an empty file name leaves the file out."""
    boundary = "a-boundary-of-tests"
    parts = [f'name="{field}"\r\n\r\n{value}'.encode() for field, value in fields.items()]
    if name:
        parts.append(f'name="file"; filename="{name}"\r\n\r\n'.encode() + data)
    body = b"".join(b"--%s\r\nContent-Disposition: form-data; %s\r\n" % (boundary.encode(), part) for part in parts)
    return Form({"Content-Type": f"multipart/form-data; boundary={boundary}"}, body + b"--%s--\r\n" % boundary.encode())
