"""The files of a repository, from whoever knows them: the hub, ModelScope, or what the hub's cache holds."""

from __future__ import annotations

from hymt_local.download import hub, modelscope
from hymt_local.download.failures import SourceFailure, final_error
from hymt_local.download.hub_cache import cached_listing
from hymt_local.download.network import Source
from hymt_local.download.remote_file import DEFAULT_REVISION, RepoListing, check_repository
from hymt_local.download.session import Session, with_retries
from hymt_local.errors import DownloadError


def list_repository(repo: str, revision: str, *, session: Session) -> RepoListing:
    """Return the files at the top of a repository, with sizes and hashes.

    ModelScope, whose revisions are its own, is asked for the main branch only; the cache is the last resort.

    Raises:
        ModelNotFoundError: no such repository or revision.
        DownloadError: offline, gated, refused, or nobody answers, and the cache has no copy.
        CancelledError: the user stopped it.
    """
    check_repository(repo, revision)
    try:
        return _ask(repo, revision, session=session)
    except _NobodyAnswers as silence:
        cache = session.network.hub_cache
        cached = cached_listing(repo, revision, cache) if cache else None
        if cached is None:
            raise silence.error from silence
        return cached


class _NobodyAnswers(SourceFailure):
    """No source is left."""


def _ask(repo: str, revision: str, *, session: Session) -> RepoListing:
    failures: list[SourceFailure] = []
    try:
        sources = session.order.sources()
    except DownloadError as offline:
        raise _NobodyAnswers(offline) from offline
    usable = [source for source in sources if source.kind == "hub" or revision == DEFAULT_REVISION]
    for index, source in enumerate(usable):
        try:
            listing = _ask_one(repo, revision, source=source, session=session, is_last=index == len(usable) - 1)
        except SourceFailure as failure:
            failures.append(failure)
        else:
            session.order.prefer(source)
            return listing
    raise _NobodyAnswers(final_error(failures))


def _ask_one(repo: str, revision: str, *, source: Source, session: Session, is_last: bool) -> RepoListing:
    def ask() -> RepoListing:
        if source.kind == "hub":
            return hub.look_up(repo, revision, session)
        return modelscope.look_up(repo, source, session=session)

    return with_retries(session, ask, name=repo, is_last=is_last)
