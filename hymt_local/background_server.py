"""Starting the resident server in the background, and stopping it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping

from hymt_local import __version__
from hymt_local.errors import ServerError
from hymt_local.paths import Paths
from hymt_local.process_lock import is_locked
from hymt_local.server_call import ask
from hymt_local.server_file import ServerFile, find_server, usable_server

START_S = 20.0
"""Python, the packages and a slow disk."""
STOP_S = 6.0
"""It takes three at most."""
POLL_S = 0.05


def start_server(paths: Paths, environ: Mapping[str, str]) -> ServerFile:
    """Start the server in the background and wait until it takes requests; one of another version makes way.

    Of several who do this at once one server comes out, and all of them get it.

    Raises:
        ServerError: it does not start.
    """
    import subprocess  # only here: the shell's path does without

    old = find_server(paths)
    if old is not None and old.version != __version__:
        stop_server(paths, old)
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
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        server = usable_server(paths)
        if server is not None:
            return server
        if process.returncode not in {None, 0}:  # 0: another one has won
            break
        time.sleep(POLL_S)
    raise ServerError("the server did not start in the background", hint="`hymt serve` says why")


def stop_server(paths: Paths, server: ServerFile) -> None:
    """Stop the server and wait for its end.

    Raises:
        ServerError: it does not end.
    """
    ask(server, "POST", "/v1/stop")
    deadline = time.monotonic() + STOP_S
    while is_locked(paths.server_lock):
        if time.monotonic() > deadline:
            raise ServerError(
                f"the server (process {server.pid}) does not end", hint=f"end it with `kill -9 {server.pid}`"
            )
        time.sleep(POLL_S)
