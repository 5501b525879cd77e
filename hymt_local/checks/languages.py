"""The wrong script, the wrong language, or the source once more."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher

from hymt_local.checks.pair import Pair, error, warning
from hymt_local.language import get_language
from hymt_local.scripts import han_kind, is_letter, letter_weight, script_of
from hymt_local.segment import Finding, Span

_MIXED_SCRIPTS = {"Hans": {"Hani"}, "Hant": {"Hani"}, "Jpan": {"Hani", "Kana"}, "Kore": {"Hang", "Hani"}}
_OTHER_SCRIPTS = {"kk": {"Cyrl", "Arab"}, "mn": {"Cyrl", "Mong"}}
"""Languages that the models may write in China's script for them."""
_LETTERS_TO_JUDGE = 20.0
"""Below this much text (in Latin letters) a name or two may be all there is."""
_LEAST_SCRIPT_SHARE = 0.1
_CHARACTERS_TO_JUDGE = 4
"""Distinctive Han characters; of them at most a quarter may be the other kind."""
_HAN_OF = {"zh": "Hans", "zh-Hant": "Hant", "yue": "Hant"}
_SAME_TO_STATISTICS = ({"ms", "id"}, {"yue", "zh-Hant"}, {"zh", "zh-Hant"})
"""Not told apart by statistics; the forms of Chinese are told apart by their characters."""
_BYTES_TO_KNOW = 80
_BYTES_TO_SUSPECT = 40
"""Statistics are wrong on 0.06 % of the texts of 80 to 160 bytes, on 0.4 % of those of 40 to 80."""
_SURE = 0.98
_COPIED = 0.9
_COPIED_GRAMS = 0.6
_WORDS_TO_JUDGE = 3
_COMPARED_CHARACTERS = 500
"""Of each end of a text; to compare takes a time that grows with the square, on text that repeats itself."""
_COPIED_RUN = 8
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


def check_script(pair: Pair) -> Iterator[Finding]:
    """Find a target in a script that its language is not written in; tell the two forms of Chinese apart."""
    if pair.target_lang is None:
        return
    language = get_language(pair.target_lang)
    expected = _OTHER_SCRIPTS.get(pair.target_lang) or _MIXED_SCRIPTS.get(language.script, {language.script})
    total, share = _script_share(pair.target_words, expected)
    if total >= _LETTERS_TO_JUDGE and share < _LEAST_SCRIPT_SHARE:
        yield error("wrong_script", f"the answer is not written in the script of {language.english}")
    elif pair.target_lang in _HAN_OF:
        yield from _check_han(pair.target, pair.target_lang)


def check_language(pair: Pair) -> Iterator[Finding]:
    """Find a target whose language is another one that is written in the same script."""
    n_bytes = len(pair.target_words.encode())
    if pair.target_lang is None or pair.identify is None or n_bytes < _BYTES_TO_SUSPECT:
        return
    found = pair.identify(pair.target_words)
    if found is None or found[1] < _SURE or _is_same(found[0], pair.target_lang):
        return
    names = get_language(found[0]).english, get_language(pair.target_lang).english
    if n_bytes >= _BYTES_TO_KNOW or found[0] == pair.source_lang:
        yield error("wrong_language", f"the answer is in {names[0]}, not in {names[1]}")
    else:
        yield warning("wrong_language", f"the answer may be in {names[0]}, not in {names[1]}")


def check_copy(pair: Pair) -> Iterator[Finding]:
    """Find a target that is the source, or has long parts of it."""
    if pair.source_lang == pair.target_lang or {pair.source_lang, pair.target_lang} <= set(_HAN_OF):
        return
    words = _WORD.findall(pair.source_words)
    if len({word for word in words if not word[0].isupper()}) < _WORDS_TO_JUDGE:
        return
    if _is_copy(pair.source_words.strip(), pair.target_words.strip()):
        if _is_in_target_language(pair):
            return
        yield error("untranslated", "the answer is the source text, not translated")
    elif span := _copied_run(pair, words):
        message = "a part of the source was not translated"
        yield warning("partly_untranslated", message, span=span, remedy="translate it again")


def _is_in_target_language(pair: Pair) -> bool:
    """Tell whether the source is what it should become: somebody has named its language wrongly."""
    found = pair.identify(pair.source_words) if pair.identify else None
    return found is not None and found[0] == pair.target_lang and found[1] >= _SURE


def _script_share(text: str, expected: set[str]) -> tuple[float, float]:
    """Return how many letters there are, by their weight, and the share of the expected scripts."""
    letters = Counter(script_of(character) for character in text if is_letter(character))
    weights = {script: count * letter_weight(script) for script, count in letters.items() if script}
    total = sum(weights.values())
    return total, sum(weights.get(script, 0.0) for script in expected) / total if total else 1.0


def _check_han(target: str, target_lang: str) -> Iterator[Finding]:
    counts = Counter[str](han_kind(character) for character in target)
    wanted, other = ("simplified", "traditional") if target_lang == "zh" else ("traditional", "simplified")
    n_distinctive = counts[wanted] + counts[other]
    if n_distinctive >= _CHARACTERS_TO_JUDGE and counts[other] * 4 > n_distinctive * 3:
        yield error("wrong_script", f"the answer is in {other} characters, not in {wanted} ones")


def _is_same(found: str, wanted: str) -> bool:
    return found == wanted or any({found, wanted} <= group for group in _SAME_TO_STATISTICS)


def _is_copy(source: str, target: str) -> bool:
    if source == target:
        return True
    longest, shortest = max(len(source), len(target)), min(len(source), len(target))
    if shortest < longest * (2 * _COPIED - 1):
        return False
    beginnings = source[:_COMPARED_CHARACTERS], target[:_COMPARED_CHARACTERS]
    if longest <= _COMPARED_CHARACTERS:
        return _is_alike(*beginnings)
    return _is_alike(*beginnings) and _is_alike(source[-_COMPARED_CHARACTERS:], target[-_COMPARED_CHARACTERS:])


def _is_alike(source: str, target: str) -> bool:
    grams = {source[i : i + 4] for i in range(len(source) - 3)}
    copied = sum(target[i : i + 4] in grams for i in range(len(target) - 3))
    if copied < _COPIED_GRAMS * max(1, len(target) - 3):
        return False
    return SequenceMatcher(None, source, target, autojunk=False).ratio() > _COPIED


def _copied_run(pair: Pair, words: list[str]) -> Span | None:
    """Return where the target has many words of the source in a row, not all of them names."""
    if len(words) <= _COPIED_RUN:
        return None
    found = list(_WORD.finditer(pair.target_words))
    runs = {tuple(words[i : i + _COPIED_RUN]) for i in range(len(words) - _COPIED_RUN + 1)}
    for i in range(len(found) - _COPIED_RUN + 1):
        run = tuple(match.group() for match in found[i : i + _COPIED_RUN])
        if run in runs and sum(not word[0].isupper() for word in run) >= _WORDS_TO_JUDGE:
            return Span(found[i].start(), found[i + _COPIED_RUN - 1].end())
    return None
