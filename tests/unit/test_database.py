import os
import sqlite3
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hymt_local.errors import StoreError
from hymt_local.memory.database import APPLICATION_ID, MIGRATIONS, open_database, writing


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "memory.sqlite3"


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_a_new_file_is_private_and_says_whose_it_is(path: Path) -> None:
    connection = open_database(path)
    with writing(connection):
        connection.execute("UPDATE phrase_cache_totals SET entries = 0")
    modes = {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert pragma(connection, "application_id") == APPLICATION_ID
    assert pragma(connection, "user_version") == len(MIGRATIONS)
    connection.close()


def test_it_is_opened_for_many_writers(path: Path) -> None:
    connection = open_database(path)
    settings = {name: pragma(connection, name) for name in ("journal_mode", "synchronous", "busy_timeout")}
    assert settings == {"journal_mode": "wal", "synchronous": 1, "busy_timeout": 5000}
    connection.close()


def test_every_table_is_strict(path: Path) -> None:
    connection = open_database(path)
    tables = connection.execute("SELECT name, strict FROM pragma_table_list WHERE name NOT LIKE 'sqlite%'").fetchall()
    assert tables
    assert all(strict for _, strict in tables)
    connection.close()


def test_an_older_file_is_copied_and_then_upgraded_once(path: Path) -> None:
    open_database(path).close()
    seen: list[int] = []

    def second(connection: sqlite3.Connection) -> None:
        seen.append(len(seen))
        connection.execute("CREATE TABLE second (a INTEGER) STRICT")

    for _ in range(2):
        connection = open_database(path, migrations=[*MIGRATIONS, second])
        assert pragma(connection, "user_version") == len(MIGRATIONS) + 1
        connection.close()
    backup = sqlite3.connect(path.with_name(f"{path.name}.v{len(MIGRATIONS)}.bak"))
    assert pragma(backup, "user_version") == len(MIGRATIONS)
    backup.close()
    assert seen == [0]


def test_a_failed_migration_leaves_the_old_schema(path: Path) -> None:
    open_database(path).close()

    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE half_done (a INTEGER) STRICT")
        connection.execute("not SQL")

    with pytest.raises(StoreError):
        open_database(path, migrations=[*MIGRATIONS, broken])
    connection = open_database(path)
    assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'half_done'").fetchone() == (0,)
    connection.close()


def test_a_file_of_a_newer_version_is_refused_untouched(path: Path) -> None:
    connection = open_database(path)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="newer version") as caught:
        open_database(path)
    assert "update" in caught.value.hint
    assert path.read_bytes() == before


def test_another_programs_database_is_refused_untouched(path: Path) -> None:
    path.parent.mkdir()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (a)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        open_database(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"no database at all " * 100, os.urandom(4096)])
def test_a_damaged_file_is_refused_untouched(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(StoreError) as caught:
        open_database(path)
    assert str(path) in caught.value.message
    assert "move the file away" in caught.value.hint
    assert path.read_bytes() == content


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError) as caught:
        open_database(tmp_path / "file" / "memory.sqlite3")
    assert "check permissions" in caught.value.hint


def test_a_block_that_raises_writes_nothing(path: Path) -> None:
    connection = open_database(path)

    def fail() -> None:
        with writing(connection):
            connection.execute("UPDATE phrase_cache_totals SET entries = 7")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert connection.execute("SELECT entries FROM phrase_cache_totals").fetchone() == (0,)
    connection.close()


def test_another_process_may_make_the_file_between_any_two_statements(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect_beside_a_competitor(moment: int) -> type[sqlite3.Connection]:
        class Watched(sqlite3.Connection):
            n_statements = 0

            def execute(self, *arguments: Any) -> sqlite3.Cursor:
                Watched.n_statements += 1
                if Watched.n_statements == moment and not self.in_transaction:
                    monkeypatch.undo()
                    open_database(path).close()
                return super().execute(*arguments)

        return Watched

    n_moments = 0
    for moment in range(1, 40):
        for leftover in path.parent.glob("*"):
            leftover.unlink()
        watched = connect_beside_a_competitor(moment)
        monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=watched))
        connection = open_database(path)
        monkeypatch.undo()
        assert pragma(connection, "user_version") == len(MIGRATIONS)
        connection.close()
        n_moments = max(n_moments, watched.n_statements)  # type: ignore[attr-defined]
        if watched.n_statements < moment:  # type: ignore[attr-defined]
            break
    assert n_moments > 10
