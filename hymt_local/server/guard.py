"""The door: host, origin, size, token and rate of every request, before any route sees it. Owns the request log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hymt_local.errors import (
    AccessError,
    BusyError,
    ForbiddenError,
    HymtError,
    MisdirectedError,
    RequestTooLargeError,
    UsageError,
)
from hymt_local.server.clients import Client
from hymt_local.server.context import ServerContext, token_in_headers
from hymt_local.server.dialect import Credentials, Dialect, dialect_of, refusal
from hymt_local.server.request_log import RequestLine, RequestLog

PUBLIC_PATHS = frozenset({"/", "/health", "/ready", "/openapi.json", "/favicon.ico", "/v1/session"})
"""Need no token: they tell nothing of the user, or give one for a code. Besides everything below `/page/`."""
PUBLIC_PREFIX = "/page/"
UPLOADS = ("multipart/form-data",)
ALLOWED_METHODS = "GET, POST, DELETE, OPTIONS"
ALLOWED_HEADERS = "Authorization, Content-Type, Accept, X-API-Key, Last-Event-ID"
EXPOSED_HEADERS = "X-Job-Id, Retry-After, Content-Disposition"
PREFLIGHT_S = 600
CROWDED_S = 2.0
"""What is too many waits so long."""
_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{0,5})?")
"""What RFC 9110 calls a host and a port, as far as names of machines need it: no user, path or space."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
"""Those that the log names; any other token is text that a client made up."""

_logger = logging.getLogger(__name__)


class Guard:
    """ASGI middleware around the whole application.

    Args:
        app: The application.
        context: Whom to let in.
        dialects: Who shapes refusals; the native one is last.
        log: Where a line per request goes.
    """

    def __init__(self, app: ASGIApp, context: ServerContext, dialects: Sequence[Dialect], log: RequestLog) -> None:
        self._app = app
        self._context = context
        self._dialects = dialects
        self._log = log
        self._n_visits = 0
        self._room = _Room(context.limits.held_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request in, or answer it with a refusal."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["path"] = _tidy(scope["path"])
        held = _Held(receive, self._room)
        visit = _Visit(scope, held, send, self._context, dialect_of(scope["path"], self._dialects))
        self._n_visits += 1
        try:
            await visit.run(self._app, is_crowded=self._n_visits > self._context.limits.connections)
        finally:
            self._n_visits -= 1
            held.forget()
            self._context.metrics.count_request(visit.dialect.NAME, visit.status)
            self._log.write(visit.line())


def _tidy(path: str) -> str:
    """Return the path without doubled and trailing slashes, which clients add when they join addresses."""
    while "//" in path:
        path = path.replace("//", "/")
    return path.rstrip("/") or "/"


class _Visit:
    """One request on its way through the door."""

    def __init__(self, scope: Scope, receive: _Held, send: Send, context: ServerContext, dialect: Dialect) -> None:
        self.dialect = dialect
        self.status = 499
        """Until an answer is begun: the client went away."""
        self._scope = scope
        self._headers = Headers(scope=scope)
        self._origin = ", ".join(self._headers.getlist("origin")) or None  # two are as good as none that is known
        self._context = context
        self._body = _Body(receive, self._most_bytes(), context.limits.body_s)
        self._body.is_complete = not {"content-length", "transfer-encoding"}.intersection(self._headers.keys())
        self._send = send
        self._started_at = time.perf_counter()
        self._n_sent = 0
        self._client: Client | None = None
        self._is_origin_allowed = False

    async def run(self, app: ASGIApp, *, is_crowded: bool) -> None:
        try:
            self._check_host()
            self._check_origin()
            if self._scope["method"] == "OPTIONS" and "access-control-request-method" in self._headers:
                await self._answer(self._preflight())
                return
            if is_crowded:
                raise BusyError("too many requests at once", hint="try again in a moment", retry_after_s=CROWDED_S)
            self._check_length()
            await self._check_token()
            await app(self._scope, self._body.receive, self.send)
        except ClientDisconnect:
            return
        except HymtError as error:
            await self._refuse(error)
        except Exception as error:  # the root of every request: a defect must not show its inside
            _logger.exception("a request failed")
            if self.status != 499:
                raise
            await self._refuse(HymtError(f"internal error: {type(error).__name__}", hint="see the server's log"))

    def line(self) -> RequestLine:
        """Return what the log keeps: no text, no query, no path that a client made up."""
        return RequestLine(
            client=self._client.name if self._client else "-",
            dialect=self.dialect.NAME,
            method=self._scope["method"] if self._scope["method"] in METHODS else "?",
            status=self.status,
            received_bytes=self._body.n_bytes,
            sent_bytes=self._n_sent,
            duration_s=time.perf_counter() - self._started_at,
        )

    # What is checked, in this order

    def _check_host(self) -> None:
        host = self._headers.get("host", "")
        name = _host_name(host)
        if name not in self._context.access.hosts:
            raise MisdirectedError(
                f"this server is not {host[:100]!r}",
                hint="use 127.0.0.1, or allow the name: `hymt config set server_hosts NAME`",
            )

    def _check_origin(self) -> None:
        if self._origin is None:
            return
        own = f"{self._scope.get('scheme', 'http')}://{self._headers.get('host', '')}"
        allowed = self._context.access.origins | self._context.clients.allowed_origins() | {own}
        if self._origin not in allowed:
            raise ForbiddenError(
                f"pages of {self._origin[:100]!r} may not use this server",
                hint="`hymt clients pair ORIGIN` lets an extension in; hosted pages cannot reach local servers",
            )
        self._is_origin_allowed = True

    def _check_length(self) -> None:
        if {"content-length", "transfer-encoding"} <= set(self._headers.keys()):
            raise UsageError("the body has two lengths", hint="send Content-Length or Transfer-Encoding, not both")
        declared = self._headers.get("content-length", "0")
        if not declared.isdigit():
            raise UsageError("the Content-Length is not a number", hint="send the length of the body")
        if int(declared) > self._body.most_bytes:
            raise _too_large(self._body.most_bytes)

    async def _check_token(self) -> None:
        path = self._scope["path"]
        token = await self._token(path)
        self._client = self._context.clients.identify(token, origin=self._origin)
        if self._client is None:
            if path in PUBLIC_PATHS or path.startswith(PUBLIC_PREFIX):
                return
            raise AccessError(
                "the token is not valid" if token else "a token is needed",
                hint="send `Authorization: Bearer TOKEN`; `hymt ps --token` prints it",
            )
        self._scope.setdefault("state", {})["client"] = self._client
        self._context.clients.account(self._client).charge_request()

    async def _token(self, path: str) -> str | None:
        query = QueryParams(self._scope.get("query_string", b""))
        token = token_in_headers(self._headers) or query.get("token")
        if token:
            return token
        body = await self._body.read_ahead() if path in self.dialect.BODY_TOKEN_PATHS else b""
        return self.dialect.token_of(Credentials(self._headers, query, body))

    def _most_bytes(self) -> int:
        limits = self._context.limits
        is_upload = self._headers.get("content-type", "").startswith(UPLOADS)
        return limits.document_bytes if is_upload else limits.body_bytes

    # What is answered

    def _preflight(self) -> Response:
        headers = {
            "Access-Control-Allow-Methods": ALLOWED_METHODS,
            "Access-Control-Allow-Headers": ALLOWED_HEADERS,
            "Access-Control-Max-Age": str(PREFLIGHT_S),
        }
        if self._headers.get("access-control-request-private-network") == "true":
            headers["Access-Control-Allow-Private-Network"] = "true"
        return Response(status_code=204, headers=headers)

    async def _refuse(self, error: HymtError) -> None:
        if self.status != 499:
            return  # too late to say anything
        response = refusal(error, self.dialect.error_response)
        if isinstance(error, AccessError):
            response.headers.setdefault("WWW-Authenticate", "Bearer")
        if self._body.is_complete:
            await self._answer(response)
        else:
            await self._answer_early(response)

    async def _answer_early(self, response: Response) -> None:
        """Answer before the body has come, and throw the rest of it away for a moment.

        A client that is still sending would otherwise find a broken connection instead of the answer.
        """
        response.headers["Connection"] = "close"
        await self.send(
            {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
        )
        await self.send({"type": "http.response.body", "body": bytes(response.body), "more_body": True})
        await self._body.drain(self._context.limits.linger_bytes, self._context.limits.linger_s)
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _answer(self, response: Response) -> None:
        await response(self._scope, self._body.receive, self.send)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._add_headers(MutableHeaders(scope=message))
        else:
            self._n_sent += len(message.get("body", b""))
        await self._send(message)

    def _add_headers(self, headers: MutableHeaders) -> None:
        headers.setdefault("X-Content-Type-Options", "nosniff")
        headers.setdefault("Cache-Control", "no-store")
        if self._is_origin_allowed and self._origin is not None:
            headers["Access-Control-Allow-Origin"] = self._origin
            headers.setdefault("Access-Control-Expose-Headers", EXPOSED_HEADERS)
            headers.append("Vary", "Origin")


class _Room:
    """Memory for the bodies of all requests."""

    def __init__(self, n_bytes: int) -> None:
        self._n_free = n_bytes

    def take(self, n_bytes: int) -> None:
        """Take a part of it.

        Raises:
            BusyError: there is not so much left.
        """
        if n_bytes > self._n_free:
            raise BusyError("too many large requests at once", hint="try again in a moment", retry_after_s=CROWDED_S)
        self._n_free -= n_bytes

    def give_back(self, n_bytes: int) -> None:
        """Give a part back."""
        self._n_free += n_bytes


class _Held:
    """Receives what a request brings, and takes room for it until the request ends."""

    def __init__(self, receive: Receive, room: _Room) -> None:
        self._receive = receive
        self._room = room
        self._n_bytes = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        n_bytes = len(message.get("body", b""))
        self._room.take(n_bytes)
        self._n_bytes += n_bytes
        return message

    def forget(self) -> None:
        self._room.give_back(self._n_bytes)
        self._n_bytes = 0


class _Body:
    """A request's body on its way in: bounded in size and time, and readable twice."""

    def __init__(self, receive: _Held, most_bytes: int, most_s: float) -> None:
        self.most_bytes = most_bytes
        self.n_bytes = 0
        self.is_complete = False
        self._receive = receive
        self._deadline = time.monotonic() + most_s
        self._ahead: bytes | None = None

    async def read_ahead(self) -> bytes:
        """Return the whole body; `receive` will give it again."""
        parts = []
        while not self.is_complete:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            parts.append(message.get("body", b""))
        self._ahead = b"".join(parts)
        return self._ahead

    async def drain(self, most_bytes: int, most_s: float) -> None:
        """Read the rest and keep nothing of it, up to a size and a time."""
        with contextlib.suppress(TimeoutError, BusyError):
            async with asyncio.timeout(most_s):
                while not self.is_complete and self.n_bytes < most_bytes:
                    self._receive.forget()
                    message = await self._receive()
                    self.n_bytes += len(message.get("body", b""))
                    self.is_complete = not message.get("more_body", False)  # a disconnect has none

    async def receive(self) -> Message:
        """Return the next message.

        Raises:
            RequestTooLargeError: more came than may.
            UsageError: the rest does not come.
        """
        if self._ahead is not None:
            body, self._ahead = self._ahead, None
            return {"type": "http.request", "body": body, "more_body": False}
        if self.is_complete:
            return await self._receive()  # nothing, or that the client has gone
        try:
            async with asyncio.timeout(max(0.0, self._deadline - time.monotonic())):
                message = await self._receive()
        except TimeoutError as error:
            raise UsageError("the body did not come in time", hint="send it faster, or less of it") from error
        self.n_bytes += len(message.get("body", b""))
        self.is_complete = not message.get("more_body", False)
        if self.n_bytes > self.most_bytes:
            raise _too_large(self.most_bytes)
        return message


def _too_large(most_bytes: int) -> RequestTooLargeError:
    return RequestTooLargeError(f"the body is larger than {most_bytes} bytes", hint="send it in parts")


def _host_name(host: str) -> str:
    """Return the name in a Host header, lower case, without port and brackets; empty when it is none."""
    found = _HOST.fullmatch(host)
    return (found["address"] or found["name"]).lower().removesuffix(".") if found else ""
