"""Where things live: one folder for everything, or the system's usual places; always absolute."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

import pytest

from hymt_local.errors import ConfigError
from hymt_local.paths import Paths


def test_one_variable_puts_everything_under_one_folder(tmp_path: Path) -> None:
    home = tmp_path / "mit Leerzeichen · 家"
    paths = Paths.from_environment({"HYMT_HOME": str(home)})
    assert astuple(paths) == tuple(home / name for name in ("config", "data", "cache", "state"))
    assert paths.config_file == home / "config" / "config.toml"
    assert paths.catalog_file == home / "config" / "models.toml"
    assert paths.database == home / "data" / "memory.sqlite3"
    assert paths.models_dir == home / "data" / "models"
    assert paths.log_file == home / "state" / "hymt.log"
    assert paths.last_translation == home / "state" / "last-translation.txt"
    assert not home.exists()


def test_a_relative_home_is_bound_to_the_folder_it_was_named_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Paths.from_environment({"HYMT_HOME": "here"}).data_dir == tmp_path / "here" / "data"


def test_a_tilde_is_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Paths.from_environment({"HYMT_HOME": "~/hymt"}).data_dir == tmp_path / "hymt" / "data"


def test_the_home_of_a_user_who_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="HYMT_HOME = '~nobody-by-this-name/x'"):
        Paths.from_environment({"HYMT_HOME": "~nobody-by-this-name/x"})


@pytest.mark.parametrize("environ", [{}, {"HYMT_HOME": ""}])
def test_without_it_the_systems_folders_are_used_and_they_differ(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    folders = astuple(Paths.from_environment(environ))
    assert all(folder.is_absolute() and folder.is_relative_to(tmp_path) for folder in folders)
    assert all("hymt" in folder.parts for folder in folders)


def test_a_user_without_a_home_folder_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # what it does when the user database has no entry
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError) as caught:
        Paths.from_environment({})
    assert "HYMT_HOME" in caught.value.hint
