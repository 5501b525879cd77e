"""What somebody should look at: numbers, final marks, doubled words, brackets."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

from hymt_local.checks.pair import Pair, warning
from hymt_local.segment import Finding, Span

_LEAST_DIGITS = 3
_NUMBER = re.compile(r"\d(?:[\d.,٫٬'’ \u00a0\u202f]*\d)?")
_SCALES = {
    "万": 4,
    "萬": 4,
    "만": 4,
    "亿": 8,
    "億": 8,
    "억": 8,
    "千": 3,
    "百万": 6,
    "百萬": 6,
    "兆": 12,
    "조": 12,
    "lakh": 5,
    "crore": 7,
    "लाख": 5,
    "करोड़": 7,
    "লাখ": 5,
    "লক্ষ": 5,
    "কোটি": 7,
}
_SCALED = re.compile(r"(\d(?:[\d.,]{0,30}\d)?)\s?(" + "|".join(sorted(_SCALES, key=len, reverse=True)) + ")")
_QUESTION_MARKS = frozenset("?？؟⁇")
_ASKING_BY_WORDS = frozenset({"ja", "th", "km", "my", "bo"})
"""Languages that ask without a question mark."""
_DOUBLED = re.compile(r"\b([^\W\d_]{4,})\s+\1\b", re.IGNORECASE)
_REDUPLICATING = frozenset(
    {"vi", "id", "ms", "tl", "hi", "mr", "bn", "gu", "ta", "te", "ur", "km", "my", "th", "tr", "bo"}
)
"""Languages in which a word is doubled on purpose."""
_TWICE = frozenset({"vous", "nous"})
"""Words that grammar may put twice."""
_BRACKETS = {"(": ")", "（": "）", "[": "]", "［": "］", "【": "】", "「": "」", "『": "』", "《": "》"}


def check_numbers(pair: Pair) -> Iterator[Finding]:
    """Find numbers of three digits and more that the target does not have in any notation."""
    if not any(map(str.isdigit, pair.source)):
        return
    found = _digit_strings(pair.target_words)
    folded = " ".join(sorted(found))
    missing = [number for number in _numbers(pair.source_words) if _significant(number) not in found]
    missing = [number for number in missing if _digits(number) not in folded.replace(" ", "")]
    if missing:
        yield warning(
            "number", f"numbers of the source are missing: {', '.join(missing)}", remedy="compare the figures"
        )


def check_question(pair: Pair) -> Iterator[Finding]:
    """Find a question that is none any more."""
    is_question = pair.source.rstrip()[-1:] in _QUESTION_MARKS
    if is_question and pair.target_lang not in _ASKING_BY_WORDS and not _QUESTION_MARKS & set(pair.target):
        yield warning("question", "the source asks a question and the answer does not")


def check_doubled(pair: Pair) -> Iterator[Finding]:
    """Find a word that stands twice in a row, where its language does not do that."""
    if pair.target_lang in _REDUPLICATING or _DOUBLED.search(pair.source_words):
        return
    match = _DOUBLED.search(pair.target_words)
    if match and match[1].lower() not in _TWICE:
        yield warning("doubled_word", f"{match[1]!r} stands twice", span=Span(*match.span()))


def check_brackets(pair: Pair) -> Iterator[Finding]:
    """Find brackets that are opened and not closed, where the source's are."""
    if _is_balanced(pair.source) and not _is_balanced(pair.target):
        yield warning("brackets", "a bracket is not closed, or not opened")


def _numbers(text: str) -> list[str]:
    return [match.group() for match in _NUMBER.finditer(text) if len(_digits(match.group())) >= _LEAST_DIGITS]


def _digits(number: str) -> str:
    return "".join(str(unicodedata.digit(character)) for character in number if character.isdigit())


def _significant(number: str) -> str:
    """Return the digits without the zeros at both ends: the same for 1,234.50 and 1234,5, for 12万 and 120,000."""
    return _digits(number).strip("0")


def _digit_strings(text: str) -> set[str]:
    found: set[str] = set()
    for match in _NUMBER.finditer(text):
        number = match.group()
        found |= {_significant(number), *(_significant(part) for part in re.split(r"[^\d]+", number))}
    for match in _SCALED.finditer(text):
        found.add(_significant(match[1]))
    return found - {""}


def _is_balanced(text: str) -> bool:
    counts = Counter(text)
    return all(counts[opening] == counts[closing] for opening, closing in _BRACKETS.items())
