"""The Range downloader: brings one file of known size and hash here, from the first source that can give it.

The hash alone decides what is accepted, so sources mix freely: a part begun at one is continued at another.
"""

from __future__ import annotations

import re
from pathlib import Path

from hymt_local.download.failures import SourceFailure, TransientFailure, final_error
from hymt_local.download.network import Source
from hymt_local.download.part_file import PartFile, remove_other_parts
from hymt_local.download.remote_file import RemoteFile
from hymt_local.download.session import Attempts, Session
from hymt_local.download.stream import RemoteStream, ResponseHead, check_status
from hymt_local.errors import DownloadError, ModelFileError

WHOLE_TRIES = 2
"""A wrong hash is tried once more: a bit can flip on the way or on the disk, twice it is the source."""


def transfer(entry: RemoteFile, target: Path, *, session: Session) -> None:
    """Bring the file to `target`; the caller holds its lock.

    Raises:
        DownloadError: refused, or no source answers; what is here stays for the next time.
        ModelNotFoundError: no source has it.
        ModelFileError: what the source gives is another file; nothing of it stays.
        StoreError: the disk is full or cannot be written.
        CancelledError: the user stopped it.
    """
    remove_other_parts(target, entry)
    with PartFile(target, entry) as part:
        part.resume(session)
        for _ in range(WHOLE_TRIES):
            source = _complete(part, entry, session=session)
            if part.is_right():
                part.publish()
                return
            part.restart()
    raise ModelFileError(
        f"{entry.name} from {source.host} is not the published file (wrong {'sha256' if entry.sha256 else 'hash'})",
        hint="try another HF_ENDPOINT; if it is the same there, the file was replaced or tampered with",
    )


def _complete(part: PartFile, entry: RemoteFile, *, session: Session) -> Source:
    """Receive what is missing from the first source that gives it, which is then asked first for other files."""
    failures: list[SourceFailure] = []
    sources = session.order.sources()
    for index, source in enumerate(sources):
        try:
            _complete_from(source, part, entry=entry, session=session, is_last=index == len(sources) - 1)
        except SourceFailure as failure:
            failures.append(failure)
        else:
            session.order.prefer(source)
            return source
    raise final_error(failures)


def _complete_from(source: Source, part: PartFile, *, entry: RemoteFile, session: Session, is_last: bool) -> None:
    patience = session.patience
    attempts = Attempts(
        session,
        entry.name,
        limit=patience.attempts,
        unreachable_limit=patience.attempts if is_last else patience.unreachable_attempts,
    )
    furthest = part.size_bytes
    session.meter.start(entry.name, phase="download", total_bytes=entry.size_bytes, done_bytes=part.size_bytes)
    while part.size_bytes < entry.size_bytes:
        try:
            _receive(source, part, entry=entry, session=session)
        except TransientFailure as failure:
            gained_bytes = max(0, part.size_bytes - furthest)
            furthest += gained_bytes
            attempts.failed(failure, gained_bytes=gained_bytes)


def _receive(source: Source, part: PartFile, *, entry: RemoteFile, session: Session) -> None:
    """Make one request and take what it brings."""
    session.check_cancelled()
    headers = {"Range": f"bytes={part.size_bytes}-"} if part.size_bytes else {}
    with RemoteStream(session, source.url(entry), headers=headers) as stream:
        head = stream.head()
        check_status(head, entry, host=source.host, session=session)
        _check_range(head, part, entry=entry, host=source.host)
        for chunk in stream.chunks():
            part.append(chunk[: entry.size_bytes - part.size_bytes])
            session.meter.update(part.size_bytes)
            if part.size_bytes == entry.size_bytes:
                return
    raise TransientFailure(f"{source.host} broke the connection after {part.size_bytes} of {entry.size_bytes} bytes")


def _check_range(head: ResponseHead, part: PartFile, *, entry: RemoteFile, host: str) -> None:
    """Check that the body continues the part; begin again where it does not."""
    _check_encoding(head, entry, host=host)
    start, total_bytes = _content_range(head)
    if total_bytes not in {None, entry.size_bytes}:
        raise _other_size(entry, host=host, size_bytes=total_bytes)
    if head.status == 200:
        if part.size_bytes:
            part.restart()  # the server knows no ranges
    elif head.status == 416 or start != part.size_bytes:
        part.restart()
        raise TransientFailure(f"{host} does not continue where {entry.name} stopped")


def _check_encoding(head: ResponseHead, entry: RemoteFile, *, host: str) -> None:
    if head.status == 416:
        return
    if head.is_web_page and not entry.name.lower().endswith((".html", ".htm")):
        raise SourceFailure(
            DownloadError(
                f"{host} answered with a web page instead of {entry.name}",
                hint="open it in a browser: a login of this network or a filter may stand between",
            )
        )
    if head.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise SourceFailure(DownloadError(f"{host} sends {entry.name} compressed, which cannot be continued"))


def _content_range(head: ResponseHead) -> tuple[int | None, int | None]:
    """Return the first byte and the size of the whole file, as far as the answer says."""
    if head.status == 200:
        return 0, head.length
    match = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", head.headers.get("Content-Range", "").strip())
    if not match:
        return None, None
    start, total = match.groups()
    return int(start) if start else None, int(total) if total != "*" else None


def _other_size(entry: RemoteFile, *, host: str, size_bytes: int | None) -> SourceFailure:
    return SourceFailure(
        ModelFileError(
            f"{entry.name} at {host} has {size_bytes} bytes, the published file {entry.size_bytes}",
            hint="try another HF_ENDPOINT; if it is the same there, the file was replaced",
        )
    )
