"""The history: what people translated, searchable and editable. An edited target wins over the phrase cache.

Texts are whole, as they were typed; the edits behind them are kept by segment, so that a corrected line is found again
in another text.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hymt_local.memory.database import open_database, store_errors, writing

PAGE_ENTRIES = 50
MOST_ENTRIES = 50_000
"""The oldest go beyond it, but for those that were edited."""

_TRIM_EVERY = 100
_LAST_ID = 2**62
_COLUMNS = "id, created_at, source_lang, target_lang, model, source, target, edited_at"


@dataclass(frozen=True, slots=True)
class Translation:
    """What is remembered of one translation."""

    source: str
    target: str
    source_lang: str
    target_lang: str
    model: str


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One row of the history, or of the phrase cache in the same form."""

    id: int
    created_at: int
    """Seconds since the epoch."""
    source_lang: str
    """Empty in the phrase cache, which knows languages only by the signature."""
    target_lang: str
    model: str
    source: str
    target: str
    edited_at: int | None = None
    """When a person changed the target; None while it is the model's."""


class History:
    """The history in one database file. Belongs to the thread that opened it; other processes may use the file too.

    Raises:
        StoreError: from the constructor and from every method, when the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = open_database(path)
        self._n_added = 0

    def add(self, entry: Translation) -> int:
        """Remember one translation; returns its id."""
        with self._writing():
            row = self._connection.execute(
                "INSERT INTO history (created_at, source_lang, target_lang, model, source, target, folded)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id",
                (int(time.time()), *_fields(entry)),
            ).fetchone()
            self._n_added += 1
            if self._n_added % _TRIM_EVERY == 1:
                self._trim()
        return int(row[0])

    def replace(self, entry_id: int, entry: Translation) -> None:
        """Let a later state of the same text stand in an entry's place; an edit of the old state is not undone."""
        with self._writing():
            self._connection.execute(
                "UPDATE history SET created_at = ?, source_lang = ?, target_lang = ?, model = ?, source = ?,"
                " target = ?, folded = ?, edited_at = NULL WHERE id = ?",
                (int(time.time()), *_fields(entry), entry_id),
            )

    def page(
        self, query: str = "", *, before_id: int | None = None, limit: int = PAGE_ENTRIES
    ) -> tuple[HistoryEntry, ...]:
        """Return entries that contain the query in source or target, newest first.

        Args:
            query: Any case, any width; empty for all.
            before_id: The last entry of the page before; None for the first page.
            limit: Entries of a page.
        """
        start = _LAST_ID if before_id is None else before_id
        if query.strip():
            return self._select("id < ? AND instr(folded, ?) > 0", (start, folded(query.strip())), limit=limit)
        return self._select("id < ?", (start,), limit=limit)

    def cached_page(
        self, query: str = "", *, before_id: int | None = None, limit: int = PAGE_ENTRIES
    ) -> tuple[HistoryEntry, ...]:
        """Return rows of the phrase cache as entries, newest first; case matters but for ASCII letters."""
        pattern = "%" + query.strip().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        with store_errors(self._path):
            rows = self._connection.execute(
                "SELECT id, created_at, '', '', '', source, target, NULL FROM phrase_cache"
                " WHERE id < ? AND (source LIKE ? ESCAPE '\\' OR target LIKE ? ESCAPE '\\') ORDER BY id DESC LIMIT ?",
                (_LAST_ID if before_id is None else before_id, pattern, pattern, limit),
            ).fetchall()
        return tuple(HistoryEntry(*row) for row in rows)

    def count(self) -> int:
        """Return how many entries there are."""
        with store_errors(self._path):
            return int(self._connection.execute("SELECT count(*) FROM history").fetchone()[0])

    def edit(self, entry_id: int, target: str) -> HistoryEntry | None:
        """Put a person's target in place of the model's; None when the entry is gone.

        The whole text wins from now on, and where source and target have as many lines, each changed line does too.
        """
        found = self._select("id = ?", (entry_id,), limit=1)
        if not found:
            return None
        old, now = found[0], int(time.time())
        pairs = _edited_pairs(old, target)
        with self._writing():
            self._connection.execute(
                "UPDATE history SET target = ?, folded = ?, edited_at = ? WHERE id = ?",
                (target, folded(f"{old.source}\n{target}"), now, entry_id),
            )
            self._connection.executemany(
                "INSERT INTO edited (source_lang, target_lang, source, target, edited_at) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET target = excluded.target, edited_at = excluded.edited_at",
                [(old.source_lang, old.target_lang, source, wanted, now) for source, wanted in pairs],
            )
        return self._select("id = ?", (entry_id,), limit=1)[0]

    def edit_cached(self, entry_id: int, target: str) -> None:
        """Change a row of the phrase cache."""
        with self._writing():
            self._connection.execute("UPDATE phrase_cache SET target = ? WHERE id = ?", (target, entry_id))

    def delete(self, entry_ids: Sequence[int]) -> None:
        """Forget entries, and the edits of their whole texts with them."""
        with self._writing():
            for entry in (entry for entry_id in entry_ids for entry in self._rows("id = ?", (entry_id,), limit=1)):
                self._connection.executemany(
                    "DELETE FROM edited WHERE source_lang = ? AND target_lang = ? AND source = ?",
                    [(entry.source_lang, entry.target_lang, source) for source in _sources(entry.source)],
                )
            self._connection.executemany("DELETE FROM history WHERE id = ?", [(entry_id,) for entry_id in entry_ids])

    def delete_cached(self, entry_ids: Sequence[int]) -> None:
        """Take rows out of the phrase cache."""
        with self._writing():
            self._connection.executemany(
                "DELETE FROM phrase_cache WHERE id = ?", [(entry_id,) for entry_id in entry_ids]
            )

    def every(self, query: str = "") -> Iterator[HistoryEntry]:
        """Yield all entries that a query finds, page by page, for an export."""
        before_id: int | None = None
        while page := self.page(query, before_id=before_id):
            yield from page
            before_id = page[-1].id

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        with store_errors(self._path):
            self._connection.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Run a block as one transaction; its errors are ours."""
        with store_errors(self._path), writing(self._connection):
            yield

    def _select(self, where: str, values: Sequence[object], *, limit: int) -> tuple[HistoryEntry, ...]:
        with store_errors(self._path):
            return self._rows(where, values, limit=limit)

    def _rows(self, where: str, values: Sequence[object], *, limit: int) -> tuple[HistoryEntry, ...]:
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM history WHERE {where} ORDER BY id DESC LIMIT ?", (*values, limit)
        ).fetchall()
        return tuple(HistoryEntry(*row) for row in rows)

    def _trim(self) -> None:
        self._connection.execute(
            "DELETE FROM history WHERE edited_at IS NULL AND id <="
            " (SELECT id FROM history ORDER BY id DESC LIMIT 1 OFFSET ?)",
            (MOST_ENTRIES,),
        )


def folded(text: str) -> str:
    """Return text as it is searched: without regard to case and width."""
    return unicodedata.normalize("NFKC", text).casefold()


def _fields(entry: Translation) -> tuple[str, ...]:
    both = folded(f"{entry.source}\n{entry.target}")
    return (entry.source_lang, entry.target_lang, entry.model, entry.source, entry.target, both)


def _sources(text: str) -> Iterator[str]:
    """Yield a text as the cache is asked for it: the whole, and each of its lines, without outer whitespace."""
    yield text.strip()
    for line in text.splitlines():
        yield line.strip()


def _edited_pairs(old: HistoryEntry, target: str) -> list[tuple[str, str]]:
    """Return the sources whose target a person has changed, with what they shall be."""
    pairs = [(old.source.strip(), target.strip())]
    sources, targets, before = old.source.splitlines(), target.splitlines(), old.target.splitlines()
    if len(sources) == len(targets) == len(before) > 1:
        lines = zip(sources, targets, before, strict=True)
        pairs += [(source.strip(), new.strip()) for source, new, was in lines if new != was and source.strip()]
    return pairs
