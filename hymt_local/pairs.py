"""Language pairs that have a model of their own: `en-zh`, or `*-zh` for all languages into Chinese."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hymt_local.catalog import ModelSpec
from hymt_local.detect import detect_language
from hymt_local.errors import LanguageError
from hymt_local.language import match_language

ANY = "*"
DETECTION_CHARACTERS = 2000
"""As much of a text as its language is looked for in."""


@dataclass(frozen=True, slots=True)
class LanguagePair:
    """Source and target; the source may be any language."""

    source_lang: str
    """A tag, or `*`."""
    target_lang: str

    def __str__(self) -> str:
        return f"{self.source_lang}-{self.target_lang}"


def parse_pair(text: str) -> LanguagePair:
    """Read `SOURCE-TARGET`, each a tag or a name; tags may have hyphens themselves (`en-zh-Hant`).

    Raises:
        LanguageError: no way of splitting it makes two languages, or they are the same.
    """
    parts = text.strip().replace(">", "-").split("-")
    for index in range(1, len(parts)):
        source, target = "-".join(parts[:index]).strip(), "-".join(parts[index:]).strip()
        try:
            pair = LanguagePair(ANY if source == ANY else match_language(source), match_language(target))
        except LanguageError:
            continue
        if pair.source_lang == pair.target_lang:
            raise LanguageError(f"{text[:40]!r} is a language and itself", hint="name two languages: en-zh")
        return pair
    raise LanguageError(f"{text[:40]!r} is no language pair", hint="write it as SOURCE-TARGET: en-zh, or *-zh")


def check_spoken(pair: LanguagePair, spec: ModelSpec) -> None:
    """Make sure that a model speaks both languages.

    Raises:
        LanguageError: it does not.
    """
    for tag in (pair.source_lang, pair.target_lang):
        if tag != ANY and tag not in spec.languages:
            raise LanguageError(f"{spec.id} does not speak {tag}", hint="`hymt languages -m MODEL` lists what it does")


def model_of_pair(
    pair_models: Mapping[str, str], *, source_lang: str | None, target_lang: str, text: str
) -> str | None:
    """Return the model that the user chose for a pair; None when there is none.

    The language of the text is detected only when it decides: no source is named and a pair into this target exists.
    """
    into_target = [pair for pair in map(parse_pair, pair_models) if pair.target_lang == target_lang]
    if not into_target:
        return None
    if source_lang is None and any(pair.source_lang != ANY for pair in into_target):
        detection = detect_language(text[:DETECTION_CHARACTERS])
        source_lang = detection.tag if detection else None
    exact = pair_models.get(str(LanguagePair(source_lang, target_lang))) if source_lang else None
    return exact or pair_models.get(str(LanguagePair(ANY, target_lang)))
