"""The lock of a target: one holder, no leftovers, no lock on a file that is gone."""

from __future__ import annotations

import errno
import fcntl
import threading
from pathlib import Path

import pytest

from hymt_local.download.lock import target_lock
from hymt_local.download.session import Session, open_session
from hymt_local.errors import CancelledError, StoreError
from tests.download.conftest import FakeClock


@pytest.fixture
def session(clock: FakeClock) -> Session:
    return open_session({}, patience=clock.patience())


def test_leaves_nothing_behind(tmp_path: Path, session: Session) -> None:
    with target_lock(tmp_path / "model.gguf", session):
        assert [path.name for path in tmp_path.iterdir()] == [".model.gguf.lock"]
    assert list(tmp_path.iterdir()) == []


def test_a_lock_on_a_file_that_was_removed_meanwhile_does_not_count(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_file = tmp_path / ".model.gguf.lock"
    seen: list[bool] = []
    lock = fcntl.flock

    def holder_leaves_first(descriptor: int, operation: int) -> None:
        if not seen:
            lock_file.unlink()
        seen.append(True)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", holder_leaves_first)
    with target_lock(tmp_path / "model.gguf", session):
        assert lock_file.exists()
    assert len(seen) == 2


def test_a_file_system_without_locks_is_used_without(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with target_lock(tmp_path / "model.gguf", session):
        pass
    assert list(tmp_path.iterdir()) == []


def test_waiting_ends_when_the_user_stops(tmp_path: Path, clock: FakeClock) -> None:
    cancel = threading.Event()
    clock.on_wait = cancel.set
    waiting = open_session({}, cancel=cancel, patience=clock.patience())
    with (
        target_lock(tmp_path / "model.gguf", waiting),
        pytest.raises(CancelledError),
        target_lock(tmp_path / "model.gguf", waiting),
    ):
        pass


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, session: Session) -> None:
    with pytest.raises(StoreError, match="cannot write"), target_lock(tmp_path / "gone" / "model.gguf", session):
        pass
