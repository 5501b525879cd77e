"""Settings: four layers, strict about everything, and a file that survives being edited by program and hand."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymt_local.config import (
    Layer,
    ResolvedSettings,
    Settings,
    load_settings,
    setting_names,
    settings_schema,
    unknown_variables,
    variable_name,
    write_atomically,
    write_setting,
)
from hymt_local.errors import ConfigError, StoreError

NO_FILE = Path("no-such-folder") / "config.toml"

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
toml_values = st.recursive(
    scalars | st.dates() | st.datetimes() | st.times(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(setting_names()) | st.text(max_size=12)
variable_texts = st.text(max_size=20) | st.sampled_from(
    ["", "0", "1", "true", "FALSE", "yes", "null", "nan", "inf", "-0", "1e999", "1_0", " 4", "٤", "\udcff", "9" * 400]
)


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "config.toml"


def write(config_file: Path, text: str) -> Path:
    config_file.parent.mkdir(parents=True, exist_ok=True)
    config_file.write_text(text, encoding="utf-8", newline="")
    return config_file


def resolve_or_refuse(**layers: Any) -> ResolvedSettings | ConfigError:
    """Return what the layers make, or why they make nothing; anything else goes through."""
    try:
        return load_settings(layers.get("file", NO_FILE), layers.get("environ", {}), flags=layers.get("flags"))
    except ConfigError as error:
        return error


# Layers


def test_without_any_layer_every_setting_has_its_default() -> None:
    resolved = load_settings(NO_FILE, {})
    assert resolved.settings == Settings()
    assert set(resolved.origins.values()) == {Layer.DEFAULT}
    assert tuple(resolved.origins) == setting_names()


def test_each_layer_beats_the_one_below_and_is_named_as_origin(config_file: Path) -> None:
    write(config_file, 'target_lang = "fr"\nthreads = 2\nseed = 7\n')
    environ = {"HYMT_TARGET_LANG": "de", "HYMT_THREADS": "3"}
    resolved = load_settings(config_file, environ, flags={"target_lang": "es", "source_lang": None})
    settings, origins = resolved.settings, resolved.origins
    assert (settings.target_lang, settings.threads, settings.seed, settings.cache) == ("es", 3, 7, True)
    assert [origins[name] for name in ("target_lang", "threads", "seed", "cache", "source_lang")] == [
        Layer.FLAG, Layer.ENVIRONMENT, Layer.FILE, Layer.DEFAULT, Layer.DEFAULT,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("cache", "0", False),
        ("cache", "False", False),
        ("live", "1", True),
        ("threads", "4", 4),
        ("temperature", "0.5", 0.5),
        ("temperature", "1", 1.0),
        ("model", "42", "42"),
        ("log_level", "debug", "debug"),
    ],
)
def test_a_variable_spells_a_value_of_the_settings_type(name: str, text: str, value: object) -> None:
    found = getattr(load_settings(NO_FILE, {variable_name(name): text}).settings, name)
    assert (found, type(found)) == (value, type(value))


def test_an_empty_variable_is_as_good_as_none(config_file: Path) -> None:
    write(config_file, "threads = 2\n")
    resolved = load_settings(config_file, {"HYMT_THREADS": ""})
    assert (resolved.settings.threads, resolved.origins["threads"]) == (2, Layer.FILE)


def test_misspelt_variables_are_found_and_ours_are_not() -> None:
    environ = {"HYMT_MODLE": "x", "HYMT_HOME": "y", "HYMT_MODEL": "z", "PATH": "p", "HYMT_": ""}
    assert unknown_variables(environ) == ("HYMT_", "HYMT_MODLE")


# Strictness


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("threads = 0", ["config.toml", "threads = 0", ">= 1"]),
        ('threads = "4"', ["config.toml", "threads = '4'", "int"]),
        ("threads = 4.0", ["threads = 4.0", "float"]),
        ("temperature = nan", ["temperature = nan", ">= 0.0"]),
        ("temperature = inf", ["temperature = inf", "<= 2.0"]),
        ("cache = 1", ["cache = 1", "bool"]),
        ("model = 1979-05-27", ["model = datetime.date(1979, 5, 27)", "date"]),
        ('log_level = "loud"', ["log_level = 'loud'"]),
        ("seed = 99999999999999999999999999", ["seed = 99999999999999999999999999"]),
        ("[threads]\na = 1", ["threads = {'a': 1}"]),
        ("target_lang = [", ["config.toml", "not valid TOML"]),
        ("threads = " + "9" * 5000, ["config.toml", "not valid TOML"]),
        ("model = " + "[" * 5000, ["config.toml", "not valid TOML"]),
        ("model = 'x'\nmodel = 'y'", ["config.toml", "not valid TOML"]),
    ],
)
def test_a_bad_file_is_refused_with_layer_key_and_value(config_file: Path, text: str, said: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(write(config_file, text), {})
    assert all(part in caught.value.message for part in said), caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_a_bad_variable_is_refused_under_its_own_name() -> None:
    with pytest.raises(ConfigError, match=r"^environment: `HYMT_THREADS = 'many'`: expected `int"):
        load_settings(NO_FILE, {"HYMT_THREADS": "many"})


def test_a_bad_flag_is_refused_as_such() -> None:
    with pytest.raises(ConfigError, match=r"^command line: `temperature = 9.0`: expected `float` <= 2.0"):
        load_settings(NO_FILE, {}, flags={"temperature": 9.0})


def test_a_layer_is_checked_even_where_a_higher_one_wins(config_file: Path) -> None:
    write(config_file, "threads = 0\n")
    with pytest.raises(ConfigError, match=r"config\.toml: `threads = 0`"):
        load_settings(config_file, {"HYMT_THREADS": "4"}, flags={"threads": 2})


def test_an_unknown_key_is_refused_with_the_nearest_name(config_file: Path) -> None:
    with pytest.raises(ConfigError, match="unknown setting `temprature`") as caught:
        load_settings(write(config_file, "temprature = 0.1\n"), {})
    assert caught.value.hint == "did you mean `temperature`?"


def test_a_huge_value_is_shortened_in_the_message(config_file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(write(config_file, f'threads = "{"9" * 3000}"\n'), {})
    assert len(caught.value.message) < 400


def test_a_file_that_is_not_utf8_is_refused_with_the_byte(config_file: Path) -> None:
    config_file.parent.mkdir()
    config_file.write_bytes(b'model = "caf\xe9"\n')
    with pytest.raises(ConfigError, match="not UTF-8 \\(byte 12\\)"):
        load_settings(config_file, {})


def test_a_byte_order_mark_is_no_fault(config_file: Path) -> None:
    assert load_settings(write(config_file, "\ufeffthreads = 4\n"), {}).settings.threads == 4


def test_a_folder_in_place_of_the_file_cannot_be_read(config_file: Path) -> None:
    config_file.mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot read"):
        load_settings(config_file, {})


@given(values=st.dictionaries(names, variable_texts | toml_values, max_size=4))
def test_any_flags_either_resolve_or_are_a_config_error(values: dict[str, Any]) -> None:
    resolved = resolve_or_refuse(flags=values)
    if isinstance(resolved, ConfigError):
        assert resolved.message.startswith(("command line: ", "unknown setting "))
        return
    typed = {name: value for name, value in values.items() if value is not None}
    assert {name for name, layer in resolved.origins.items() if layer is Layer.FLAG} == set(typed)
    assert {name: getattr(resolved.settings, name) for name in typed} == typed


@given(values=st.dictionaries(st.sampled_from(setting_names()), variable_texts, max_size=4))
def test_any_variables_either_resolve_or_are_a_config_error(values: dict[str, str]) -> None:
    resolved = resolve_or_refuse(environ={variable_name(name): text for name, text in values.items()})
    if isinstance(resolved, ConfigError):
        assert resolved.message.startswith("environment: `HYMT_")
        return
    set_by_user = {name for name, text in values.items() if text}
    assert {name for name, layer in resolved.origins.items() if layer is Layer.ENVIRONMENT} == set_by_user


@given(data=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_as_the_file_either_resolve_or_are_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "any-bytes.toml"
    file.write_bytes(data)
    resolved = resolve_or_refuse(file=file)
    assert isinstance(resolved, ResolvedSettings) or "any-bytes.toml" in resolved.message


# Writing


def test_a_written_value_is_read_back_and_the_file_is_private(config_file: Path) -> None:
    write_setting(config_file, "threads", "4")
    write_setting(config_file, "cache", "false")
    write_setting(config_file, "target_lang", "zh-Hant")
    assert tomllib.loads(config_file.read_text()) == {"threads": 4, "cache": False, "target_lang": "zh-Hant"}
    assert stat.S_IMODE(config_file.stat().st_mode) == 0o600
    assert list(config_file.parent.iterdir()) == [config_file]


def test_comments_order_and_line_ends_stay(config_file: Path) -> None:
    write(config_file, '# mine\r\ntarget_lang = "fr"  # for work\r\n\r\n# speed\r\nthreads = 4\r\n')
    write_setting(config_file, "target_lang", "de")
    assert config_file.read_bytes() == (b'# mine\r\ntarget_lang = "de"  # for work\r\n\r\n# speed\r\nthreads = 4\r\n')


def test_a_removed_setting_leaves_the_others(config_file: Path) -> None:
    write(config_file, '# mine\ntarget_lang = "fr"\nthreads = 4\n')
    write_setting(config_file, "target_lang", None)
    write_setting(config_file, "model", None)
    assert config_file.read_text() == "# mine\nthreads = 4\n"


def test_a_wrong_value_in_the_file_can_be_mended_by_setting_it(config_file: Path) -> None:
    write(config_file, "threads = 0\n")
    write_setting(config_file, "threads", "2")
    assert load_settings(config_file, {}).settings.threads == 2


@pytest.mark.parametrize(
    ("text", "name", "value", "said"),
    [
        ("threads = 4\n", "thread", "2", "unknown setting `thread`"),
        ("threads = 4\n", "threads", "many", "threads = 'many'"),
        ("threads = 4\n", "model", "caf\udce9", "not valid UTF-8"),
        ("threads = [\n", "model", "demo", "not valid TOML"),
        ("seed = -1\n", "model", "demo", "seed = -1"),
        ("model = " + "[" * 150 + "]" * 150 + "\n", "model", "demo", "not valid TOML"),
    ],
)
def test_a_refused_change_leaves_the_file_alone(config_file: Path, text: str, name: str, value: str, said: str) -> None:
    write(config_file, text)
    with pytest.raises(ConfigError, match=said.replace("[", r"\[")):
        write_setting(config_file, name, value)
    assert config_file.read_text() == text
    assert list(config_file.parent.iterdir()) == [config_file]


def test_a_linked_file_stays_a_link(tmp_path: Path, config_file: Path) -> None:
    elsewhere = write(tmp_path / "dotfiles" / "hymt.toml", "# kept elsewhere\n")
    config_file.parent.mkdir()
    config_file.symlink_to(elsewhere)
    write_setting(config_file, "threads", "4")
    assert config_file.is_symlink()
    assert elsewhere.read_text() == "# kept elsewhere\nthreads = 4\n"


def test_a_folder_that_is_a_file_cannot_be_written(tmp_path: Path) -> None:
    write(tmp_path / "config", "in the way")
    with pytest.raises(StoreError, match="cannot write") as caught:
        write_atomically(tmp_path / "config" / "config.toml", "threads = 4\n")
    assert "HYMT_HOME" in caught.value.hint


def test_a_disk_that_fills_up_leaves_the_old_file_and_no_other(
    config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(config_file, "threads = 4\n")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left on device"):
        write_setting(config_file, "threads", "2")
    assert config_file.read_text() == "threads = 4\n"
    assert list(config_file.parent.iterdir()) == [config_file]


@settings(max_examples=20)  # each writes and syncs several files
@given(
    changes=st.lists(
        st.tuples(st.sampled_from(["model", "target_lang", "threads", "cache"]), st.none() | st.text(max_size=12)),
        max_size=6,
    ),
    comment=st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs"]), max_size=20),
)
def test_any_row_of_changes_leaves_a_file_that_says_what_was_set_last(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, str | None]], comment: str
) -> None:
    file = write(tmp_path_factory.getbasetemp() / "changed" / "config.toml", f"# {comment}\n")
    expected: dict[str, Any] = {}
    for name, value in changes:
        try:
            write_setting(file, name, value)
        except ConfigError:
            continue
        expected[name] = getattr(Settings() if value is None else load_settings(file, {}).settings, name)
    found = load_settings(file, {}).settings
    assert {name: getattr(found, name) for name in expected} == expected
    assert file.read_text(encoding="utf-8").startswith(f"# {comment}\n")


def test_the_schema_describes_every_setting() -> None:
    (definition,) = settings_schema()["$defs"].values()
    assert tuple(definition["properties"]) == setting_names()
    assert definition["additionalProperties"] is False
    undescribed = [name for name, entry in definition["properties"].items() if "description" not in repr(entry)]
    assert undescribed == []
