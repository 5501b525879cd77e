"""A lock of the operating system on a file, which a killed process cannot leave behind."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

from hymt_local.errors import StoreError

_HELD = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK})


def try_lock(path: Path) -> int | None:
    """Create and lock a file; return the descriptor that holds the lock, None when another one does.

    Raises:
        StoreError: the folder cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError as error:
        if sys.platform == "win32" and isinstance(error, PermissionError) and path.exists():
            return None  # deleted by its holder, who has not closed it yet
        raise StoreError(f"cannot write {path.parent}: {error.strerror}", hint="check its permissions") from error
    if _lock(descriptor) and _is_same_file(descriptor, path):
        return descriptor
    os.close(descriptor)
    return None


def release(descriptor: int, path: Path) -> None:
    """Give a lock back and remove its file."""
    with suppress(OSError):
        path.unlink()  # while it is held: whoever opened it in the meantime sees that it is no longer the file
    os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _HELD  # a file system without locks: whoever writes there checks in another way
    return True


def _is_same_file(descriptor: int, path: Path) -> bool:
    """Tell whether the path still names the locked file, and not one made after it was unlinked."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False
