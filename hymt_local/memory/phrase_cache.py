"""The phrase cache: verified machine output, keyed by signature and source, the least recently used evicted first."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

from hymt_local.memory.database import open_database, store_errors, writing

MAX_BYTES = 1 << 30

_KEY_BYTES = 16
_ROW_OVERHEAD_BYTES = 100
"""Key, numbers and two index entries; what SQLite adds to the texts of a row."""
_EVICTED_TO = 0.9
"""Eviction goes below the limit, so that it is rare."""
_EVICTION_BATCH = 1000
"""Rows deleted in one transaction: other processes wait a few milliseconds."""
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class CachedPhrase:
    """One remembered translation."""

    target: str
    created_at: int
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class CacheStats:
    """How full the cache is."""

    entries: int
    size_bytes: int
    """Of texts and rows; the file may be larger."""


class PhraseCache:
    """The cache in one database file. Belongs to the thread that opened it; other processes may use the file too.

    Args:
        path: The database; created when absent.
        max_bytes: What texts and rows may take before the least recently used go.

    Raises:
        StoreError: from the constructor and from every method, when the file cannot be used.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._connection = open_database(path)
        self._used: set[bytes] = set()
        """Keys read for the first time today, to be marked by the next write: a read never waits for a writer."""

    def get(self, signature: str, source: str) -> CachedPhrase | None:
        """Return what is stored under a signature digest for a source, or None."""
        key = _key(signature, source)
        with store_errors(self._path):
            row = self._connection.execute(
                "SELECT target, created_at, last_used_day, source = ? FROM phrase_cache WHERE key = ?", (source, key)
            ).fetchone()
        if row is None or not row[3]:
            return None
        if row[2] < _today():
            self._used.add(key)
        return CachedPhrase(row[0], row[1])

    def edited(self, source: str, *, source_lang: str, target_lang: str) -> str | None:
        """Return the target that a person has given to a source, whatever the model; None when nobody has."""
        with store_errors(self._path):
            row = self._connection.execute(
                "SELECT target FROM edited WHERE source = ? AND target_lang = ? AND source_lang = ?",
                (source, target_lang, source_lang),
            ).fetchone()
        return None if row is None else str(row[0])

    def put(self, signature: str, source: str, *, target: str) -> None:
        """Remember one verified translation; what is there already stays."""
        size_bytes = len(source.encode()) + len(target.encode()) + _ROW_OVERHEAD_BYTES
        row = (_key(signature, source), signature, source, target, int(time.time()), _today(), size_bytes)
        with store_errors(self._path):
            with writing(self._connection):
                self._mark_used()
                self._connection.execute(
                    "INSERT INTO phrase_cache"
                    " (key, signature, source, target, created_at, last_used_day, size_bytes, days_used)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, 1) ON CONFLICT (key) DO NOTHING",
                    row,
                )
            self._evict()

    def stats(self) -> CacheStats:
        """Return the totals; takes no longer for a large cache."""
        with store_errors(self._path):
            return CacheStats(
                *self._connection.execute("SELECT entries, size_bytes FROM phrase_cache_totals").fetchone()
            )

    def close(self) -> None:
        """Write what is pending and close the file; closing twice is fine."""
        with store_errors(self._path):
            try:
                if self._used:
                    with writing(self._connection):
                        self._mark_used()
            finally:
                self._connection.close()

    def _mark_used(self) -> None:
        today = _today()
        self._connection.executemany(
            "UPDATE phrase_cache SET last_used_day = ?, days_used = days_used + 1 WHERE key = ? AND last_used_day < ?",
            [(today, key, today) for key in self._used],
        )
        self._used.clear()

    def _evict(self) -> None:
        if self.stats().size_bytes <= self._max_bytes:
            return
        while (stats := self.stats()).size_bytes > self._max_bytes * _EVICTED_TO:
            n_evicted = min(_EVICTION_BATCH, 1 + stats.entries // 20)
            with writing(self._connection):
                self._connection.execute(
                    "DELETE FROM phrase_cache WHERE id IN"
                    " (SELECT id FROM phrase_cache ORDER BY last_used_day, id LIMIT ?)",
                    (n_evicted,),
                )
        self._connection.execute("PRAGMA incremental_vacuum")


def _key(signature: str, source: str) -> bytes:
    return hashlib.blake2b(f"{signature}\n{source}".encode(), digest_size=_KEY_BYTES).digest()


def _today() -> int:
    """Return the day as a number since the epoch: rows are marked as used once a day at most."""
    return int(time.time()) // _DAY_S
