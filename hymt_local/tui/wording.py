"""What the program says to people, in their language: one TOML file per language in `messages/`, read once at start."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

UI_LANGUAGES = ("en", "zh")
_FALLBACK = "en"


class Wording:
    """The texts of one language, by key such as `status.cancelled`.

    Args:
        language: One of `UI_LANGUAGES`.
        texts: Key -> text, in which `{name}` stands for a value.
    """

    def __init__(self, language: str, texts: Mapping[str, str]) -> None:
        self.language = language
        self._texts = texts

    def __call__(self, key: str, **values: object) -> str:
        """Return a text with its values in place.

        Raises:
            KeyError: no such text; the tests look for every key that the code names.
        """
        text = self._texts[key]
        return text.format(**values) if values else text

    def raw(self, key: str) -> str:
        """Return a text with its placeholders."""
        return self._texts[key]

    @property
    def names(self) -> frozenset[str]:
        """All keys."""
        return frozenset(self._texts)

    def has(self, key: str) -> bool:
        """Tell whether there is such a text."""
        return key in self._texts


def load_wording(language: str) -> Wording:
    """Read the texts of one of `UI_LANGUAGES`."""
    file = resources.files("hymt_local.tui") / "messages" / f"{language}.toml"
    return Wording(language, dict(_flattened(tomllib.loads(file.read_text(encoding="utf-8")))))


def ui_language(environ: Mapping[str, str], setting: str) -> str:
    """Return the language to speak: the setting, or under `auto` that of the locale if we speak it."""
    if setting in UI_LANGUAGES:
        return setting
    locale = environ.get("LC_ALL") or environ.get("LC_MESSAGES") or environ.get("LANG") or ""
    spoken = locale[:2].lower()
    return spoken if spoken in UI_LANGUAGES else _FALLBACK


def _flattened(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)
