"""Terms: which of a glossary's occur in a source, and whether their translations are in the target."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hymt_local.checks.pair import Pair, warning
from hymt_local.literals import find_literals
from hymt_local.scripts import script_of, whole_word
from hymt_local.segment import Finding, Span

_ENDINGS = {
    "en": ("s", "es", "'s", "’s"),
    **dict.fromkeys(("fr", "es", "pt"), ("s", "es")),
    "it": ("i", "e"),
    "de": ("e", "en", "er", "ern", "es", "n", "s"),
    "nl": ("e", "en", "s"),
}
_INFLECTING = frozenset(
    {"ru", "uk", "pl", "cs", "tr", "kk", "mn", "ug", "ar", "he", "fa", "ur", "hi", "mr", "gu", "bn", "ta", "te", "tl"}
)
_STEM = 4
_LONGEST_ENDING = 3
_IGNORED = re.compile("[\u0640\u064b-\u0652\u0670]")
"""Arabic lengthening and vowel marks."""


@dataclass(frozen=True, slots=True)
class TermMatch:
    """One place where a term occurs."""

    term: str
    span: Span


def find_terms(text: str, terms: Sequence[str], *, lang: str | None) -> list[TermMatch]:
    """Return where terms occur, in order: the longest wins, none overlap, none lies in a placeholder or address.

    Case, full width and Arabic vowel marks make no difference; a word may have an ending of its language.
    """
    folded, places = _folded(text)
    by_form = {_folded(term)[0]: term for term in terms if term.strip()}
    if not by_form:
        return []
    forms = "|".join(_pattern(form, lang) for form in sorted(by_form, key=len, reverse=True))
    taken = [literal.span for literal in find_literals(text)]
    matches: list[TermMatch] = []
    for match in re.finditer(forms, folded):
        span = Span(places[match.start()], places[match.end() - 1] + 1)
        term = next(name for form, name in by_form.items() if re.fullmatch(_pattern(form, lang), match.group()))
        if all(span.end <= other.start or other.end <= span.start for other in taken):
            matches.append(TermMatch(term, span))
    return matches


def check_terms(pair: Pair, terms: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Find terms of the source whose translation the target lacks.

    Args:
        pair: Source and target.
        terms: The translations allowed for each term of the source language.
    """
    for term in dict.fromkeys(match.term for match in find_terms(pair.source, list(terms), lang=pair.source_lang)):
        allowed = terms[term]
        if allowed and not any(_has_form(pair.target, each, lang=pair.target_lang) for each in allowed):
            yield warning(
                "term", f"{term!r} is not translated as {' or '.join(map(repr, allowed))}", remedy="use the term"
            )


def _has_form(text: str, term: str, *, lang: str | None) -> bool:
    if find_terms(text, [term], lang=lang):
        return True
    if lang not in _INFLECTING and lang not in _ENDINGS:
        return _folded(term)[0] in _folded(text)[0]
    words = _folded(text)[0].split()
    return all(
        any(word.strip(".,;:!?«»\"'()").startswith(_stem(part)) for word in words) for part in _folded(term)[0].split()
    )


def _stem(word: str) -> str:
    return word[: max(_STEM, len(word) - _LONGEST_ENDING)]


def _pattern(form: str, lang: str | None) -> str:
    last = form[-1]
    endings = "|".join(map(re.escape, _ENDINGS.get(lang or "", ())))
    if script_of(last) == "Hang":  # particles follow
        return whole_word(re.escape(form), first=form[0], last=" ")
    if not last.isalnum() or not (endings or lang in _INFLECTING):
        return whole_word(re.escape(form), first=form[0], last=last)
    if lang in _INFLECTING:
        endings = f"\\w{{0,{_LONGEST_ENDING}}}" if len(form) >= _STEM else ""
    return whole_word(f"{re.escape(form)}(?:{endings})?", first=form[0], last=last)


def _folded(text: str) -> tuple[str, list[int]]:
    """Return a text in the form that is compared, and the place of each of its characters in the text."""
    characters: list[str] = []
    places: list[int] = []
    for place, character in enumerate(text):
        for each in unicodedata.normalize("NFKC", character).casefold():
            if not _IGNORED.match(each):
                characters.append(each)
                places.append(place)
    return "".join(characters), places
