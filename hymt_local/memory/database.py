"""The one SQLite file of the program: how it is opened, checked, written and brought up to date.

What the tables mean belongs to the modules that use them; here they are only created.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hymt_local.errors import StoreError

APPLICATION_ID = 0x68796D74
"""`hymt` in ASCII, in the file's header: tells our files from other SQLite databases."""

BUSY_TIMEOUT_S = 5.0

Migration = Callable[[sqlite3.Connection], None]

_ACCESS_HINT = "check permissions and free space, or set HYMT_HOME to a folder of yours"
_CORRUPT_HINT = "move the file away: a new one is made on the next run"
_UPDATE_HINT = "update hymt-local, or move the file away"
_RETRY_PAUSE_S = 0.01


def create_phrase_cache(connection: sqlite3.Connection) -> None:
    """Create the phrase cache and its totals, which triggers keep: counting a million rows would take too long."""
    connection.execute("""
        CREATE TABLE phrase_cache (
            id INTEGER PRIMARY KEY,
            key BLOB NOT NULL UNIQUE,
            signature TEXT NOT NULL,
            source TEXT NOT NULL,
            target TEXT NOT NULL,
            created_at INTEGER NOT NULL,
            last_used_day INTEGER NOT NULL,
            days_used INTEGER NOT NULL,
            size_bytes INTEGER NOT NULL
        ) STRICT""")
    connection.execute("CREATE INDEX phrase_cache_by_use ON phrase_cache (last_used_day)")
    connection.execute(
        "CREATE TABLE phrase_cache_totals (entries INTEGER NOT NULL, size_bytes INTEGER NOT NULL) STRICT"
    )
    connection.execute("INSERT INTO phrase_cache_totals VALUES (0, 0)")
    connection.execute("""
        CREATE TRIGGER phrase_cache_added AFTER INSERT ON phrase_cache BEGIN
            UPDATE phrase_cache_totals SET entries = entries + 1, size_bytes = size_bytes + NEW.size_bytes;
        END""")
    connection.execute("""
        CREATE TRIGGER phrase_cache_removed AFTER DELETE ON phrase_cache BEGIN
            UPDATE phrase_cache_totals SET entries = entries - 1, size_bytes = size_bytes - OLD.size_bytes;
        END""")


def create_history(connection: sqlite3.Connection) -> None:
    """Create the history of whole texts, and the targets that people have changed, by source segment."""
    connection.execute("""
        CREATE TABLE history (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            created_at INTEGER NOT NULL,
            source_lang TEXT NOT NULL,
            target_lang TEXT NOT NULL,
            model TEXT NOT NULL,
            source TEXT NOT NULL,
            target TEXT NOT NULL,
            folded TEXT NOT NULL,
            edited_at INTEGER
        ) STRICT""")
    connection.execute("""
        CREATE TABLE edited (
            source_lang TEXT NOT NULL,
            target_lang TEXT NOT NULL,
            source TEXT NOT NULL,
            target TEXT NOT NULL,
            edited_at INTEGER NOT NULL,
            PRIMARY KEY (source, target_lang, source_lang)
        ) STRICT, WITHOUT ROWID""")


MIGRATIONS: tuple[Migration, ...] = (create_phrase_cache, create_history)
"""Append only: `PRAGMA user_version` counts those that a file has seen."""


def open_database(path: Path, *, migrations: Sequence[Migration] = MIGRATIONS) -> sqlite3.Connection:
    """Open the file, creating or upgrading it. The connection is in autocommit mode and belongs to this thread.

    A file of an older schema is copied to `<name>.v<N>.bak` before it is upgraded.

    Raises:
        StoreError: it cannot be created or written, is damaged, is not ours, or was written by a newer version.
    """
    with store_errors(path):
        _create_private(path)
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        try:
            _check_usable(connection, path, n_known=len(migrations))
            _configure(connection)
            _migrate(connection, path, migrations)
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a block as one transaction that takes the write lock first: upgrading a read lock fails without waiting."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # a full disk has rolled it back already
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite and the file system raise into StoreError."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot open {path}: {error.strerror or error}", hint=_ACCESS_HINT) from error
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        is_damaged = name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))
        hint = _CORRUPT_HINT if is_damaged else _ACCESS_HINT
        raise StoreError(f"the database {path} cannot be used: {error}", hint=hint) from error


def _create_private(path: Path) -> None:
    """Create the file for the owner's eyes only; SQLite gives its companions the same mode."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _check_usable(connection: sqlite3.Connection, path: Path, *, n_known: int) -> None:
    """Refuse another program's database, and a newer version's, before anything is written to it."""
    # One statement sees one state of the file: between two, another process may have made the tables.
    found, version, n_tables = connection.execute("""
        SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
        FROM pragma_application_id, pragma_user_version""").fetchone()
    if found != APPLICATION_ID and n_tables:
        raise StoreError(f"{path} is a database of another program", hint=_CORRUPT_HINT)
    if version > n_known:
        raise StoreError(f"{path} was written by a newer version (schema {version})", hint=_UPDATE_HINT)
    if not n_tables:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has no effect later


def _configure(connection: sqlite3.Connection) -> None:
    _enter_wal_mode(connection)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")


def _enter_wal_mode(connection: sqlite3.Connection) -> None:
    """Switch once per file: while another process does the same, SQLite fails without waiting for the busy timeout."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_PAUSE_S)
        else:
            return  # file systems without shared memory keep their old mode


def _migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration]) -> None:
    version = _number(connection, "user_version")
    if version == len(migrations):
        return
    if version > 0:
        _back_up(connection, path.with_name(f"{path.name}.v{version}.bak"))
    with writing(connection):
        version = _number(connection, "user_version")  # another process may have been faster
        for migration in migrations[version:]:
            migration(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {max(version, len(migrations))}")


def _back_up(connection: sqlite3.Connection, target: Path) -> None:
    _create_private(target)
    copy = sqlite3.connect(target)
    try:
        connection.backup(copy)
    finally:
        copy.close()


def _number(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
