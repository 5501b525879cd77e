"""One process at a time per target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hymt_local.download.session import Session
from hymt_local.file_lock import release, try_lock

POLL_S = 0.5


@contextmanager
def target_lock(target: Path, session: Session) -> Iterator[None]:
    """Hold the lock of one target file; waits for another holder, in this process or another.

    Raises:
        CancelledError: the user stopped it while it waited.
        StoreError: the folder cannot be written.
    """
    path = target.with_name(f".{target.name}.lock")
    descriptor = try_lock(path)
    while descriptor is None:
        session.check_cancelled()
        session.meter.waiting(target.name, reason="another process is fetching it", remaining_s=None)
        session.patience.wait(session.cancel, POLL_S)
        descriptor = try_lock(path)
    try:
        yield
    finally:
        release(descriptor, path)
