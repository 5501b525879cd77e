"""Starting the resident server in the background, and stopping it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hymt_local import __version__
from hymt_local.errors import ServerError
from hymt_local.paths import Paths
from hymt_local.process_lock import ProcessLock, is_locked
from hymt_local.server_call import ask
from hymt_local.server_file import ServerFile, find_server, usable_server

if TYPE_CHECKING:
    import subprocess

START_S = 20.0
"""Python, the packages and a slow disk."""
STOP_S = 6.0
"""It takes three at most."""
POLL_S = 0.05


def start_server(paths: Paths, environ: Mapping[str, str]) -> ServerFile:
    """Start the server in the background and wait until it takes requests; one of another version makes way.

    Of several who do this at once one starts it, and all of them get it.

    Raises:
        ServerError: it does not start.
        StoreError: the state folder cannot be written.
    """
    old = find_server(paths)
    if old is not None and old.version != __version__:
        stop_server(paths, old)
    lock = ProcessLock(paths.start_lock)
    try:
        return _started(paths, environ, lock)
    finally:
        lock.release()


def running_server(paths: Paths) -> ServerFile | None:
    """Return the running server, or None; one that starts or stops just now is waited for.

    Raises:
        ServerError: it stays between the two, or is of a version with which this one cannot speak.
    """
    deadline = time.monotonic() + START_S
    while (server := find_server(paths)) is None and _is_changing(paths):
        if time.monotonic() > deadline:
            raise ServerError(
                "a server is there that cannot be spoken to", hint="it is the process `hymt serve`: end it with `kill`"
            )
        time.sleep(POLL_S)
    return server


def stop_server(paths: Paths, server: ServerFile) -> None:
    """Stop the server and wait for its end; whether this or somebody else stops it.

    Raises:
        ServerError: it does not end.
    """
    refusal: ServerError | None = None
    try:
        ask(server, "POST", "/v1/stop")
    except ServerError as error:  # it may be on its way out already
        refusal = error
    deadline = time.monotonic() + STOP_S
    while is_locked(paths.server_lock):
        if time.monotonic() > deadline:
            raise refusal or ServerError(
                f"the server (process {server.pid}) does not end", hint=f"end it with `kill -9 {server.pid}`"
            )
        time.sleep(POLL_S)


def _started(paths: Paths, environ: Mapping[str, str], lock: ProcessLock) -> ServerFile:
    process: subprocess.Popen[bytes] | None = None
    is_starter = False
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        server = usable_server(paths)
        if server is not None:
            return server
        if not is_starter:
            is_starter = lock.acquire()  # then look once more: the one before may have finished its work meanwhile
            continue
        process = process or _begin(environ)
        if process.returncode not in {None, 0}:  # 0: somebody has started one by hand
            break
        time.sleep(POLL_S)
    raise ServerError("the server did not start in the background", hint="`hymt serve` says why")


def _begin(environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    import subprocess  # only here: the shell's path does without

    process = subprocess.Popen(
        [sys.executable, "-m", "hymt_local", "serve", "--background"],
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        close_fds=True,
    )
    threading.Thread(target=process.wait, name="hymt-server-reaper", daemon=True).start()
    return process


def _is_changing(paths: Paths) -> bool:
    return is_locked(paths.server_lock) or is_locked(paths.start_lock)
