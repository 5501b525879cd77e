import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hymt_local.engine.prefix_store import MAGIC, PART_SUFFIX, TRIALS, PrefixStore, pack, unpack

TOKENS = list(range(100, 140))
STATE = bytes(range(256)) * 8


def open_store(folder: Path | None, fingerprint: str = "model", **sizes: Any) -> PrefixStore:
    return PrefixStore(folder, fingerprint=fingerprint, **sizes)


def saved(folder: Path, tokens: list[int] = TOKENS, state: bytes = STATE, fingerprint: str = "model") -> Path:
    store = open_store(folder, fingerprint)
    before = set(folder.glob("*.kv"))
    store.put(tokens, state)
    store.close()
    (path,) = set(folder.glob("*.kv")) - before
    return path


def test_a_state_outlives_the_store_that_saved_it(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "prefix"
    path = saved(folder)
    store = open_store(folder)
    assert store.has(TOKENS)
    assert store.get(TOKENS) == STATE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.glob("*" + PART_SUFFIX)) == []
    assert store.stats.disk_bytes == path.stat().st_size


def test_without_a_folder_states_are_kept_in_memory(tmp_path: Path) -> None:
    store = open_store(None)
    store.put(TOKENS, STATE)
    assert store.get(TOKENS) == STATE
    assert store.get(TOKENS[:-1]) is None
    assert (store.stats.saved, store.stats.misses, store.stats.memory_bytes) == (1, 1, len(STATE))
    store.close()


@pytest.mark.parametrize("tokens", [TOKENS[:-1], [*TOKENS, 1], [1, *TOKENS[1:]], []])
def test_other_tokens_have_no_state(tmp_path: Path, tokens: list[int]) -> None:
    saved(tmp_path)
    assert open_store(tmp_path).get(tokens) is None


def test_another_model_finds_nothing_and_removes_nothing(tmp_path: Path) -> None:
    saved(tmp_path)
    other = open_store(tmp_path, "another model")
    assert other.get(TOKENS) is None
    assert other.stats.removed == 0
    assert open_store(tmp_path).get(TOKENS) == STATE


def test_a_file_with_another_fingerprint_or_other_tokens_under_its_name_is_removed(tmp_path: Path) -> None:
    for fingerprint, tokens in (("another model", TOKENS), ("model", TOKENS[::-1])):
        path = saved(tmp_path)
        path.write_bytes(b"".join(pack(STATE, fingerprint=fingerprint, tokens=tokens)))
        store = open_store(tmp_path)
        assert store.get(TOKENS) is None
        assert store.stats.removed == 1
        assert not path.exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_file_that_was_cut_or_changed_is_a_miss_and_is_removed(tmp_path: Path, data: st.DataObject) -> None:
    path = saved(tmp_path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    store = open_store(tmp_path)
    assert store.get(TOKENS) is None
    assert not path.exists()


@given(st.binary(max_size=300))
def test_no_bytes_are_taken_for_a_state_that_were_not_one(data: bytes) -> None:
    assert unpack(data, fingerprint="model", tokens=TOKENS) is None
    assert unpack(MAGIC + data, fingerprint="model", tokens=TOKENS) is None


@given(st.binary(max_size=300), st.lists(st.integers(0, 2**31 - 1), max_size=20), st.text(max_size=20))
def test_what_is_packed_is_unpacked(state: bytes, tokens: list[int], fingerprint: str) -> None:
    packed = b"".join(pack(state, fingerprint=fingerprint, tokens=tokens))
    unpacked = unpack(packed, fingerprint=fingerprint, tokens=tokens)
    assert unpacked is not None
    assert unpacked.tobytes() == state


def test_the_least_recently_used_files_go_when_the_folder_is_full(tmp_path: Path) -> None:
    size = saved(tmp_path, [1] * 20).stat().st_size
    second = saved(tmp_path, [2] * 20)
    os.utime(second, (1, 1))
    store = open_store(tmp_path, disk_bytes=2 * size + 10, memory_bytes=1)
    assert store.get([1] * 20) == STATE
    store.put([3] * 20, STATE)
    store.flush()
    assert [store.has([n] * 20) for n in (1, 2, 3)] == [True, False, True]
    assert store.stats.disk_bytes <= 2 * size + 10
    store.close()


def test_memory_is_bounded_and_keeps_the_last_used(tmp_path: Path) -> None:
    store = open_store(None, memory_bytes=2 * len(STATE))
    for n in (1, 2):
        store.put([n] * 20, STATE)
    assert store.get([1] * 20) == STATE
    store.put([3] * 20, STATE)
    assert [store.get([n] * 20) is not None for n in (1, 2, 3)] == [True, False, True]
    store.put([4] * 20, STATE * 3)
    assert store.stats.memory_bytes == 0


def test_a_disk_that_refuses_costs_one_warning_and_memory_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    store.put(TOKENS, STATE)
    store.flush()
    assert store.get(TOKENS) == STATE
    assert store.stats.errors == 1
    assert list(tmp_path.iterdir()) == []
    store.put(TOKENS[:20], STATE)
    store.close()
    assert [record.getMessage() for record in caplog.records] == [
        "prefix states are not kept on disk: No space left on device"
    ]


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    store = open_store(tmp_path / "file" / "prefix")
    store.put(TOKENS, STATE)
    assert store.get(TOKENS) == STATE
    assert store.stats.errors == 1


def test_leftovers_of_a_crash_are_removed_when_they_are_old(tmp_path: Path) -> None:
    old, new = tmp_path / ("a.1" + PART_SUFFIX), tmp_path / ("b.2" + PART_SUFFIX)
    for part in (old, new):
        part.write_bytes(b"x")
    os.utime(old, (1, 1))
    open_store(tmp_path)
    assert (old.exists(), new.exists()) == (False, True)


def test_a_length_that_takes_longer_to_restore_than_to_compute_is_given_up_and_shown(tmp_path: Path) -> None:
    store = open_store(None)
    store.note_computed(100, 0.1)
    assert store.is_worth(40)
    assert not store.is_worth(8)
    for _ in range(TRIALS):
        assert store.is_worth(40)
        store.note_restored(40, 0.2)
        store.note_restored(1000, 0.2)
    assert not store.is_worth(40)
    assert store.is_worth(1000)
    assert store.stats.given_up == (32,)
    assert (store.stats.hits, store.stats.restored_tokens) == (2 * TRIALS, TRIALS * 1040)
