"""One GET, read ahead by a thread of its own: the caller can leave at any moment, whatever the network does."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException, HTTPResponse
from types import TracebackType
from typing import NoReturn
from urllib.parse import urlsplit

from hymt_local.download.failures import SourceFailure, TransientFailure
from hymt_local.download.network import explain, is_certificate_error, is_cut_off
from hymt_local.download.remote_file import RemoteFile
from hymt_local.download.session import CANCEL_POLL_S, Session, retry_after_s
from hymt_local.errors import DownloadError, ModelNotFoundError

CHUNK_BYTES = 256 * 1024
_READ_AHEAD = 8
_RETRIED = frozenset({408, 425, 429})
_END = None


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status and headers of an answer."""

    status: int
    headers: Message

    @property
    def length(self) -> int | None:
        """Bytes of the body; None when the server does not say."""
        value = self.headers.get("Content-Length", "")
        return int(value) if value.isascii() and value.isdigit() else None

    @property
    def is_web_page(self) -> bool:
        """A page for people: of a login, an error, or a filter between us and the server."""
        return self.headers.get_content_type() == "text/html"


class RemoteStream:
    """An answer on its way.

    Args:
        session: Network, timeouts, and the wish to stop.
        url: What to get; may lead elsewhere by redirects.
        headers: Of the request.
    """

    def __init__(self, session: Session, url: str, *, headers: Mapping[str, str]) -> None:
        self._session = session
        self._url = url
        self._host = urlsplit(url).hostname or url
        self._items: queue.Queue[ResponseHead | bytes | Exception | None] = queue.Queue(maxsize=_READ_AHEAD)
        self._closed = threading.Event()
        self._answered = False

        def send() -> HTTPResponse:
            return session.network.open(url, headers=headers, timeout_s=session.patience.timeout_s)

        threading.Thread(target=self._read, args=(send,), name="hymt-download", daemon=True).start()

    def __enter__(self) -> RemoteStream:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._closed.set()

    def head(self) -> ResponseHead:
        """Wait for the status and headers.

        Raises:
            TransientFailure: no answer.
            SourceFailure: a server whose certificate is wrong.
            DownloadError: a redirect to where nothing is fetched from.
            CancelledError: the user stopped it.
        """
        item = self._next()
        assert isinstance(item, ResponseHead)
        self._answered = True
        return item

    def chunks(self) -> Iterator[bytes]:
        """Yield the body in pieces of at most CHUNK_BYTES, as they arrive (raises like `head`)."""
        while item := self._next():
            assert isinstance(item, bytes)
            yield item

    def _next(self) -> ResponseHead | bytes | None:
        while True:
            self._session.check_cancelled()
            try:
                item = self._items.get(timeout=CANCEL_POLL_S)
            except queue.Empty:
                continue
            if isinstance(item, Exception):
                self._fail(item)
            return item

    def _fail(self, error: Exception) -> NoReturn:
        if is_certificate_error(error):
            raise SourceFailure(
                DownloadError(
                    f"the certificate of {self._host} is not valid",
                    hint="check this machine's clock; behind a company's proxy set SSL_CERT_FILE to its certificate",
                )
            ) from error
        if isinstance(error, OSError | HTTPException):
            reason = explain(self._url, error)
            raise TransientFailure(reason, answered=self._answered, cut_off=is_cut_off(error)) from error
        raise error

    def _read(self, send: Callable[[], HTTPResponse]) -> None:
        try:
            with send() as response:
                self._put(ResponseHead(response.status, response.headers))
                while (chunk := response.read1(CHUNK_BYTES)) and self._put(chunk):
                    pass
            self._put(_END)
        except Exception as error:  # raised again in the thread that waits for it
            self._put(error)

    def _put(self, item: ResponseHead | bytes | Exception | None) -> bool:
        while not self._closed.is_set():
            try:
                self._items.put(item, timeout=CANCEL_POLL_S)
            except queue.Full:
                continue
            return True
        return False


def check_status(head: ResponseHead, entry: RemoteFile, *, host: str, session: Session) -> None:
    """Let a success pass, and 416, which the caller understands.

    Raises:
        DownloadError: access is refused: the user must do something.
        SourceFailure: this server will never give this file.
        TransientFailure: it may give it later.
    """
    status = head.status
    if status in {200, 206, 416}:
        return
    if status in {401, 403}:
        raise refused_error(entry.repo, host=host, status=status, headers=head.headers)
    if status in {404, 410}:
        raise SourceFailure(
            ModelNotFoundError(
                f"{host} has no {entry.name} in {entry.repo} at {entry.revision[:12]} (status {status})",
                hint="check the id and the revision",
            )
        )
    if status >= 500 or status in _RETRIED:
        wanted_s = retry_after_s(head.headers.get("Retry-After"), wall_clock=session.patience.wall_clock)
        raise TransientFailure(f"{host} answered with status {status}", retry_after_s=wanted_s)
    raise SourceFailure(DownloadError(f"{host} answered with status {status} for {entry.name}"))


def refused_error(repo: str, *, host: str, status: int, headers: Mapping[str, str] | Message) -> DownloadError:
    """Return what to tell a user whom the server does not let in."""
    if headers.get("X-Error-Code") == "GatedRepo":
        return gated_error(repo, host=host)
    return DownloadError(
        f"{host} refuses access to {repo} (status {status})",
        hint=f"check the id; if it is private or gated, open https://{host}/{repo} and set HF_TOKEN to your token",
    )


def gated_error(repo: str, *, host: str) -> DownloadError:
    """Return what to tell a user who has not accepted the licence."""
    return DownloadError(
        f"{repo} is gated: its licence must be accepted first",
        hint=f"accept it at https://{host}/{repo}, then set HF_TOKEN to a token of that account",
    )
