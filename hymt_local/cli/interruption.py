"""Ctrl-C: the first one ends the work in order, a second one leaves at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hymt_local.cli.diagnostics import print_note
from hymt_local.errors import CancelledError

if TYPE_CHECKING:
    from hymt_local.translation_job import Service

PATIENCE_S = 1.0
"""A cancelled engine stops within half a second; whoever waits longer wants to know why."""
GRACE_S = 4.0
"""After that the engine hangs, and the process ends without it."""


@contextlib.contextmanager
def closing(service: Service) -> Iterator[Service]:
    """Close the service at the end; after Ctrl-C do not wait for it for ever. For the main thread."""
    is_interrupted = False
    try:
        yield service
    except KeyboardInterrupt:
        is_interrupted = True
        raise
    finally:
        if is_interrupted:
            _close_or_leave(service)
        else:
            service.close()


def _close_or_leave(service: Service) -> None:
    before = signal.signal(signal.SIGINT, _leave)
    try:
        closer = threading.Thread(target=service.close, name="hymt-closer", daemon=True)
        closer.start()
        closer.join(PATIENCE_S)
        if closer.is_alive():
            print_note("waiting for the engine to stop; Ctrl-C again leaves at once")
            closer.join(GRACE_S)
        if closer.is_alive():
            _leave()
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(*_: object) -> None:
    """End the process without waiting for any thread: one of them may be deep inside llama.cpp."""
    with contextlib.suppress(OSError):
        os.write(2, b"error: interrupted, without waiting for the engine\n")
    os._exit(CancelledError.exit_status)
