"""Speaking to the resident server: one request on one connection, its answer line by line.

Speaks HTTP over a plain socket: the standard library's client would cost more time than the server takes to answer.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec

from hymt_local.errors import BusyError, ErrorReport, HymtError, ServerError, error_of
from hymt_local.server_file import ServerFile

CONNECT_S = 2.0
SILENCE_S = 60.0
"""The server pings every ten seconds."""
MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_HEAD_LINE_BYTES = 64 * 1024


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
            raise not_ours(self.status) from error
        if self.status < 400:
            return value
        reported = _reported(value, self.status)
        if isinstance(reported, BusyError) and self.retry_after_s is not None:
            reported.retry_after_s = self.retry_after_s
        raise reported


class Call:
    """One request on a connection of its own. `close` may come from any thread, and ends a read under way.

    Args:
        server: Whom to ask.
        silence_s: How long it may say nothing.
    """

    def __init__(self, server: ServerFile, *, silence_s: float = SILENCE_S) -> None:
        self._server = server
        self._silence_s = silence_s
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
        connection = _connected(self._server.host, self._server.port)
        if self._server.certificate is not None:
            connection = _secured(connection, self._server)
        connection.settimeout(self._silence_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            if not self._is_closed:
                self._socket = connection
                return connection
        connection.close()
        raise ConnectionAbortedError("cancelled")


def ask(server: ServerFile, method: str, path: str, body: object = None, *, silence_s: float = SILENCE_S) -> Any:
    """Ask the server one thing and return its answer.

    Raises:
        HymtError: what the server says went wrong.
        ServerError: it does not answer.
    """
    data = b"" if body is None else msgspec.json.encode(body)
    try:
        with Call(server, silence_s=silence_s) as call:
            return call.send(method, path, data).value()
    except OSError as error:
        raise _unreachable(server, error) from error


def _read_status(stream: BinaryIO) -> int:
    line = stream.readline(MAX_HEAD_LINE_BYTES)
    if not line.endswith(b"\n"):
        raise ConnectionResetError("it closed the connection without an answer")
    version, _, rest = line.partition(b" ")
    status = rest[:3]
    if not version.startswith(b"HTTP/1.") or not status.isdigit():
        raise not_ours(0)
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


def _connected(host: str, port: int) -> socket.socket:
    """Connect to an address. Not by `create_connection`: it looks names up, and loads the codec of host names for it.

    Raises:
        OSError: nothing listens there.
    """
    connection = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        connection.settimeout(CONNECT_S)
        connection.connect((host, port))
    except BaseException:
        connection.close()
        raise
    return connection


def _secured(connection: socket.socket, server: ServerFile) -> socket.socket:
    import ssl

    context = ssl.create_default_context(cafile=server.certificate)
    context.check_hostname = False  # the very certificate of the server is trusted, and nothing else
    return context.wrap_socket(connection)


def _reported(value: Any, status: int) -> HymtError:
    """Return the error in the server's answer as one of this process."""
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict):
        return not_ours(status)
    code, message, hint = (str(error.get(name, "")) for name in ("code", "message", "hint"))
    return error_of(ErrorReport(code, message, hint, ServerError.exit_status, status))


def not_ours(status: int) -> ServerError:
    """Return the error for an answer that is not one of this program's server."""
    return ServerError(
        f"the server gave an answer that makes no sense (status {status})",
        hint="`hymt stop` and `hymt serve` start it anew",
    )


def _unreachable(server: ServerFile, error: OSError) -> ServerError:
    return ServerError(
        f"the server at {server.url} does not answer: {error.strerror or error}",
        hint=f"it is process {server.pid}; `hymt serve` starts a new one when it has ended",
    )
