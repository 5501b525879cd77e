"""What is known of a published file before it is here: place, size and hash. The hash decides what is accepted."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hymt_local.errors import ModelFileError, ModelNotFoundError

DEFAULT_REVISION = "main"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}")
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_REVISION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]|/(?![./]))*")
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\.|$)")
_DISTRUST = "do not trust this repository"
_DIGEST_LENGTHS = {"sha256": 64, "git_sha1": 40}


class Hasher(Protocol):
    """What hashlib objects do."""

    def update(self, data: bytes, /) -> None:
        """Take in more content."""

    def hexdigest(self) -> str:
        """Return the digest of the content so far."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a repository, at one revision.

    Raises:
        ModelFileError: the name leads out of a folder or is none that every system takes, or a hash is malformed.
        ModelNotFoundError: the repository or revision is not spelled as one.
    """

    repo: str
    name: str
    size_bytes: int
    revision: str = DEFAULT_REVISION
    """A commit, or a branch when only the hash pins the content."""
    sha256: str | None = None
    git_sha1: str | None = None
    """The id of the git blob: for small files, which have no published sha256."""

    def __post_init__(self) -> None:
        """Check what comes from a server before it becomes a path or a URL."""
        check_repository(self.repo, self.revision)
        if not _is_plain(self.name):
            raise ModelFileError(
                f"{self.repo} names a file {self.name[:80]!r}, which is no plain file name", hint=_DISTRUST
            )
        for field, length in _DIGEST_LENGTHS.items():
            digest = getattr(self, field)
            if digest is not None and not re.fullmatch(rf"[0-9a-f]{{{length}}}", digest):
                raise ModelFileError(f"{self.repo}: {field} of {self.name} is {digest[:80]!r}, not a hash")
        if self.size_bytes < 0:
            raise ModelFileError(f"{self.repo}: {self.name} has {self.size_bytes} bytes")

    @property
    def digest(self) -> str | None:
        """The hash that the content must have; None when only its size is known."""
        return self.sha256 or self.git_sha1

    def new_hasher(self) -> Hasher:
        """Return what computes `digest` from the content."""
        if self.sha256 or not self.git_sha1:
            return hashlib.sha256()
        return hashlib.sha1(b"blob %d\0" % self.size_bytes, usedforsecurity=False)

    def is_digest(self, digest: str) -> bool:
        """Tell whether this is the digest of the right content."""
        return self.digest in {None, digest}


@dataclass(frozen=True, slots=True)
class RepoListing:
    """The files of a repository at one revision."""

    repo: str
    revision: str | None
    """The commit; None when the source has commits of its own."""
    files: tuple[RemoteFile, ...]
    is_complete: bool = True
    """False when it lists only what happens to be in a cache."""


def check_repository(repo: str, revision: str) -> None:
    """Check the spelling of a repository and a branch, tag or commit.

    Raises:
        ModelNotFoundError: it cannot exist.
    """
    if not _REPOSITORY.fullmatch(repo) or ".." in repo or len(repo) > 200:
        raise ModelNotFoundError(
            f"{repo[:80]!r} is not the id of a repository", hint="write it as OWNER/NAME: tencent/Hunyuan-MT-7B"
        )
    if not _REVISION.fullmatch(revision) or ".." in revision or len(revision) > 200:
        raise ModelNotFoundError(
            f"{revision[:80]!r} is not a revision of {repo}", hint="give a branch, a tag or a commit, or none"
        )


def is_usable_name(name: str, repo: str) -> bool:
    """Tell whether a name is that of a plain file at the top of a repository.

    Raises:
        ModelFileError: the name tries to leave the folder.
    """
    if "\\" in name or ":" in name or "\0" in name or ".." in name.split("/") or name.startswith("/"):
        raise ModelFileError(f"{repo} names a file {name[:80]!r}, outside its folder", hint=_DISTRUST)
    return _is_plain(name)


def _is_plain(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and not name.endswith(".") and not _RESERVED.match(name)


@contextmanager
def reading_errors(path: Path) -> Iterator[None]:
    """Turn what the system says while a file is read into an error of ours."""
    try:
        yield
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror or error}", hint="check the disk") from error
