"""The nouns of a translation: spans of text and the segments that are translated one by one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range `[start, end)` of code points in one text."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """Return the part of `text` that this span covers."""
        return text[self.start : self.end]


@dataclass(frozen=True, slots=True)
class Segment:
    """One unit handed to the model.

    Law: over all segments of a text, `lead + source + trail` joined in order is that text, byte for byte.
    """

    index: int
    source: str
    """What the model sees: no outer whitespace; empty when the whole segment is whitespace."""
    lead: str = ""
    """Whitespace before the source, restored unchanged."""
    trail: str = ""
    """Whitespace and line ends after the source, restored unchanged."""
    translatable: bool = True
    """False for whitespace, numbers, emoji, URLs and the like, which pass through without an engine call."""

    def restored(self, target: str) -> str:
        """Return `target` between this segment's own outer whitespace."""
        return f"{self.lead}{target}{self.trail}"
