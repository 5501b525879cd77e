"""Small files of the user's are read only when they are files: a pipe in their place never hangs the program."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hymt_local.catalog import load_catalog
from hymt_local.cli.diagnostics import LogFile
from hymt_local.client_keys import ClientFile
from hymt_local.config import load_settings, write_setting
from hymt_local.document_jobs.journal import read_journal
from hymt_local.document_jobs.speeds import read_speeds
from hymt_local.download.checkpoint import NOTE_NAME, read_note
from hymt_local.errors import ConfigError, HymtError, ModelFileError, StoreError
from hymt_local.installed import ModelStore
from hymt_local.licences import AcceptedLicences
from hymt_local.offline import is_offline
from hymt_local.paths import Paths
from hymt_local.regular_file import read_regular
from hymt_local.tui.keymap import load_keymap

PATIENCE_S = 30


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.from_environment({"HYMT_HOME": str(tmp_path)})


def in_time(action: Callable[[], object]) -> object:
    """Return what an action returns or raises; fail where it hangs."""
    results: list[object] = []

    def run() -> None:
        try:
            results.append(action())
        except HymtError as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert results, "it waits for the other end of the pipe"
    return results[0]


def test_a_file_is_read_and_what_is_none_is_refused(tmp_path: Path) -> None:
    file, pipe = tmp_path / "file", tmp_path / "pipe"
    file.write_bytes(b"all of it")
    os.mkfifo(pipe)
    assert read_regular(file) == b"all of it"
    for other in (pipe, Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            read_regular(other)
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none")


def test_settings_that_are_a_pipe_are_refused(paths: Paths) -> None:
    paths.config_file.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(paths.config_file)
    error = in_time(lambda: load_settings(paths.config_file, {}))
    assert isinstance(error, StoreError)
    assert "not a regular file" in error.message
    assert isinstance(in_time(lambda: write_setting(paths.config_file, "threads", "2")), StoreError)
    assert in_time(lambda: is_offline({"HYMT_HOME": os.fspath(paths.config_dir.parent)})) is True


READERS: dict[str, Callable[[Path], object]] = {
    "models.toml": load_catalog,
    "keymap.toml": load_keymap,
    "clients.json": lambda file: ClientFile(file).read(),
    NOTE_NAME: lambda file: read_note(file.parent),
    "documents/speeds.json": lambda file: read_speeds(file.parent.parent),
    "x.journal": lambda file: read_journal(file, key="x"),
}


@pytest.mark.parametrize("name", READERS)
def test_no_other_file_of_the_users_hangs_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / name)
    result = in_time(lambda: READERS[name](tmp_path / name))
    assert not result or isinstance(result, ConfigError | StoreError)


def test_a_manifest_and_the_licences_too(paths: Paths) -> None:
    store = ModelStore(paths, load_catalog())
    paths.models_dir.mkdir(parents=True)
    paths.state_dir.mkdir(parents=True, exist_ok=True)
    os.mkfifo(paths.models_dir / "x.json")
    accepted = AcceptedLicences(paths)
    os.mkfifo(accepted.file)
    problems = in_time(store.problems)
    assert isinstance(problems, tuple)
    assert "not a regular file" in problems[0].message
    licence = load_catalog().models[0].licence
    assert isinstance(in_time(lambda: accepted.has(licence)), StoreError)


def test_a_pipe_is_no_model(tmp_path: Path, paths: Paths) -> None:
    os.mkfifo(tmp_path / "model.gguf")
    error = in_time(lambda: ModelStore(paths, load_catalog()).import_file(tmp_path / "model.gguf"))
    assert isinstance(error, ModelFileError)
    assert "not a regular file" in error.message


def test_a_log_that_is_a_pipe_nobody_reads_is_done_without(paths: Paths, tmp_path: Path) -> None:
    paths.log_file.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(paths.log_file)
    log = LogFile({"HYMT_HOME": str(tmp_path)})
    assert in_time(lambda: [log.handle(logging.makeLogRecord({"msg": "x"}))])
    log.close()
