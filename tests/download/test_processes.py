"""Several processes, and processes that die: one target is fetched once, and nothing that came is lost."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from hymt_local.download import DownloadWaiting, RemoteFile, fetch_file
from tests.download.conftest import Events, FakeClock
from tests.download.fake_hub import FakeHub

CONTENT = random.Random(3).randbytes(400_000)
LIMIT = 150_000

# Prints one line per piece that came: its clock never stands still, so no event is held back.
PROGRAM = """
import itertools, json, sys
from pathlib import Path
from hymt_local.download import Patience, RemoteFile, fetch_file
from hymt_local.errors import HymtError
order = json.loads(sys.argv[1])
if order["limit"]:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (order["limit"], order["limit"]))
ticks = itertools.count()
try:
    path = fetch_file(
        RemoteFile(**order["entry"]), Path(order["folder"]), environ=order["environ"],
        patience=Patience(now=lambda: float(next(ticks))),
        on_progress=lambda event: print(getattr(event, "done_bytes", -1), flush=True),
    )
    print("done", path)
except HymtError as error:
    print(error.code, error.message)
"""


class Child:
    """Another process that fetches the same file."""

    def __init__(self, entry: RemoteFile, folder: Path, environ: dict[str, str], *, limit: int = 0) -> None:
        fields = {name: getattr(entry, name) for name in ("repo", "name", "size_bytes", "revision", "sha256")}
        order: dict[str, Any] = {"entry": fields, "folder": str(folder), "environ": environ, "limit": limit}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(order)], stdout=subprocess.PIPE, text=True
        )

    def wait_for_bytes(self, done_bytes: int) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if int(line) >= done_bytes:
                return
        raise AssertionError("the child ended before")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=20)

    def last_line(self) -> str:
        output, _ = self.process.communicate(timeout=20)
        return output.splitlines()[-1]


@pytest.fixture
def entry(hub: FakeHub) -> RemoteFile:
    return hub.add("owner/model", "model.gguf", CONTENT)


def test_a_killed_download_is_continued(
    hub: FakeHub, entry: RemoteFile, tmp_path: Path, environ: dict[str, str]
) -> None:
    hub.stall_after = 250_000
    child = Child(entry, tmp_path / "models", environ)
    child.wait_for_bytes(250_000)
    child.kill()
    hub.released.set()
    path = fetch_file(entry, tmp_path / "models", environ=environ)
    assert path.read_bytes() == CONTENT
    assert [request.range for request in hub.transfers] == [None, "bytes=250000-"]
    assert [path.name for path in path.parent.iterdir()] == ["model.gguf"]


def test_of_two_processes_one_fetches_and_the_other_finds_it(
    hub: FakeHub, entry: RemoteFile, tmp_path: Path, environ: dict[str, str], clock: FakeClock, events: Events
) -> None:
    hub.stall_after = 100_000
    child = Child(entry, tmp_path / "models", environ)
    assert hub.stalled.wait(20)

    def let_it_finish() -> None:
        hub.released.set()
        child.process.wait(20)

    clock.on_wait = let_it_finish
    path = fetch_file(entry, tmp_path / "models", environ=environ, patience=clock.patience(), on_progress=events)
    assert path.read_bytes() == CONTENT
    assert child.last_line() == f"done {path}"
    assert len(hub.transfers) == 1
    assert events.waiting[0] == DownloadWaiting("model.gguf", "another process is fetching it", None)


def test_two_threads_fetch_once_too(
    hub: FakeHub, entry: RemoteFile, tmp_path: Path, environ: dict[str, str], clock: FakeClock
) -> None:
    hub.stall_after = 100_000
    first = threading.Thread(target=fetch_file, args=(entry, tmp_path), kwargs={"environ": environ})
    first.start()
    assert hub.stalled.wait(20)

    def let_it_finish() -> None:
        hub.released.set()
        first.join(20)

    clock.on_wait = let_it_finish
    fetch_file(entry, tmp_path, environ=environ, patience=clock.patience())
    assert len(hub.transfers) == 1


def test_the_lock_of_a_killed_process_is_free(
    hub: FakeHub, entry: RemoteFile, tmp_path: Path, environ: dict[str, str], clock: FakeClock
) -> None:
    hub.stall_after = 0
    child = Child(entry, tmp_path / "models", environ)
    assert hub.stalled.wait(20)
    child.kill()
    hub.released.set()
    fetch_file(entry, tmp_path / "models", environ=environ, patience=clock.patience())
    assert clock.waits == []


def test_a_disk_that_fills_up_in_the_middle_is_named_and_continued_later(
    hub: FakeHub, entry: RemoteFile, tmp_path: Path, environ: dict[str, str]
) -> None:
    child = Child(entry, tmp_path / "models", environ, limit=LIMIT)
    assert child.last_line() == f"store the disk is full: {tmp_path / 'models'}"
    left = [path.stat().st_size for path in (tmp_path / "models").iterdir()]
    assert left == [LIMIT]
    fetch_file(entry, tmp_path / "models", environ=environ)
    assert hub.transfers[-1].range == f"bytes={LIMIT}-"
