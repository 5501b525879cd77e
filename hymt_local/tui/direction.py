"""From which language into which: what the user chose, what was detected, and the second target that stands in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Direction:
    """The languages of the translate view."""

    source_lang: str | None
    """None means: detect it."""
    target_lang: str
    second_target: str | None = None
    """Stands in when the text is in `target_lang` already."""
    detected: str | None = None
    confidence: float | None = None
    is_flipped: bool = False

    @property
    def effective_target(self) -> str:
        """What is translated into now."""
        return self.second_target if self.is_flipped and self.second_target else self.target_lang

    @property
    def known_source(self) -> str | None:
        """The language that was chosen, else the one that was detected."""
        return self.source_lang or self.detected

    def learn(self, lang: str, confidence: float | None) -> bool:
        """Take note of a detection; returns whether the target turned, so that the text must be translated again."""
        self.detected, self.confidence = lang, confidence
        wanted = self.can_flip and lang == self.target_lang
        has_turned, self.is_flipped = wanted != self.is_flipped, wanted
        return has_turned

    @property
    def can_flip(self) -> bool:
        """Whether there is a second target that differs from the first, and the source is open."""
        return self.source_lang is None and self.second_target not in {None, self.target_lang}

    def swap(self) -> bool:
        """Swap both languages, a detected one becoming the target; returns False when none is known yet."""
        source = self.known_source
        if source is None:
            return False
        self.source_lang, self.target_lang = self.effective_target, source
        self.is_flipped = False
        return True

    def choose(self, *, source_lang: str | None, target_lang: str) -> None:
        """Take the user's choice."""
        self.source_lang, self.target_lang, self.is_flipped = source_lang, target_lang, False

    def forget(self) -> None:
        """Nothing is left of the text: neither is its language."""
        self.detected = self.confidence = None
        self.is_flipped = False
