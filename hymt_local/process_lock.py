"""A lock that one process holds for its whole life."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hymt_local.errors import StoreError
from hymt_local.file_lock import release, try_lock

_PATIENCE_S = 0.3
"""Those who only look hold the lock for an instant."""
_POLL_S = 0.02


class ProcessLock:
    """The lock of one file, which exists while it is held. Not inherited by child processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Take the lock; False when another process, or another lock of this one, has it.

        Raises:
            StoreError: the file cannot be written.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"cannot make {self._path.parent}: {error.strerror}", hint="check its permissions, or set HYMT_HOME"
            ) from error
        deadline = time.monotonic() + _PATIENCE_S
        while (descriptor := try_lock(self._path)) is None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give it back; twice is fine."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            release(descriptor, self._path)


def is_locked(path: Path) -> bool:
    """Tell whether some process holds the lock of a file now."""
    if not path.exists():
        return False
    try:
        descriptor = try_lock(path)
    except StoreError:
        return False
    if descriptor is None:
        return True
    os.close(descriptor)
    return False
