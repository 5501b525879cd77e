"""Languages as the screens show and find them."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence

from hymt_local.errors import LanguageError
from hymt_local.language import Language, match_language

DETECT = "auto"
"""Stands for an unset source language in lists; no BCP 47 tag looks like it."""

_NOT_ENGLISH_DEFAULT = "zh"


def default_target(environ: Mapping[str, str], languages: Sequence[Language]) -> str:
    """Return the language to translate into when no setting names one: the user's own, Chinese for English."""
    tags = [language.tag for language in languages]
    locale = environ.get("LC_ALL") or environ.get("LC_MESSAGES") or environ.get("LANG") or ""
    own = _matched(locale, tags)
    for tag in (own if own != "en" else None, _NOT_ENGLISH_DEFAULT):
        if tag in tags:
            return tag
    return tags[0]


def search(query: str, languages: Sequence[Language]) -> list[Language]:
    """Return the languages that a query names, best first: by tag or alias, by the beginning of a name, by a part."""
    wanted = _folded(query)
    if not wanted:
        return list(languages)
    exact = _matched(query, [language.tag for language in languages])
    ranked = [(_rank(language, wanted, exact=exact), language) for language in languages]
    found = [(rank, language) for rank, language in ranked if rank is not None]
    return [language for _, language in sorted(found, key=lambda pair: pair[0])]


def _rank(language: Language, wanted: str, *, exact: str | None) -> int | None:
    names = [_folded(name) for name in (language.english, language.native, language.chinese, language.tag)]
    if language.tag == exact:
        return 0
    if any(name.startswith(wanted) for name in names):
        return 1
    return 2 if any(wanted in name for name in names) else None


def _matched(text: str, tags: Sequence[str]) -> str | None:
    try:
        return match_language(text, supported=tags)
    except LanguageError:
        return None


def _folded(text: str) -> str:
    """Ignore case and accents: `espanol` finds Español."""
    decomposed = unicodedata.normalize("NFKD", text.strip().casefold())
    return "".join(character for character in decomposed if unicodedata.category(character) != "Mn")
