"""Whatever breaks where, and whatever an earlier process left: the file is the published one, or there is none."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.download import fetch_file
from hymt_local.errors import HymtError
from tests.download.conftest import FakeClock
from tests.download.fake_hub import FakeHub, Reply

CONTENT = random.Random(2).randbytes(70_000)
places = st.one_of(st.integers(0, len(CONTENT)), st.sampled_from([0, 1, 65_535, 65_536, len(CONTENT) - 1]))


@pytest.fixture(scope="module")
def shared_hub() -> Iterator[FakeHub]:
    hub = FakeHub()
    yield hub
    hub.shutdown()
    hub.server_close()


def environ_of(hub: FakeHub, folder: Path) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.url, "MODELSCOPE_ENDPOINT": "", "HF_HUB_CACHE": str(folder / "cache")}


@given(
    cuts=st.lists(places, max_size=6),
    statuses=st.lists(st.sampled_from([503, 429, 500]), max_size=3),
    left=places,
    knows_ranges=st.booleans(),
    is_damaged=st.booleans(),
)
def test_cuts_errors_and_leftovers_never_change_the_content(
    shared_hub: FakeHub,
    cuts: list[int],
    statuses: list[int],
    left: int,
    knows_ranges: bool,
    is_damaged: bool,
) -> None:
    entry = shared_hub.add("owner/model", "model.gguf", CONTENT)
    shared_hub.cuts.clear()
    shared_hub.cuts.extend(cuts)
    shared_hub.replies.clear()
    shared_hub.replies.extend(Reply(status) for status in statuses)
    shared_hub.knows_ranges = knows_ranges
    folder = Path(tempfile.mkdtemp())
    part = bytearray(CONTENT[:left])
    if is_damaged and part:
        part[left // 2] ^= 1
    (folder / f".model.gguf.{(entry.sha256 or '')[:12]}.part").write_bytes(part)
    path = fetch_file(entry, folder, environ=environ_of(shared_hub, folder), patience=FakeClock().patience(attempts=20))
    assert path.read_bytes() == CONTENT
    assert [path.name for path in folder.iterdir()] == ["model.gguf"]
    shutil.rmtree(folder)


@given(damage=st.integers(0, len(CONTENT) - 1), cut=places)
def test_a_source_with_one_wrong_byte_leaves_nothing(shared_hub: FakeHub, damage: int, cut: int) -> None:
    entry = shared_hub.add("owner/other", "model.gguf", CONTENT)
    wrong = bytearray(CONTENT)
    wrong[damage] ^= 0x40
    shared_hub.files["owner/other", "model.gguf"] = bytes(wrong)
    shared_hub.replies.clear()
    shared_hub.cuts.clear()
    shared_hub.cuts.append(cut)
    shared_hub.knows_ranges = True
    folder = Path(tempfile.mkdtemp())
    with pytest.raises(HymtError, match="wrong sha256"):
        fetch_file(entry, folder, environ=environ_of(shared_hub, folder), patience=FakeClock().patience())
    assert list(folder.iterdir()) == []
    folder.rmdir()
