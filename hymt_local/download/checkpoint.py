"""A whole checkpoint: configuration, vocabulary, licence and safetensors; never anything that could run code.

The folder gets a note of where its files came from, `.hymt-source.json`: with it a later call needs no network.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from hymt_local.config import write_atomically
from hymt_local.download.listing import list_repository
from hymt_local.download.obtain import check_space, make_folder, missing_bytes, obtain
from hymt_local.download.progress import ProgressCallback
from hymt_local.download.remote_file import DEFAULT_REVISION, RemoteFile, RepoListing
from hymt_local.download.session import Patience, Session, open_session
from hymt_local.errors import DownloadError, ModelError, ModelFileError, UnsupportedModelError
from hymt_local.regular_file import read_regular

NOTE_NAME = ".hymt-source.json"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_WEIGHTS = re.compile(r"(?i).+\.safetensors")
_WANTED = re.compile(
    r"(?i)(generation_)?config\.json"
    r"|tokenizer[\w.-]*\.(json|model|jinja)|[\w.-]+\.tiktoken|vocab\.(json|txt)|merges\.txt|special_tokens_map\.json"
    r"|added_tokens\.json|chat_template\.(json|jinja)|.+\.safetensors(\.index\.json)?"
    r"|(licen[cs]e|notice|copying)[\w.-]*"
)
_CODE = re.compile(r"(?i).+\.(py|pyc|sh|bin|pt|pth|ckpt|pkl|so|dll|exe|zip|tar|gz)")
_PICKLES = re.compile(r"(?i).+\.(bin|pt|pth|ckpt)")


class SourceNote(msgspec.Struct, frozen=True, kw_only=True):
    """What the note in a checkpoint folder says."""

    repo: str
    asked_revision: str
    """The branch, tag or commit that was asked for."""
    revision: str | None
    """The commit; None when it came from a source with commits of its own."""
    files: tuple[RemoteFile, ...]


def fetch_checkpoint(
    repo: str,
    revision: str | None,
    folder: Path,
    *,
    environ: Mapping[str, str],
    offline: bool = False,
    on_progress: ProgressCallback | None = None,
    cancel: threading.Event | None = None,
    patience: Patience | None = None,
    check_config: Callable[[Path], None] | None = None,
) -> Path:
    """Return a folder with a verified checkpoint: `folder`, or the one that `repo` names on this machine.

    Args:
        repo: OWNER/NAME on the hub, or a local folder, which is returned as it is.
        revision: Branch, tag or commit; None is the main branch.
        folder: Where the files go, and nothing else should be. Files of an earlier revision are removed from it.
        environ: As for `fetch_file`.
        offline: As for `fetch_file`: works when the folder or the hub's cache has all files.
        on_progress: As for `fetch_file`; counts all files together too.
        cancel: As for `fetch_file`.
        patience: As for `fetch_file`.
        check_config: Called with the folder when all but the weights are there; what it raises saves their download.

    Raises:
        HymtError: as `fetch_file` says; UnsupportedModelError: the repository has no safetensors.
    """
    local = Path(repo)
    if local.is_dir():
        return local
    session = open_session(environ, offline=offline, on_progress=on_progress, cancel=cancel, patience=patience)
    make_folder(folder)
    note = _describe(repo, revision or DEFAULT_REVISION, folder, session=session)
    session.meter.expect(sum(entry.size_bytes for entry in note.files))
    check_space(folder, sum(missing_bytes(entry, folder, session=session) for entry in note.files))
    small, weights = _split(note.files)
    _obtain_all(small, folder, session=session)
    if check_config is not None:
        check_config(folder)
    _obtain_all(weights, folder, session=session)
    _remove_earlier(folder, note)
    _write_note(folder, note)
    return folder


def read_note(folder: Path) -> SourceNote | None:
    """Return where the files of a checkpoint folder came from; None when `fetch_checkpoint` did not complete it."""
    with suppress(OSError, msgspec.MsgspecError, ModelError):
        return msgspec.json.decode(read_regular(folder / NOTE_NAME), type=SourceNote)
    return None


def select_files(listing: RepoListing) -> tuple[RemoteFile, ...]:
    """Return what a conversion needs, weights last.

    Raises:
        UnsupportedModelError: no safetensors.
        DownloadError: none in the cache, and no source answers.
        ModelFileError: no configuration, or weights whose hash was not published.
    """
    wanted = [entry for entry in listing.files if _WANTED.fullmatch(entry.name) and not _CODE.fullmatch(entry.name)]
    small, weights = _split(_distinct(wanted))
    if not weights and not listing.is_complete:
        raise DownloadError(
            f"no source answers, and the hub's cache has only a part of {listing.repo}", hint="go online and try again"
        )
    if not weights:
        pickled = any(_PICKLES.fullmatch(entry.name) for entry in listing.files)
        reason = "its weights are pickles, which can run code when they are read" if pickled else "it has no weights"
        raise UnsupportedModelError(
            f"{listing.repo} has no safetensors: {reason}", hint="give the repository of the bf16 checkpoint"
        )
    if not any(entry.name == "config.json" for entry in small):
        raise ModelFileError(f"{listing.repo} has no config.json", hint="give the repository of a whole checkpoint")
    for entry in weights:
        if entry.sha256 is None:
            raise ModelFileError(
                f"no sha256 of {entry.name} in {listing.repo} is published: it cannot be verified",
                hint="try another HF_ENDPOINT",
            )
    return (*small, *weights)


def _describe(repo: str, revision: str, folder: Path, *, session: Session) -> SourceNote:
    """Return what to fetch: from the folder's own note when that cannot be outdated, or when nobody else can say."""
    note = _matching_note(folder, repo, revision=revision)
    if note is not None and (session.network.offline or _COMMIT.fullmatch(revision)):
        return note
    try:
        listing = list_repository(repo, revision, session=session)
    except DownloadError:
        if note is not None:
            return note
        raise
    return SourceNote(repo=repo, asked_revision=revision, revision=listing.revision, files=select_files(listing))


def _matching_note(folder: Path, repo: str, *, revision: str) -> SourceNote | None:
    note = read_note(folder)
    if note is None or note.repo != repo or revision not in {note.asked_revision, note.revision}:
        return None
    return note


def _obtain_all(entries: Iterable[RemoteFile], folder: Path, *, session: Session) -> None:
    for entry in entries:
        obtain(entry, folder, session=session, may_stay=False)
        session.meter.finish_file(entry.size_bytes)


def _split(entries: Iterable[RemoteFile]) -> tuple[list[RemoteFile], list[RemoteFile]]:
    small: list[RemoteFile] = []
    weights: list[RemoteFile] = []
    for entry in entries:
        (weights if _WEIGHTS.fullmatch(entry.name) else small).append(entry)
    return small, weights


def _distinct(entries: Iterable[RemoteFile]) -> list[RemoteFile]:
    """Keep the first of names that are one file where case does not count."""
    by_name: dict[str, RemoteFile] = {}
    for entry in entries:
        by_name.setdefault(entry.name.casefold(), entry)
    return list(by_name.values())


def _remove_earlier(folder: Path, note: SourceNote) -> None:
    """Remove files of an earlier revision that this one does not have: stray shards would confuse a conversion."""
    earlier = read_note(folder)
    if earlier is None:
        return
    for name in {entry.name for entry in earlier.files} - {entry.name for entry in note.files}:
        (folder / name).unlink(missing_ok=True)


def _write_note(folder: Path, note: SourceNote) -> None:
    write_atomically(folder / NOTE_NAME, msgspec.json.format(msgspec.json.encode(note), indent=2).decode() + "\n")
