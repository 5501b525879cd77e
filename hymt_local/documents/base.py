"""The document seam: what every format takes and gives.

A format is pure: bytes in, units and bytes out; no files, no models, no threads. It keeps the document's own bytes and
replaces only the spans of units that were translated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from hymt_local.segment import Finding, UnitText


@dataclass(frozen=True, slots=True)
class Unit:
    """One translatable part of a document: a paragraph, cue, cell, attribute or message."""

    id: str
    """Unique in the document and stable between runs; results are joined by it, never by position."""
    source: UnitText
    location: str
    """Where a person finds it: `line 12`, `cue 7`."""
    note: str = ""
    """A comment for translators, if the format has one."""


@dataclass(frozen=True, slots=True)
class Languages:
    """The direction of one translation; extraction may depend on it (plural forms)."""

    source_lang: str | None
    """None while it is still to be detected."""
    target_lang: str


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """How the output is written."""

    languages: Languages
    is_bilingual: bool = False
    """Source and target side by side, where the format can (`Format.can_be_bilingual`)."""
    sets_metadata: bool = True
    """Language and direction attributes follow the target."""
    marks_fuzzy: bool = True
    """Translations are marked as in need of review, where the format has such a mark (gettext's `fuzzy`)."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A document with its targets in place."""

    data: bytes
    rejected: Mapping[str, str]
    """Unit id -> why its target could not be written (an encoding that lacks its letters); the source stays there."""


class Document(Protocol):
    """One document that was read. Immutable."""

    @property
    def units(self) -> Sequence[Unit]:
        """Everything translatable, in reading order. What is translated already is left out."""

    def fault(self, unit: Unit, target: str) -> str | None:
        """Return in one line why this target would break the document, or None.

        The translator's own checks (protected spans, emptiness, language) have passed: this is for what only the format
        knows.
        """

    def merge(self, targets: Mapping[str, str], options: MergeOptions) -> Merged:
        """Return the document with these targets by unit id; a unit without one keeps its source.

        Law: with no targets, or each target equal to its source, and `sets_metadata` off, the data is what was read.
        """


@runtime_checkable
class ReviewingDocument(Protocol):
    """A document that has something to say about targets that it takes: they are too long for a reader."""

    def findings(self, unit: Unit, target: str) -> tuple[Finding, ...]:
        """Return what a person should look at in this target, as it would be written; no errors."""


@runtime_checkable
class SelectiveDocument(Protocol):
    """A document that may hold texts which cannot be translated whole, and so are no units."""

    @property
    def left_alone(self) -> Sequence[str]:
        """Where each of them stands, and why it stays as it is."""


@runtime_checkable
class DeclaringFormat(Protocol):
    """A format whose documents say what encoding they are in."""

    def declared_encoding(self, data: bytes) -> str | None:
        """Return the name that a document gives its encoding, if it does."""

    def declaring_utf8(self, text: str) -> str:
        """Return a document that says it is in UTF-8, where it said something."""


class Format(Protocol):
    """One file format. Stateless."""

    @property
    def name(self) -> str:
        """Short, as a user types it: `markdown`."""

    @property
    def extensions(self) -> tuple[str, ...]:
        """With the dot, in lower case."""

    @property
    def can_be_bilingual(self) -> bool:
        """Whether `MergeOptions.is_bilingual` does something."""

    def sniffs(self, head: bytes) -> bool:
        """Tell from the first 4 KiB whether the data is surely of this format; extensions decide first."""

    def read(self, data: bytes, languages: Languages) -> Document:
        """Parse.

        Raises:
            DocumentError: not of this format, undecodable (the message has the position), or beyond the limits.
        """
