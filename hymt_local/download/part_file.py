"""The unfinished file on disk: `.NAME.<hash>.part`, which any later process continues."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from hymt_local.download.remote_file import RemoteFile
from hymt_local.download.session import Session
from hymt_local.errors import HymtError, StoreError

HASH_CHUNK_BYTES = 4 * 1024 * 1024
_FULL = frozenset({errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)})
_MODE = 0o644
"""Readable by all, as any downloaded file: a model is no secret."""


def part_path(target: Path, entry: RemoteFile) -> Path:
    """Return where the bytes of this very content gather."""
    return target.with_name(f".{target.name}.{(entry.digest or 'unknown')[:12]}.part")


class PartFile:
    """The bytes so far and their running hash. The caller holds the lock of the target.

    Args:
        target: Where the finished file goes.
        entry: What it must become.
    """

    def __init__(self, target: Path, entry: RemoteFile) -> None:
        self._target = target
        self._entry = entry
        self._path = part_path(target, entry)
        with _disk_errors(self._path):
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), _MODE)
        self._hasher = entry.new_hasher()
        self.size_bytes = 0

    def __enter__(self) -> PartFile:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        with suppress(OSError):
            if self._path.stat().st_size == 0:
                self._path.unlink()

    def resume(self, session: Session) -> None:
        """Hash what an earlier process left; throw away what cannot be the beginning of this file.

        Raises:
            StoreError: it cannot be read.
            CancelledError: the user stopped it.
        """
        with _disk_errors(self._path):
            left_bytes = os.fstat(self._descriptor).st_size
            if left_bytes > self._entry.size_bytes or self._entry.digest is None:
                self.restart()
                return
            if left_bytes:
                session.meter.start(self._entry.name, phase="verify", total_bytes=left_bytes)
            while chunk := os.read(self._descriptor, HASH_CHUNK_BYTES):
                session.check_cancelled()
                self._hasher.update(chunk)
                self.size_bytes += len(chunk)
                session.meter.update(self.size_bytes)

    def append(self, chunk: bytes) -> None:
        """Write one piece at the end.

        Raises:
            StoreError: the disk is full or broken; what was written stays for the next time.
        """
        rest = memoryview(chunk)
        with _disk_errors(self._path):
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        self._hasher.update(chunk)
        self.size_bytes += len(chunk)

    def restart(self) -> None:
        """Throw all bytes away."""
        with _disk_errors(self._path):
            os.ftruncate(self._descriptor, 0)
            os.lseek(self._descriptor, 0, os.SEEK_SET)
        self._hasher = self._entry.new_hasher()
        self.size_bytes = 0

    def is_right(self) -> bool:
        """Tell whether this is the whole file with the right hash."""
        return self.size_bytes == self._entry.size_bytes and self._entry.is_digest(self._hasher.hexdigest())

    def publish(self) -> None:
        """Put the finished file under its name, safely on disk, in one step.

        Raises:
            StoreError: that cannot be done; the part stays.
        """
        with _disk_errors(self._target):
            os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
            self._path.chmod(_MODE)
            self._path.replace(self._target)
            sync_folder(self._target.parent)


def remove_other_parts(target: Path, entry: RemoteFile) -> None:
    """Delete what is left of other contents under this name; the caller holds the lock of the target."""
    mine = part_path(target, entry).name
    prefix, suffix = f".{target.name}.", ".part"
    with suppress(OSError):
        for path in target.parent.iterdir():
            digest = path.name.removeprefix(prefix).removesuffix(suffix)
            if path.name == f"{prefix}{digest}{suffix}" and "." not in digest and path.name != mine:
                path.unlink()


def sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, where folders can be synced."""
    if os.name == "nt":
        return
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _disk_error(path, error) from error


def _disk_error(path: Path, error: OSError) -> HymtError:
    if error.errno in _FULL:
        return StoreError(
            f"the disk is full: {path.parent}",
            hint=f"free some space and run it again to continue, or delete {path.name} there",
        )
    return StoreError(f"cannot write {path}: {error.strerror or error}", hint="check the folder's permissions")
