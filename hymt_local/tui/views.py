"""The views of the program, in the order of their tabs."""

from __future__ import annotations

from enum import StrEnum


class View(StrEnum):
    """One full screen of the program; the value names its mode, its texts and its commands."""

    TRANSLATE = "translate"
    DOCUMENTS = "documents"
    HISTORY = "history"
    MODELS = "models"
    SETTINGS = "settings"

    @property
    def number(self) -> int:
        """Its place among the tabs, from 1."""
        return list(View).index(self) + 1
