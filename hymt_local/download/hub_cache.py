"""Files that other programs have fetched from the hub already: hashed, then hard-linked instead of fetched again.

The layout is the hub's published one: `models--OWNER--NAME/blobs/<hash>`, and links to them in `snapshots/<commit>/`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hymt_local.download.part_file import HASH_CHUNK_BYTES, sync_folder
from hymt_local.download.remote_file import RemoteFile, RepoListing, is_usable_name, reading_errors
from hymt_local.download.session import Session
from hymt_local.errors import ModelFileError
from hymt_local.regular_file import read_regular

_SHA256 = re.compile(r"[0-9a-f]{64}")
_GIT_SHA1 = re.compile(r"[0-9a-f]{40}")


def has_content(path: Path, entry: RemoteFile, *, session: Session) -> bool:
    """Hash a file and tell whether it is the published one; never so when no hash is known.

    Raises:
        CancelledError: the user stopped it.
        ModelFileError: it cannot be read.
    """
    with reading_errors(path):
        if entry.digest is None or not path.is_file() or path.stat().st_size != entry.size_bytes:
            return False
        hasher, done_bytes = entry.new_hasher(), 0
        session.meter.start(entry.name, phase="verify", total_bytes=entry.size_bytes)
        with path.open("rb") as stream:
            while chunk := stream.read(HASH_CHUNK_BYTES):
                session.check_cancelled()
                hasher.update(chunk)
                done_bytes += len(chunk)
                session.meter.update(done_bytes)
    return entry.is_digest(hasher.hexdigest())


def cached_paths(entry: RemoteFile, session: Session) -> tuple[Path, ...]:
    """Return where the hub's cache would have the file."""
    if session.network.hub_cache is None or entry.digest is None:
        return ()
    folder = _repo_folder(session.network.hub_cache, entry.repo)
    commit = _commit(folder, entry.revision)
    return (folder / "blobs" / entry.digest, folder / "snapshots" / commit / entry.name)


def find_cached(entry: RemoteFile, session: Session) -> Path | None:
    """Return a verified copy in the hub's cache, None when there is none."""
    for path in cached_paths(entry, session):
        with suppress(ModelFileError, OSError):
            if has_content(path, entry, session=session):
                return path.resolve(strict=True)
    return None


def link(path: Path, target: Path) -> bool:
    """Hard-link a file as `target`, in one step; False where links are impossible. The caller holds the lock."""
    temporary = target.with_name(f".{target.name}.link")
    try:
        temporary.unlink(missing_ok=True)
        os.link(path, temporary)
        temporary.replace(target)
    except OSError:
        return False
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)  # left behind when `target` was this very file
    sync_folder(target.parent)
    return True


def cached_listing(repo: str, revision: str, cache: Path) -> RepoListing | None:
    """Return what the cache holds of a repository; None when it has no snapshot of the revision.

    Only links to blobs count: the name of a blob is its hash, so the content can be verified without the hub.
    """
    folder = _repo_folder(cache, repo)
    commit = _commit(folder, revision)
    snapshot = folder / "snapshots" / commit
    with suppress(OSError):
        if snapshot.is_dir():
            files = tuple(_entries(snapshot, repo=repo, commit=commit))
            return RepoListing(repo, commit, files, is_complete=False)
    return None


def _entries(snapshot: Path, *, repo: str, commit: str) -> Iterator[RemoteFile]:
    for path in sorted(snapshot.iterdir()):
        blob = path.resolve()
        is_sha256, is_git_sha1 = _SHA256.fullmatch(blob.name), _GIT_SHA1.fullmatch(blob.name)
        if (is_sha256 or is_git_sha1) and blob.is_file() and is_usable_name(path.name, repo):
            yield RemoteFile(
                repo=repo,
                name=path.name,
                size_bytes=blob.stat().st_size,
                revision=commit,
                sha256=blob.name if is_sha256 else None,
                git_sha1=blob.name if is_git_sha1 else None,
            )


def _commit(folder: Path, revision: str) -> str:
    """Return the commit of a branch as the cache remembers it; a name that no snapshot has when it does not."""
    if _GIT_SHA1.fullmatch(revision):
        return revision
    with suppress(OSError, UnicodeDecodeError):
        commit = read_regular(folder / "refs" / revision).decode("ascii").strip()
        if _GIT_SHA1.fullmatch(commit):
            return commit
    return "unknown"


def _repo_folder(cache: Path, repo: str) -> Path:
    return cache / f"models--{repo.replace('/', '--')}"
