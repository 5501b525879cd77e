"""What the program says: every language says everything, every key that the code names exists, the locale decides."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import pytest

import hymt_local.tui
from hymt_local.config import setting_names
from hymt_local.tui.keymap import every_command
from hymt_local.tui.views import View
from hymt_local.tui.wording import UI_LANGUAGES, load_wording, ui_language

_FOLDER = Path(hymt_local.tui.__file__).parent
_NAMED = re.compile(r"wording\(\s*\"([a-z0-9_.]+)\"")
_COMPUTED = {
    *(
        f"{part}.{command.id}.{what}"
        for command in every_command()
        for part in ["command"]
        for what in ("title", "text")
    ),
    *(f"view.{view}" for view in View),
}


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


@pytest.mark.parametrize("language", UI_LANGUAGES)
def test_every_language_has_the_same_texts_with_the_same_values(language: str) -> None:
    english, other = load_wording("en"), load_wording(language)
    settings = {f"setting.{name}" for name in setting_names()}  # English ones stand in the schema
    assert other.names - settings == english.names
    for key in english.names:
        assert placeholders(other.raw(key)) == placeholders(english.raw(key)), key


def test_every_text_that_the_code_names_exists() -> None:
    sources = [file.read_text(encoding="utf-8") for file in _FOLDER.glob("*.py")]
    named = {key for source in sources for key in _NAMED.findall(source)}
    assert len(named) > 100
    assert named | _COMPUTED <= load_wording("en").names


def test_no_text_is_left_over() -> None:
    sources = "\n".join(file.read_text(encoding="utf-8") for file in _FOLDER.glob("*.py"))
    mentioned = set(re.findall(r"[\"']([a-z0-9_]+\.[a-z0-9_.]+)[\"']", sources)) | _COMPUTED
    computed = (
        "kind.",
        "origin.",
        "origin_of.",
        "editing.",
        "setting.",
        "models.fit_",
        "history.scope_",
        "history.empty_",
        "documents.phase_",
        "guidance.",
    )
    left = [key for key in load_wording("en").names if key not in mentioned and not key.startswith(computed)]
    assert left == []


def test_no_setting_is_explained_that_does_not_exist() -> None:
    explained = {name.removeprefix("setting.") for name in load_wording("zh").names if name.startswith("setting.")}
    assert "theme" in explained
    assert explained <= set(setting_names())


@pytest.mark.parametrize(
    ("environ", "setting", "language"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "auto", "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "de_DE.UTF-8"}, "auto", "en"),
        ({}, "auto", "en"),
        ({"LANG": "en_US.UTF-8"}, "zh", "zh"),
        ({"LANG": "zh_CN.UTF-8"}, "en", "en"),
    ],
)
def test_the_setting_decides_then_the_locale(environ: dict[str, str], setting: str, language: str) -> None:
    assert ui_language(environ, setting) == language
