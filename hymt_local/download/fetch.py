"""One file, from the nearest place that has it: the folder itself, the hub's cache, the hub, ModelScope."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from hymt_local.catalog import ModelFile, ModelSpec
from hymt_local.download.listing import list_repository
from hymt_local.download.obtain import make_folder, obtain
from hymt_local.download.progress import ProgressCallback
from hymt_local.download.remote_file import DEFAULT_REVISION, RemoteFile
from hymt_local.download.session import Patience, Session, open_session
from hymt_local.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError


def fetch_file(
    entry: RemoteFile,
    folder: Path,
    *,
    environ: Mapping[str, str],
    offline: bool = False,
    on_progress: ProgressCallback | None = None,
    cancel: threading.Event | None = None,
    patience: Patience | None = None,
) -> Path:
    """Return a verified copy of a published file: `folder/NAME`, or a file of the hub's cache used where it lies.

    Blocks; run it on a worker thread where something else must go on. What is here of an unfinished file is continued.

    Args:
        entry: The file; its hash is the authority.
        folder: Where it goes; made if need be.
        environ: HF_ENDPOINT, HF_TOKEN, HF_HUB_CACHE, HF_HUB_OFFLINE, HYMT_OFFLINE, MODELSCOPE_ENDPOINT.
        offline: Contact nothing but this machine.
        on_progress: Takes the events, on the calling thread.
        cancel: Set by another thread to stop within a fraction of a second.
        patience: Attempts, pauses and the clock.

    Raises:
        DownloadError: offline, refused, gated, or no source answers.
        ModelNotFoundError: no source has it.
        ModelFileError: the sources have another file under this name, or its hash was never published.
        StoreError: not enough space, or the folder cannot be written.
        CancelledError: `cancel` was set.
    """
    session = open_session(environ, offline=offline, on_progress=on_progress, cancel=cancel, patience=patience)
    return _fetch(entry, folder, session=session)


def fetch_model(
    spec: ModelSpec,
    file: ModelFile,
    folder: Path,
    *,
    environ: Mapping[str, str],
    offline: bool = False,
    on_progress: ProgressCallback | None = None,
    cancel: threading.Event | None = None,
    patience: Patience | None = None,
) -> Path:
    """Return a verified copy of a GGUF of the catalog (arguments and errors as for `fetch_file`).

    What the catalog pins needs no question to the hub; for other files the hub's metadata is the authority.

    Raises:
        UnsupportedModelError: the catalog says that this program cannot run it.
        ModelNotFoundError: the model has no published GGUF.
    """
    repo = file.repo or spec.gguf_repo
    if not file.supported:
        raise UnsupportedModelError(
            f"{file.name} cannot be run by this program: {file.note}", hint="choose another quantization"
        )
    if repo is None:
        raise ModelNotFoundError(
            f"{spec.id} has no published GGUF", hint=f"make one: `hymt convert {spec.repo or 'SOURCE'}`"
        )
    session = open_session(environ, offline=offline, on_progress=on_progress, cancel=cancel, patience=patience)
    entry = _pinned(file, repo, revision=spec.gguf_revision)
    if entry is None:
        entry = _look_up(repo, file.name, revision=spec.gguf_revision or DEFAULT_REVISION, session=session)
    return _fetch(entry, folder, session=session)


def _fetch(entry: RemoteFile, folder: Path, *, session: Session) -> Path:
    if entry.digest is None:
        raise ModelFileError(
            f"no hash of {entry.name} in {entry.repo} is published: it cannot be verified", hint="choose another file"
        )
    session.meter.expect(entry.size_bytes)
    make_folder(folder)
    path = obtain(entry, folder, session=session, may_stay=True)
    session.meter.finish_file(entry.size_bytes)
    return path


def _look_up(repo: str, name: str, *, revision: str, session: Session) -> RemoteFile:
    listing = list_repository(repo, revision, session=session)
    for entry in listing.files:
        if entry.name == name:
            return entry
    raise ModelNotFoundError(f"{repo} has no {name}", hint="the repository has changed: update hymt-local")


def _pinned(file: ModelFile, repo: str, *, revision: str | None) -> RemoteFile | None:
    if file.sha256 is None or file.size_bytes is None:
        return None
    return RemoteFile(
        repo=repo,
        name=file.name,
        size_bytes=file.size_bytes,
        revision=revision or DEFAULT_REVISION,
        sha256=file.sha256,
    )
