"""One process at a time per target: a lock of the operating system, which a killed process cannot leave behind."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hymt_local.download.session import Session
from hymt_local.errors import StoreError

POLL_S = 0.5
_HELD = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK})


@contextmanager
def target_lock(target: Path, session: Session) -> Iterator[None]:
    """Hold the lock of one target file; waits for another holder, in this process or another.

    Raises:
        CancelledError: the user stopped it while it waited.
        StoreError: the folder cannot be written.
    """
    path = target.with_name(f".{target.name}.lock")
    descriptor = _try_lock(path)
    while descriptor is None:
        session.check_cancelled()
        session.meter.waiting(target.name, reason="another process is fetching it", remaining_s=None)
        session.patience.wait(session.cancel, POLL_S)
        descriptor = _try_lock(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # while it is held: whoever opened it in the meantime sees that it is no longer the file
        os.close(descriptor)


def _try_lock(path: Path) -> int | None:
    """Return the descriptor that holds the lock, None when another one does."""
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


def _lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _HELD  # a file system without locks: the hash still guards the content
    return True


def _is_same_file(descriptor: int, path: Path) -> bool:
    """Tell whether the path still names the locked file, and not one made after it was unlinked."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False
