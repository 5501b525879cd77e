"""Where the resident server of this user runs: `server.json`, which a lock makes true."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Annotated

import msgspec

from hymt_local import __version__
from hymt_local.config import write_atomically
from hymt_local.paths import Paths
from hymt_local.process_lock import is_locked

PROTOCOL = 1
"""Of `server.json` and the native interface; a server of another one is left alone."""
MAX_FILE_BYTES = 64 * 1024
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class ServerFile(msgspec.Struct, frozen=True, kw_only=True):
    """`server.json`: the running server and how to talk to it. Private."""

    pid: Annotated[int, msgspec.Meta(gt=0, lt=2**31)]
    protocol: int
    version: str
    started_at: float
    """Seconds since 1970."""
    host: Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z.:_-]+$", max_length=255)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)]
    token: Annotated[str, msgspec.Meta(pattern=r"^[!-~]+$", max_length=1000)]
    certificate: str | None = None
    """With TLS: what its clients on this machine trust."""

    @property
    def url(self) -> str:
        """The address for people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}"


def write_server_file(paths: Paths, server: ServerFile) -> None:
    """Say where the server is; the caller holds the lock.

    Raises:
        StoreError: the file cannot be written.
    """
    write_atomically(paths.server_file, msgspec.json.encode(server).decode() + "\n")


def find_server(paths: Paths) -> ServerFile | None:
    """Return the running server of this user, or None. The lock decides: a file that a killed one left says nothing.

    Its token goes nowhere else: whoever has taken the port of a dead server is not spoken to.
    """
    try:
        server = msgspec.json.decode(read_own(paths.server_file), type=ServerFile)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
    is_there = server.protocol == PROTOCOL and is_locked(paths.server_lock) and _lives(server.pid)
    return server if is_there else None


def usable_server(paths: Paths) -> ServerFile | None:
    """Return the running server if it is of this version: another one may not know what a request of today says."""
    server = find_server(paths)
    return server if server is not None and server.version == __version__ else None


def read_own(file: Path) -> bytes:
    """Return a file that only this user can have written: texts go where `server.json` says.

    Raises:
        OSError: it is none, or a link, or another user may write it.
    """
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError(f"{file} is not a file")
        if sys.platform != "win32" and (status.st_uid != os.getuid() or status.st_mode & _WRITABLE_BY_OTHERS):
            raise PermissionError(f"{file} may be another user's work")
        return stream.read(MAX_FILE_BYTES)


def _lives(pid: int) -> bool:
    """Tell whether a process may exist: the lock may be that of a successor, which has not written its file yet."""
    if sys.platform == "win32":
        return True  # there the same call would end it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
