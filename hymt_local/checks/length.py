"""Repetition, and lengths that no translation has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hymt_local.checks.pair import Pair, error, warning
from hymt_local.language import get_language
from hymt_local.segment import Finding, Span

# A unit of 2 to 80 characters, 4 times or more in a row and 24 characters in all: 7 of 75,886 professional translations
# have one. Languages of one script are not told apart here.
_LOOP = re.compile(r"(.{2,80}?)\1{3,}", re.DOTALL)
_LOOP_CHARACTERS = 24
_LOOP_UNIT_TOKENS = 32
_LOOP_REPEATS = 5
_LOOP_TOKENS = 48

# Characters of a text in each language for one character of English: medians of 75,886 professional translations.
_EXPANSION = {
    "zh": 0.34,
    "zh-Hant": 0.35,
    "yue": 0.32,
    "ja": 0.46,
    "ko": 0.53,
    "he": 0.80,
    "ar": 0.92,
    "th": 0.96,
    "cs": 0.97,
    "fa": 0.98,
    "gu": 0.99,
    "bn": 0.99,
    "en": 1.0,
    "ur": 1.00,
    "te": 1.01,
    "hi": 1.05,
    "mr": 1.05,
    "uk": 1.05,
    "kk": 1.05,
    "tr": 1.06,
    "mn": 1.06,
    "pt": 1.07,
    "vi": 1.09,
    "ru": 1.10,
    "pl": 1.12,
    "ms": 1.12,
    "km": 1.14,
    "es": 1.15,
    "it": 1.16,
    "id": 1.16,
    "nl": 1.17,
    "fr": 1.18,
    "tl": 1.18,
    "de": 1.19,
    "bo": 1.21,
    "ug": 1.24,
    "my": 1.26,
    "ta": 1.27,
}
_LEAST_CHARACTERS = 20.0
"""English-equivalent characters of a source below which ratios say nothing."""
_IMPOSSIBLE = (0.35, 3.0)
"""Over random pairs of languages 0.1 % of professional translations are below 0.42 and 0.1 % above 2.24."""
_UNUSUAL = (0.5, 2.0)
_SHORT_ALLOWANCE = 40.0
_SHORT_FACTOR = 6.0
_SENTENCE_ENDS = tuple(".!?。！？…।॥۔؟។៕။།༎᠃᠉｡．‼⁇⁈⁉‽")
_CLOSERS = "\"'”’“‘»«›‹)）]］」』】》〉״*_"
"""What may stand behind the end of a sentence: German closes with what opens in English, and with `«`, too."""
_WITHOUT_SENTENCE_ENDS = frozenset({"th"})


def check_loop(pair: Pair) -> Iterator[Finding]:
    """Find text that repeats itself as the source does not."""
    if (span := _loop(pair.target)) and not _loop(pair.source):
        yield error("loop", "the answer repeats itself", span=span)


def check_length(pair: Pair) -> Iterator[Finding]:
    """Compare the lengths, by what is usual for the two languages."""
    if pair.source_lang not in _EXPANSION or pair.target_lang not in _EXPANSION:
        return
    source = _n_english(pair.source_words, pair.source_lang)
    target = _n_english(pair.target_words, pair.target_lang)
    if source < _LEAST_CHARACTERS:
        if target > _SHORT_ALLOWANCE + _SHORT_FACTOR * source:
            yield error("ratio", "the answer is much longer than its source")
        return
    ratio = target / source
    if not _IMPOSSIBLE[0] <= ratio <= _IMPOSSIBLE[1]:
        yield error("ratio", f"the answer is {_how_long(ratio)}")
    elif ratio < _UNUSUAL[0] and _is_broken_off(pair):
        yield error("truncated", "the answer ends in the middle of a sentence")
    elif not _UNUSUAL[0] <= ratio <= _UNUSUAL[1]:
        yield warning("ratio", f"the answer is {_how_long(ratio)}", remedy="look for what is missing or was added")


def most_characters(source: str, source_lang: str, target_lang: str) -> int | None:
    """Return how long an answer may become before `check_length` is sure to refuse it; None where nobody knows.

    Twice its bound: what is not counted there, such as addresses and markup, comes on top.
    """
    if source_lang not in _EXPANSION or target_lang not in _EXPANSION:
        return None
    n_english = _n_english(source, source_lang)
    longest = max(_IMPOSSIBLE[1] * n_english, _SHORT_ALLOWANCE + _SHORT_FACTOR * n_english)
    return round(2 * longest * max(1.0, _EXPANSION[target_lang])) + len(source)


def repeats_at_end(ids: Sequence[int], *, allowed: Sequence[int] = ()) -> bool:
    """Tell whether token ids end in a loop: 1 to 32 tokens, at least 5 times and 48 tokens in all.

    Args:
        ids: The answer so far.
        allowed: What the answer was made from; a repetition in it may be repeated.
    """
    for n_unit in range(1, _LOOP_UNIT_TOKENS + 1):
        repeats = max(_LOOP_REPEATS, -(-_LOOP_TOKENS // n_unit))
        tail = list(ids[-n_unit * repeats :])
        if len(tail) == n_unit * repeats and tail == tail[:n_unit] * repeats:
            return not _contains(allowed, tail[: 2 * n_unit])
    return False


def _contains(ids: Sequence[int], part: Sequence[int]) -> bool:
    wanted = tuple(part)
    return any(tuple(ids[start : start + len(wanted)]) == wanted for start in range(len(ids) - len(wanted) + 1))


def _loop(text: str) -> Span | None:
    matches = (Span(*match.span()) for match in _LOOP.finditer(text) if len(match.group()) >= _LOOP_CHARACTERS)
    return next(matches, None)


def _n_english(words: str, lang: str) -> float:
    """Return how many characters English would take; Latin letters and digits in another script count as they are."""
    text = " ".join(words.split())
    if get_language(lang).script == "Latn":
        return len(text) / _EXPANSION[lang]
    n_foreign = sum(character.isascii() and character.isalnum() for character in text)
    return n_foreign + (len(text) - n_foreign) / _EXPANSION[lang]


def _how_long(ratio: float) -> str:
    return f"{ratio:.1f} times as long as usual" if ratio > 1 else f"only {ratio:.0%} as long as usual"


def _is_broken_off(pair: Pair) -> bool:
    has_ends = pair.target_lang not in _WITHOUT_SENTENCE_ENDS
    return has_ends and _is_sentence(pair.source) and not _is_sentence(pair.target)


def _is_sentence(text: str) -> bool:
    return text.rstrip().rstrip(_CLOSERS).endswith(_SENTENCE_ENDS)
