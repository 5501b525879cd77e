"""Reading a model file into the page cache: what is missing, with progress, and no more than that."""

import os
import threading
from pathlib import Path

import pytest

from hymt_local.engine.page_cache import CHUNK_BYTES, missing_chunks, read_ahead

N_CHUNKS = 9


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"x" * (N_CHUNKS * CHUNK_BYTES - 1))
    return path


class Cache:
    """Stands for the page cache of a system that says what is in it.

    Args:
        monkeypatch: Puts it in its place.
        cold: Chunks that are not in it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cold: set[int]) -> None:
        self._cold = {chunk * CHUNK_BYTES for chunk in cold}
        self.read: list[int] = []
        monkeypatch.setattr(os, "RWF_NOWAIT", 8, raising=False)
        monkeypatch.setattr(os, "preadv", self.preadv, raising=False)

    def preadv(self, descriptor: int, buffers: list[bytearray], offset: int, flags: int = 0) -> int:
        if flags and offset in self._cold:
            raise BlockingIOError
        if not flags:
            self.read.append(offset)
            self._cold.discard(offset)
        return len(buffers[0])


def test_a_file_that_is_in_memory_is_not_read_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(monkeypatch, cold=set())
    assert read_ahead(file, lambda fraction: pytest.fail("nothing was to be done"))
    assert cache.read == []


def test_what_is_missing_is_read_with_progress(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cold = {0, 3, 4, N_CHUNKS - 1}
    cache = Cache(monkeypatch, cold)
    fractions: list[float] = []

    def note(fraction: float) -> bool:
        fractions.append(fraction)
        return True

    assert read_ahead(file, note)
    assert sorted(cache.read) == [chunk * CHUNK_BYTES for chunk in sorted(cold)]
    assert fractions == [0.25, 0.5, 0.75, 1.0]


def test_reading_ahead_is_given_up_when_nobody_wants_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cache(monkeypatch, cold=set(range(N_CHUNKS)))
    fractions: list[float] = []

    def give_up(fraction: float) -> bool:
        fractions.append(fraction)
        return fraction < 0.5

    assert not read_ahead(file, give_up)
    assert fractions == [n_read / N_CHUNKS for n_read in range(1, 6)]
    assert not any(thread.name.startswith("hymt-read-ahead") for thread in threading.enumerate())


def test_a_disk_that_fails_half_way_is_left_to_llama_cpp(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(monkeypatch, cold=set(range(N_CHUNKS)))

    def fail(descriptor: int, buffers: list[bytearray], offset: int, flags: int = 0) -> int:
        if not flags and offset >= 4 * CHUNK_BYTES:
            raise OSError(5, "input/output error")
        return cache.preadv(descriptor, buffers, offset, flags)

    monkeypatch.setattr(os, "preadv", fail)
    assert read_ahead(file, lambda fraction: True)


def test_a_system_that_does_not_tell_reads_nothing_ahead(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "RWF_NOWAIT", raising=False)
    with file.open("rb") as stream:
        assert list(missing_chunks(stream.fileno(), file.stat().st_size)) == []


@pytest.mark.parametrize("fault", [OSError(95, "not supported"), OSError(5, "input/output error")])
def test_a_disk_that_refuses_is_left_to_llama_cpp(file: Path, monkeypatch: pytest.MonkeyPatch, fault: OSError) -> None:
    def refuse(*_: object) -> int:
        raise fault

    monkeypatch.setattr(os, "RWF_NOWAIT", 8, raising=False)
    monkeypatch.setattr(os, "preadv", refuse, raising=False)
    assert read_ahead(file, lambda fraction: True)
    assert read_ahead(file.with_name("missing"), lambda fraction: True)
