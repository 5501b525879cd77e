"""What the caller lets the user choose from, as plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model that can be used now."""

    ref: str
    """What a `TranslationRequest` names it by."""
    title: str
    kind: str
    """`translation`, `demo` or `test` (catalog)."""
