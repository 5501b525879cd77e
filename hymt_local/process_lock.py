"""A lock that one process holds for its whole life, and that a killed one cannot leave behind."""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path

from hymt_local.errors import StoreError

_HELD = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK})
_PATIENCE_S = 0.3
"""Those who only look hold the lock for an instant."""
_POLL_S = 0.02


class ProcessLock:
    """The lock of one file, which is created when needed and stays. Not inherited by child processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Take the lock; False when another process, or another lock of this one, has it.

        Raises:
            StoreError: the file cannot be written.
        """
        descriptor = _open(self._path)
        deadline = time.monotonic() + _PATIENCE_S
        while not _try(descriptor):
            if time.monotonic() > deadline:
                os.close(descriptor)
                return False
            time.sleep(_POLL_S)
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give it back; twice is fine."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_locked(path: Path) -> bool:
    """Tell whether some process holds the lock of a file now."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _try(descriptor)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror}", hint="check the folder's permissions, or set HYMT_HOME"
        ) from error


def _try(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _HELD  # a file system without locks: the port decides then
    return True
