"""The Range downloader against a hub that misbehaves in every known way."""

from __future__ import annotations

import os
import random
import shutil
import ssl
import stat
import threading
import urllib.error
from pathlib import Path

import pytest

from hymt_local.download import DownloadError, DownloadProgress, RemoteFile, fetch_file
from hymt_local.download.network import Network
from hymt_local.errors import CancelledError, HymtError, ModelFileError, ModelNotFoundError, StoreError
from tests.download.conftest import Events, FakeClock
from tests.download.fake_hub import FakeHub, Reply

CONTENT = random.Random(1).randbytes(300_000)
MIB = 1 << 20
REPO = "owner/model"


@pytest.fixture
def entry(hub: FakeHub) -> RemoteFile:
    return hub.add(REPO, "model.gguf", CONTENT)


class Fetch:
    """Calls `fetch_file` with what all tests have in common."""

    def __init__(self, entry: RemoteFile, folder: Path, environ: dict[str, str], clock: FakeClock, events: Events):
        self.entry, self.folder, self.environ, self.clock, self.events = entry, folder, environ, clock, events

    def __call__(self, **options: object) -> Path:
        arguments = {
            "environ": self.environ,
            "patience": self.clock.patience(),
            "on_progress": self.events,
            **options,
        }
        return fetch_file(self.entry, self.folder, **arguments)  # type: ignore[arg-type]

    @property
    def part(self) -> Path:
        return self.folder / f".model.gguf.{(self.entry.digest or '')[:12]}.part"

    @property
    def left(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def fetch(entry: RemoteFile, tmp_path: Path, environ: dict[str, str], clock: FakeClock, events: Events) -> Fetch:
    return Fetch(entry, tmp_path / "models", environ, clock, events)


def test_brings_a_file_with_its_name_and_mode(fetch: Fetch) -> None:
    umask = os.umask(0o077)
    path = fetch()
    os.umask(umask)
    assert path == fetch.folder / "model.gguf"
    assert path.read_bytes() == CONTENT
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert fetch.left == ["model.gguf"]


def test_brings_an_empty_file(hub: FakeHub, fetch: Fetch) -> None:
    fetch.entry = hub.add(REPO, "empty.gguf", b"")
    assert fetch().read_bytes() == b""


def test_does_not_fetch_what_is_there(hub: FakeHub, fetch: Fetch) -> None:
    fetch()
    hub.requests.clear()
    fetch()
    assert hub.requests == []


def test_replaces_a_file_with_another_content(fetch: Fetch) -> None:
    fetch.folder.mkdir()
    (fetch.folder / "model.gguf").write_bytes(b"x" * len(CONTENT))
    assert fetch().read_bytes() == CONTENT


def test_resumes_by_range_after_each_cut(hub: FakeHub, fetch: Fetch) -> None:
    hub.cuts.extend([100_000, 100_000])
    assert fetch().read_bytes() == CONTENT
    assert [request.range for request in hub.transfers] == [None, "bytes=100000-", "bytes=200000-"]
    assert fetch.clock.waits == []


def test_a_large_file_is_continued_at_the_very_byte_and_fetched_once(hub: FakeHub, fetch: Fetch) -> None:
    content = random.Random(0).randbytes(32 * MIB)
    fetch.entry = hub.add(REPO, "model.gguf", content)
    hub.cuts.extend([5 * MIB, 20 * MIB + 1])
    assert fetch().read_bytes() == content
    assert [request.range for request in hub.transfers] == [None, f"bytes={5 * MIB}-", f"bytes={25 * MIB + 1}-"]
    assert fetch.clock.waits == []


def test_finishes_through_more_cuts_than_attempts(hub: FakeHub, fetch: Fetch) -> None:
    hub.cut_always = 12_500
    assert fetch().read_bytes() == CONTENT
    assert len(hub.transfers) == 24


def test_gives_up_after_eight_attempts_without_a_new_byte(hub: FakeHub, fetch: Fetch) -> None:
    hub.cuts.append(100_000)
    hub.cut_always = 0
    with pytest.raises(DownloadError, match=r"broke the connection after 100000 .*8 attempts") as caught:
        fetch()
    assert "run it again" in caught.value.hint
    assert len(hub.transfers) == 9
    assert sum(fetch.clock.waits) == 1 + 2 + 4 + 8 + 16 + 30 + 30
    assert fetch.part.read_bytes() == CONTENT[:100_000]


def test_a_later_call_continues_and_hashes_the_part_again(hub: FakeHub, fetch: Fetch) -> None:
    fetch.folder.mkdir()
    fetch.part.write_bytes(CONTENT[:123_456])
    assert fetch().read_bytes() == CONTENT
    assert [request.range for request in hub.transfers] == ["bytes=123456-"]
    first = fetch.events.all[0]
    assert isinstance(first, DownloadProgress)
    assert first.phase == "verify"


def test_a_complete_part_needs_no_network(hub: FakeHub, fetch: Fetch) -> None:
    fetch.folder.mkdir()
    fetch.part.write_bytes(CONTENT)
    assert fetch().read_bytes() == CONTENT
    assert hub.requests == []


@pytest.mark.parametrize("part", [CONTENT + b"more", b"wrong" * 1000, b"x" * len(CONTENT)])
def test_a_wrong_part_is_thrown_away(fetch: Fetch, part: bytes) -> None:
    fetch.folder.mkdir()
    fetch.part.write_bytes(part)
    assert fetch().read_bytes() == CONTENT
    assert fetch.left == ["model.gguf"]


def test_parts_of_other_contents_are_removed(fetch: Fetch) -> None:
    fetch.folder.mkdir()
    (fetch.folder / ".model.gguf.000000000000.part").write_bytes(b"old")
    (fetch.folder / ".model.gguf.bak.000000000000.part").write_bytes(b"of model.gguf.bak")
    fetch()
    assert fetch.left == [".model.gguf.bak.000000000000.part", "model.gguf"]


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408, 429])
def test_asks_again_when_the_server_is_busy(hub: FakeHub, fetch: Fetch, status: int) -> None:
    hub.replies.extend([Reply(status), Reply(status)])
    assert fetch().read_bytes() == CONTENT
    assert fetch.clock.waits == [1, 1, 1]
    assert f"status {status}" in fetch.events.waiting[0].reason


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7), ("100000", 300), ("Thu, 01 Jan 1970 00:17:00 GMT", 20), ("soon", 1), ("-5", 0)]
)
def test_waits_as_long_as_the_server_asks_but_five_minutes_at_most(
    hub: FakeHub, fetch: Fetch, header: str, seconds: float
) -> None:
    hub.replies.append(Reply(429, {"Retry-After": header}))
    fetch()
    assert sum(fetch.clock.waits) == seconds


def test_shows_a_countdown(hub: FakeHub, fetch: Fetch) -> None:
    hub.replies.append(Reply(503, {"Retry-After": "3"}))
    fetch()
    assert [event.remaining_s for event in fetch.events.waiting] == [3, 2, 1]


def test_asks_again_when_nobody_listens(fetch: Fetch) -> None:
    fetch.environ["HF_ENDPOINT"] = "http://127.0.0.1:1"
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1 cannot be reached .*8 attempts"):
        fetch()


def test_a_silent_server_times_out(hub: FakeHub, fetch: Fetch) -> None:
    hub.stall_after = 1000
    fetch.clock.on_wait = hub.released.set
    assert fetch(patience=fetch.clock.patience(timeout_s=0.05)).read_bytes() == CONTENT
    assert "did not answer in time" in fetch.events.waiting[0].reason


def test_a_wrong_byte_is_never_accepted(hub: FakeHub, fetch: Fetch) -> None:
    hub.files[REPO, "model.gguf"] = CONTENT[:-1] + b"\0"
    with pytest.raises(ModelFileError, match="wrong sha256"):
        fetch()
    assert len(hub.transfers) == 2
    assert fetch.left == []


def test_a_byte_that_was_wrong_once_is_fetched_again(hub: FakeHub, fetch: Fetch) -> None:
    hub.blob_replies.append(Reply(200, body=CONTENT[:-1] + b"\0"))
    assert fetch().read_bytes() == CONTENT


def test_a_server_without_ranges_is_restarted_cleanly(hub: FakeHub, fetch: Fetch) -> None:
    hub.knows_ranges = False
    hub.cuts.append(100_000)
    assert fetch().read_bytes() == CONTENT
    assert [request.range for request in hub.transfers] == [None, "bytes=100000-"]


@pytest.mark.parametrize("cuts", [[100_000] * 30, [100_000, 50_000] * 15])
def test_a_server_without_ranges_that_always_breaks_is_given_up(hub: FakeHub, fetch: Fetch, cuts: list[int]) -> None:
    hub.knows_ranges = False
    hub.cuts.extend(cuts)
    with pytest.raises(DownloadError, match="8 attempts"):
        fetch()
    assert len(hub.transfers) == 9


@pytest.mark.parametrize("content_range", ["bytes */300000", "bytes */*", None])
def test_416_restarts_when_the_size_is_right_or_unknown(hub: FakeHub, fetch: Fetch, content_range: str | None) -> None:
    headers = {"Content-Range": content_range} if content_range else {}
    fetch.folder.mkdir()
    fetch.part.write_bytes(CONTENT[:100_000])
    hub.blob_replies.append(Reply(416, headers))
    assert fetch().read_bytes() == CONTENT
    assert [request.range for request in hub.transfers][:2] == ["bytes=100000-", None]


def test_416_of_a_file_of_another_size_is_final(hub: FakeHub, fetch: Fetch) -> None:
    fetch.folder.mkdir()
    fetch.part.write_bytes(CONTENT[:100_000])
    hub.blob_replies.append(Reply(416, {"Content-Range": "bytes */99999"}))
    with pytest.raises(ModelFileError, match="99999 bytes, the published file 300000"):
        fetch()


@pytest.mark.parametrize("content_range", ["bytes 5-299999/300000", "bytes 0-299999/300000", "nonsense", ""])
def test_an_answer_from_another_place_is_not_appended(hub: FakeHub, fetch: Fetch, content_range: str) -> None:
    fetch.folder.mkdir()
    fetch.part.write_bytes(CONTENT[:100_000])
    hub.blob_replies.append(Reply(206, {"Content-Range": content_range}, CONTENT[5:]))
    assert fetch().read_bytes() == CONTENT
    assert [request.range for request in hub.transfers] == ["bytes=100000-", None]
    assert [event.reason for event in fetch.events.waiting] == ["127.0.0.1 does not continue where model.gguf stopped"]


def test_a_file_of_another_size_is_refused_before_its_bytes(hub: FakeHub, fetch: Fetch) -> None:
    hub.files[REPO, "model.gguf"] = CONTENT + b"more"
    with pytest.raises(ModelFileError, match="300004 bytes"):
        fetch()
    assert len(hub.transfers) == 1
    assert fetch.left == []


def test_a_web_page_is_not_saved_as_a_model(hub: FakeHub, fetch: Fetch) -> None:
    hub.replies.append(Reply(200, {"Content-Type": "text/html; charset=utf-8"}, b"<html>log in"))
    with pytest.raises(DownloadError, match=r"web page instead of model\.gguf"):
        fetch()
    assert fetch.left == []


def test_a_compressed_answer_is_refused(hub: FakeHub, fetch: Fetch) -> None:
    hub.blob_replies.append(Reply(200, {"Content-Encoding": "gzip", "Content-Length": "300000"}, b"\x1f\x8b"))
    with pytest.raises(DownloadError, match="compressed"):
        fetch()


@pytest.mark.parametrize(
    ("reply", "kind", "message", "hint"),
    [
        (Reply(403, {"X-Error-Code": "GatedRepo"}), DownloadError, "gated", "accept it at https://127.0.0.1/owner"),
        (Reply(401, {"X-Error-Code": "GatedRepo"}), DownloadError, "gated", "HF_TOKEN"),
        (Reply(401), DownloadError, "refuses access", "HF_TOKEN"),
        (Reply(403), DownloadError, "refuses access", "HF_TOKEN"),
        (Reply(404, {"X-Error-Code": "EntryNotFound"}), ModelNotFoundError, "has no model.gguf", "revision"),
        (Reply(410), ModelNotFoundError, "has no model.gguf", "revision"),
        (Reply(400), DownloadError, "status 400", ""),
    ],
)
def test_a_refusal_is_final_and_says_what_to_do(
    hub: FakeHub, fetch: Fetch, reply: Reply, kind: type[HymtError], message: str, hint: str
) -> None:
    hub.replies.append(reply)
    with pytest.raises(kind, match=message) as caught:
        fetch()
    assert hint in caught.value.hint
    assert len(hub.requests) == 1
    assert fetch.left == []


def test_a_wrong_certificate_is_final(fetch: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def refuse(*_args: object, **_options: object) -> None:
        calls.append(1)
        raise urllib.error.URLError(ssl.SSLCertVerificationError("self-signed certificate"))

    monkeypatch.setattr(Network, "open", refuse)
    with pytest.raises(DownloadError, match="certificate of 127") as caught:
        fetch()
    assert "SSL_CERT_FILE" in caught.value.hint
    assert len(calls) == 1


def test_a_disk_without_room_is_refused_before_the_first_byte(
    hub: FakeHub, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = len(CONTENT) + 64 * 1024 * 1024
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: shutil._ntuple_diskusage(10**12, 10**12, room - 1))
    with pytest.raises(StoreError, match="not enough space"):
        fetch()
    assert hub.requests == []


def test_only_the_missing_bytes_need_room(fetch: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch.folder.mkdir()
    fetch.part.write_bytes(CONTENT[:100_000])
    room = 200_000 + 64 * 1024 * 1024
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: shutil._ntuple_diskusage(10**12, 10**12, room))
    assert fetch().read_bytes() == CONTENT


def test_a_folder_that_cannot_be_made_is_named(fetch: Fetch) -> None:
    fetch.folder.write_text("a file")
    with pytest.raises(StoreError, match=r"cannot create .*models"):
        fetch()


def test_cancelling_during_the_transfer_keeps_the_part(hub: FakeHub, fetch: Fetch) -> None:
    hub.stall_after = 100_000
    cancel = threading.Event()

    def cancel_when_stalled() -> None:
        hub.stalled.wait(10)
        cancel.set()

    threading.Thread(target=cancel_when_stalled).start()
    with pytest.raises(CancelledError, match="stopped"):
        fetch(cancel=cancel)
    hub.released.set()
    assert "model.gguf" not in fetch.left
    assert fetch().read_bytes() == CONTENT


def test_cancelling_during_a_pause(hub: FakeHub, fetch: Fetch) -> None:
    hub.replies.append(Reply(503, {"Retry-After": "300"}))
    cancel = threading.Event()
    fetch.clock.on_wait = cancel.set
    with pytest.raises(CancelledError):
        fetch(cancel=cancel)
    assert fetch.clock.waits == [1]


def test_cancelling_before_the_start_asks_nobody(hub: FakeHub, fetch: Fetch) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(CancelledError):
        fetch(cancel=cancel)
    assert hub.requests == []


def test_an_error_in_the_callback_ends_the_download_and_keeps_the_part(hub: FakeHub, fetch: Fetch) -> None:
    hub.cuts.append(100_000)

    def fail(event: object) -> None:
        fetch.clock.seconds += 1
        if isinstance(event, DownloadProgress) and event.done_bytes == 100_000:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        fetch(on_progress=fail)
    assert fetch.part.read_bytes() == CONTENT[:100_000]


def test_a_file_whose_hash_was_never_published_is_refused(hub: FakeHub, fetch: Fetch) -> None:
    fetch.entry = RemoteFile(REPO, "model.gguf", len(CONTENT))
    with pytest.raises(ModelFileError, match="no hash"):
        fetch()
    assert hub.requests == []


@pytest.mark.parametrize(
    "name", ["../x", "a/b", ".hidden", "", "x\n", "C:x", "a\\b", "nul", "con.gguf", "x.", "x" * 300]
)
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    with pytest.raises(ModelFileError, match="no plain file name"):
        RemoteFile(REPO, name, 1, sha256="0" * 64)


@pytest.mark.parametrize(
    ("repo", "revision"),
    [
        ("model", "main"),
        ("a/b/c", "main"),
        ("../b", "main"),
        ("a/b?x", "main"),
        ("a/b", "../x"),
        ("a/b", "x y"),
        ("a/b", ""),
    ],
)
def test_no_id_leads_to_another_place_of_the_server(repo: str, revision: str) -> None:
    with pytest.raises(ModelNotFoundError):
        RemoteFile(repo, "x", 1, revision, "0" * 64)
