import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from hymt_local.errors import StoreError
from hymt_local.memory import phrase_cache
from hymt_local.memory.phrase_cache import PhraseCache

WRITER = """
import sys
from pathlib import Path
from hymt_local.memory.phrase_cache import PhraseCache

path, name = Path(sys.argv[1]), sys.argv[2]
cache = PhraseCache(path)
for number in range(60):
    cache.put("signature", f"{name} {number}", target=f"{name} {number} done")
    found = cache.get("signature", f"{name} {number}")
    assert found is not None and found.target == f"{name} {number} done"
cache.close()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.sqlite3"


@pytest.fixture
def cache(path: Path) -> Iterator[PhraseCache]:
    with_closing = PhraseCache(path)
    yield with_closing
    with_closing.close()


def target_of(cache: PhraseCache, signature: str, source: str) -> str | None:
    found = cache.get(signature, source)
    return None if found is None else found.target


def test_what_was_put_is_found_under_its_signature_only(cache: PhraseCache) -> None:
    cache.put("one", "Hello", target="Bonjour")
    assert target_of(cache, "one", "Hello") == "Bonjour"
    assert target_of(cache, "two", "Hello") is None
    assert target_of(cache, "one", "hello") is None


def test_it_is_still_there_after_reopening(path: Path) -> None:
    first = PhraseCache(path)
    first.put("one", "Hello", target="Bonjour")
    first.close()
    second = PhraseCache(path)
    assert target_of(second, "one", "Hello") == "Bonjour"
    second.close()


def test_the_first_translation_of_a_key_stays(cache: PhraseCache) -> None:
    cache.put("one", "Hello", target="Bonjour")
    cache.put("one", "Hello", target="Salut")
    assert target_of(cache, "one", "Hello") == "Bonjour"
    assert cache.stats().entries == 1


def test_stats_count_rows_and_bytes(cache: PhraseCache) -> None:
    assert (cache.stats().entries, cache.stats().size_bytes) == (0, 0)
    cache.put("one", "a" * 1000, target="b" * 500)
    assert cache.stats().entries == 1
    assert 1500 <= cache.stats().size_bytes <= 1700


def test_the_least_recently_used_go_when_it_is_full(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    day = 20_000
    monkeypatch.setattr(phrase_cache, "_today", lambda: day)
    cache = PhraseCache(path, max_bytes=20_000)
    for number in range(10):
        cache.put("one", f"old {number}", target="x" * 1000)
    day += 1
    assert target_of(cache, "one", "old 0")
    for number in range(10):
        cache.put("one", f"new {number}", target="x" * 1000)
    assert cache.stats().size_bytes <= 20_000
    assert target_of(cache, "one", "old 0"), "it was used on the second day"
    assert target_of(cache, "one", "old 1") is None
    assert all(target_of(cache, "one", f"new {number}") for number in range(10))
    cache.close()


def test_a_use_is_written_down_once_a_day(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for today in (20_000, 20_001, 20_001):
        monkeypatch.setattr(phrase_cache, "_today", partial(int, today))
        cache = PhraseCache(path)
        cache.put("one", "Hello", target="Bonjour")
        assert target_of(cache, "one", "Hello")
        cache.close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT last_used_day, days_used FROM phrase_cache").fetchall() == [(20_001, 2)]
    connection.close()


def test_a_read_does_not_wait_for_a_writer(path: Path, cache: PhraseCache) -> None:
    cache.put("one", "Hello", target="Bonjour")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert target_of(cache, "one", "Hello") == "Bonjour"
    other.close()


def test_a_full_disk_is_a_store_error_and_loses_nothing(path: Path, cache: PhraseCache) -> None:
    cache.put("one", "Hello", target="Bonjour")
    pages = cache._connection.execute("PRAGMA page_count").fetchone()[0]
    cache._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="full"):
        cache.put("one", "much", target="x" * 100_000)
    assert target_of(cache, "one", "Hello") == "Bonjour"


def test_closing_twice_is_fine(cache: PhraseCache) -> None:
    cache.close()
    cache.close()


def test_three_processes_write_at_once_and_lose_nothing(path: Path) -> None:
    names = ("first", "second", "third")
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in names]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    cache = PhraseCache(path)
    assert cache.stats().entries == 180
    assert all(target_of(cache, "signature", f"{name} 59") == f"{name} 59 done" for name in names)
    cache.close()
