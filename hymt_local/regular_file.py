"""Reading of small files that may be anything: a pipe or a device would be waited for, or read, without end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path) -> bytes:
    """Return what is in a regular file, links followed.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    with open(path, "rb", buffering=0, opener=_open_at_once) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return stream.read()


def _open_at_once(path: str, flags: int) -> int:
    """Open a pipe without waiting for its other end."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o600)
