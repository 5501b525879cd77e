"""What ModelScope says of a repository: asked when the hub cannot be reached. Its revisions are its own."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from hymt_local.download.failures import SourceFailure, TransientFailure
from hymt_local.download.network import Source, modelscope_id
from hymt_local.download.remote_file import RemoteFile, RepoListing, is_usable_name
from hymt_local.download.session import Session, retry_after_s
from hymt_local.download.stream import RemoteStream
from hymt_local.errors import DownloadError, ModelNotFoundError

MOST_BYTES = 4 * 1024 * 1024
"""A listing of 10000 files has less."""


class _File(msgspec.Struct, frozen=True, rename="pascal"):
    path: str
    size: Annotated[int, msgspec.Meta(ge=0)]
    type: str = "blob"
    sha256: str = ""


class _Data(msgspec.Struct, frozen=True, rename="pascal"):
    files: list[_File]


class _Answer(msgspec.Struct, frozen=True, rename="pascal"):
    data: _Data


def look_up(repo: str, source: Source, *, session: Session) -> RepoListing:
    """Ask once for the files of the main branch, with sizes and sha256.

    Raises:
        TransientFailure: no answer, or one that says to ask again.
        SourceFailure: it does not have the repository, or does not answer as ModelScope does.
        DownloadError: offline.
    """
    url = f"{source.endpoint}/api/v1/models/{modelscope_id(repo)}/repo/files?Revision=master&Recursive=false"
    host = urlsplit(url).hostname or source.host
    try:
        answer = msgspec.json.decode(_read(url, repo, host=host, session=session), type=_Answer)
    except msgspec.MsgspecError as error:
        raise SourceFailure(
            DownloadError(f"{host} does not answer as ModelScope does", hint="check MODELSCOPE_ENDPOINT")
        ) from error
    files = tuple(
        RemoteFile(repo=repo, name=file.path, size_bytes=file.size, sha256=file.sha256 or None)
        for file in answer.data.files
        if file.type == "blob" and is_usable_name(file.path, repo)
    )
    return RepoListing(repo, None, files)


def _read(url: str, repo: str, *, host: str, session: Session) -> bytes:
    body = bytearray()
    with RemoteStream(session, url, headers={}) as stream:
        head = stream.head()
        if head.status >= 500 or head.status == 429:
            wanted_s = retry_after_s(head.headers.get("Retry-After"), wall_clock=session.patience.wall_clock)
            raise TransientFailure(f"{host} answered with status {head.status}", retry_after_s=wanted_s)
        if head.status != 200:
            raise SourceFailure(ModelNotFoundError(f"{host} has no repository {modelscope_id(repo)}"))
        for chunk in stream.chunks():
            body += chunk
            if len(body) > MOST_BYTES:
                break
    if head.length not in {None, len(body)}:
        raise TransientFailure(f"{host} broke the connection")
    return bytes(body)
