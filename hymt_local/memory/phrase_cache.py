"""The phrase cache: machine output, keyed by signature, evicted when it grows too large."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CachedPhrase:
    """One remembered translation."""

    target: str


@dataclass(frozen=True, slots=True)
class CacheStats:
    """How full the cache is."""

    entries: int


class PhraseCache:
    """Remembers translations."""

    def __init__(self, path: Path) -> None:
        self._phrases: dict[tuple[str, str], str] = {}

    def get(self, signature: str, source: str) -> CachedPhrase | None:
        """Return what is stored, or None."""
        target = self._phrases.get((signature, source))
        return None if target is None else CachedPhrase(target)

    def put(self, signature: str, source: str, *, target: str) -> None:
        """Remember one translation."""
        self._phrases[signature, source] = target

    def stats(self) -> CacheStats:
        """Count what is stored."""
        return CacheStats(len(self._phrases))

    def close(self) -> None:
        """Close it."""
