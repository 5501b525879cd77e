"""One file into one folder, by the cheapest way: there already, linked, copied, or transferred."""

from __future__ import annotations

import shutil
from pathlib import Path

from hymt_local.download.hub_cache import cached_paths, find_cached, has_content, link
from hymt_local.download.lock import target_lock
from hymt_local.download.part_file import PartFile, part_path
from hymt_local.download.remote_file import RemoteFile, reading_errors
from hymt_local.download.session import Session
from hymt_local.download.transfer import transfer
from hymt_local.errors import ModelFileError, StoreError

SPARE_BYTES = 64 * 1024 * 1024
"""Must stay free on the disk: others write to it too."""
_COPY_CHUNK_BYTES = 4 * 1024 * 1024


def obtain(entry: RemoteFile, folder: Path, *, session: Session, may_stay: bool) -> Path:
    """Return a verified copy of the file.

    Args:
        entry: The file.
        folder: Must exist.
        session: Shared by the files of one call.
        may_stay: A file of the hub's cache that cannot be linked is used where it lies.

    Raises:
        HymtError: as `fetch_file` says.
    """
    target = folder / entry.name
    if has_content(target, entry, session=session):
        return target
    with target_lock(target, session):
        if has_content(target, entry, session=session):  # fetched by another process meanwhile
            return target
        cached = find_cached(entry, session)
        if cached is not None:
            if link(cached, target):
                return target
            if may_stay:
                return cached
        check_space(folder, _rest_bytes(entry, folder))
        if cached is not None:
            _copy(cached, target, entry=entry, session=session)
        else:
            transfer(entry, target, session=session)
        return target


def missing_bytes(entry: RemoteFile, folder: Path, *, session: Session) -> int:
    """Return how much room the file will take beyond what is here, judged by sizes alone."""
    places = (folder / entry.name, *cached_paths(entry, session))
    if any(path.is_file() and path.stat().st_size == entry.size_bytes for path in places):
        return 0
    return _rest_bytes(entry, folder)


def check_space(folder: Path, needed_bytes: int) -> None:
    """Refuse to begin what the disk cannot hold.

    Raises:
        StoreError: it has less free space, a reserve included.
    """
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes >= needed_bytes + SPARE_BYTES:
        return
    raise StoreError(
        f"not enough space in {folder}: {_gigabytes(needed_bytes + SPARE_BYTES)} needed, {_gigabytes(free_bytes)} free",
        hint="free some space, or set HYMT_HOME to a folder on another disk",
    )


def make_folder(folder: Path) -> None:
    """Make sure that the folder exists.

    Raises:
        StoreError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot create {folder}: {error.strerror or error}", hint="check permissions") from error


def _rest_bytes(entry: RemoteFile, folder: Path) -> int:
    try:
        here_bytes = part_path(folder / entry.name, entry).stat().st_size
    except OSError:
        return entry.size_bytes
    return max(0, entry.size_bytes - here_bytes)


def _copy(path: Path, target: Path, *, entry: RemoteFile, session: Session) -> None:
    """Copy a file from another disk, hashing what is written."""
    with PartFile(target, entry) as part, reading_errors(path), path.open("rb") as stream:
        session.meter.start(entry.name, phase="download", total_bytes=entry.size_bytes)
        part.restart()
        while chunk := stream.read(_COPY_CHUNK_BYTES):
            session.check_cancelled()
            part.append(chunk)
            session.meter.update(part.size_bytes)
        if not part.is_right():
            part.restart()
            raise ModelFileError(f"{path} changed while it was copied", hint="run it again")
        part.publish()


def _gigabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.1f} GB"
