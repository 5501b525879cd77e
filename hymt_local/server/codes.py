"""Language codes of other translators, to and from the tags of the family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hymt_local.errors import LanguageError
from hymt_local.language import match_language
from hymt_local.translator import UNDETERMINED

AUTO = frozenset({"auto", "auto-detect", "detect", "und", ""})
"""What clients write for a source language that is to be detected."""


@dataclass(frozen=True, slots=True)
class Codes:
    """The codes of one dialect where they differ from the tags."""

    accepted: Mapping[str, str] = field(default_factory=dict)
    """Lower-case code -> tag, for codes that `match_language` does not know."""
    answered: Mapping[str, str] = field(default_factory=dict)
    """Tag -> code."""

    def target_tag(self, code: str | None) -> str:
        """Return the tag of a target language.

        Raises:
            LanguageError: missing or unknown.
        """
        if code is None or code.strip().lower() in AUTO:
            raise LanguageError("the target language is missing", hint="name it; `/languages` lists them")
        return self._tag(code)

    def source_tag(self, code: str | None) -> str | None:
        """Return the tag of a source language, None to detect it.

        Raises:
            LanguageError: unknown.
        """
        return None if code is None or code.strip().lower() in AUTO else self._tag(code)

    def code(self, tag: str) -> str:
        """Return the dialect's code; a text without words is English to all of them."""
        known = "en" if tag == UNDETERMINED else tag
        return self.answered.get(known, known)

    def _tag(self, code: str) -> str:
        return self.accepted.get(code.strip().lower()) or match_language(code)
