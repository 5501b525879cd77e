"""What the hub says of a repository. The only importer of huggingface-hub, and of it only metadata calls.

No byte of a file goes through that library: its transfers restart from zero and check sizes only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

import hymt_local
from hymt_local.download.failures import TransientFailure
from hymt_local.download.network import Network, explain, is_cut_off, is_loopback, offline_error
from hymt_local.download.remote_file import RemoteFile, RepoListing, check_repository, is_usable_name
from hymt_local.download.session import Session, retry_after_s
from hymt_local.download.stream import gated_error, refused_error
from hymt_local.errors import DownloadError, HymtError, ModelNotFoundError

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError

TIMEOUT_S = 10.0
_ONE_CLIENT = threading.Lock()
"""huggingface-hub keeps one HTTP client per process; ours, which knows the network rules, is lent to it per lookup."""


class _Lfs(msgspec.Struct, frozen=True):
    size: int
    sha256: str


class _Sibling(msgspec.Struct, frozen=True):
    rfilename: str
    size: int | None = None
    blob_id: str | None = None
    lfs: _Lfs | None = None


class _Repository(msgspec.Struct, frozen=True):
    sha: str
    siblings: list[_Sibling]


def look_up(repo: str, revision: str, session: Session) -> RepoListing:
    """Ask once for the commit of a revision and for its files, with sizes and hashes.

    Raises:
        TransientFailure: no answer, or one that says to ask again.
        ModelNotFoundError: no such repository or revision.
        DownloadError: gated or refused; offline; or the server is no hub.
    """
    network = session.network
    network.check(network.hub)
    from httpx2 import HTTPError  # of the library's own client; connection errors pass through as they are
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    host = urlsplit(network.hub).hostname or network.hub
    api = HfApi(
        endpoint=network.hub,
        token=network.token_for(network.hub) or False,
        library_name="hymt-local",
        library_version=hymt_local.__version__,
    )
    try:
        with _client(network):
            info = api.model_info(repo, revision=revision, files_metadata=True, timeout=TIMEOUT_S)
        decoded = msgspec.convert(info, _Repository, from_attributes=True)
    except HfHubHTTPError as error:
        raise _translated(error, repo, revision=revision, host=host, session=session) from error
    except OfflineModeIsEnabled as error:
        raise offline_error(host) from error
    except HTTPError as error:
        cause = _root_cause(error)
        raise TransientFailure(explain(network.hub, cause), answered=False, cut_off=is_cut_off(cause)) from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DownloadError(f"{host} does not answer as a hub does", hint="check HF_ENDPOINT") from error
    return _listing(repo, decoded, host=host)


def _listing(repo: str, found: _Repository, *, host: str) -> RepoListing:
    check_repository(repo, found.sha)
    files = []
    for sibling in found.siblings:
        if not is_usable_name(sibling.rfilename, repo):
            continue
        size_bytes = sibling.lfs.size if sibling.lfs else sibling.size
        if size_bytes is None:
            raise DownloadError(f"{host} does not give the size of {sibling.rfilename}", hint="check HF_ENDPOINT")
        sha256 = sibling.lfs.sha256 if sibling.lfs else None
        git_sha1 = None if sibling.lfs else sibling.blob_id
        files.append(RemoteFile(repo, sibling.rfilename, size_bytes, found.sha, sha256, git_sha1))
    return RepoListing(repo, found.sha, tuple(files))


def _root_cause(error: BaseException) -> BaseException:
    """The library's client wraps what the system said twice."""
    while error.__context__ is not None:
        error = error.__context__
    return error


@contextmanager
def _client(network: Network) -> Iterator[None]:
    """Lend the library a client that asks before every request, redirects included, and close it afterwards."""
    import httpx2
    from huggingface_hub import close_session, constants, set_client_factory

    def check(request: httpx2.Request) -> None:
        network.check(str(request.url))

    def make_client() -> httpx2.Client:
        return httpx2.Client(
            event_hooks={"request": [check]},
            follow_redirects=True,
            timeout=TIMEOUT_S,
            trust_env=not is_loopback(network.hub),  # no proxy between this machine and itself
        )

    with _ONE_CLIENT:
        constants.HF_HUB_DISABLE_TELEMETRY = True  # 2.4.0 asks the hub for a list of agents to put one into its headers
        set_client_factory(make_client)
        try:
            yield
        finally:
            close_session()


def _translated(
    error: HfHubHTTPError, repo: str, *, revision: str, host: str, session: Session
) -> HymtError | TransientFailure:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    status = error.response.status_code
    if isinstance(error, GatedRepoError):
        return gated_error(repo, host=host)
    if isinstance(error, RevisionNotFoundError):
        return ModelNotFoundError(f"{repo} has no revision {revision!r}", hint="give a branch, a tag or a commit")
    if isinstance(error, RepositoryNotFoundError) or status == 404:
        return ModelNotFoundError(
            f"{host} has no repository {repo}", hint="check the id; a private or gated one needs HF_TOKEN"
        )
    if status >= 500 or status in {408, 425, 429}:
        wanted_s = retry_after_s(error.response.headers.get("Retry-After"), wall_clock=session.patience.wall_clock)
        return TransientFailure(f"{host} answered with status {status}", retry_after_s=wanted_s)
    return refused_error(repo, host=host, status=status, headers=error.response.headers)
