"""Language identification: the script decides first, then frequent words and telling letters, statistics last.

The statistics (py3langid) are loaded only for a text that the rules leave open: 0.4 s and 130 MB, once per detector,
then about 0.1 ms a call. Nothing is ever found that the text's script rules out.
"""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from hymt_local.frequent_words import frequent_words
from hymt_local.literals import without_literals

_MAX_CHARACTERS = 4000
"""What is looked at: more changes no verdict and costs time."""

# First code points of script blocks, from Unicode's Scripts.txt; a block ends where the next entry starts.
_BLOCKS: tuple[tuple[int, str], ...] = (
    *((0x0041, "Latn"), (0x0250, "Latn"), (0x02B0, ""), (0x0370, ""), (0x0400, "Cyrl"), (0x0530, "")),
    *((0x0590, "Hebr"), (0x0600, "Arab"), (0x0700, ""), (0x0750, "Arab"), (0x0780, ""), (0x0870, "Arab")),
    *((0x0900, "Deva"), (0x0980, "Beng"), (0x0A00, ""), (0x0A80, "Gujr"), (0x0B00, ""), (0x0B80, "Taml")),
    *((0x0C00, "Telu"), (0x0C80, ""), (0x0E00, "Thai"), (0x0E80, ""), (0x0F00, "Tibt"), (0x1000, "Mymr")),
    *((0x10A0, ""), (0x1100, "Hang"), (0x1200, ""), (0x1780, "Khmr"), (0x1800, "Mong"), (0x18B0, "")),
    *((0x1C80, "Cyrl"), (0x1C90, ""), (0x1E00, "Latn"), (0x1F00, ""), (0x2C60, "Latn"), (0x2C80, "")),
    *((0x2DE0, "Cyrl"), (0x2E00, ""), (0x2E80, "Hani"), (0x3040, "Kana"), (0x3100, ""), (0x3130, "Hang")),
    *((0x3190, ""), (0x31F0, "Kana"), (0x3200, ""), (0x3400, "Hani"), (0xA000, ""), (0xA640, "Cyrl")),
    *((0xA6A0, ""), (0xA720, "Latn"), (0xA800, ""), (0xA8E0, "Deva"), (0xA900, ""), (0xA960, "Hang")),
    *((0xA980, ""), (0xA9E0, "Mymr"), (0xAA00, ""), (0xAA60, "Mymr"), (0xAA80, ""), (0xAB30, "Latn")),
    *((0xAB70, ""), (0xAC00, "Hang"), (0xD800, ""), (0xF900, "Hani"), (0xFB00, "Latn"), (0xFB1D, "Hebr")),
    *((0xFB50, "Arab"), (0xFE00, ""), (0xFE70, "Arab"), (0xFF00, ""), (0xFF21, "Latn"), (0xFF66, "Kana")),
    *((0xFFA0, "Hang"), (0xFFE0, ""), (0x1B000, "Kana"), (0x1B170, ""), (0x20000, "Hani"), (0x40000, "")),
)
_BLOCK_STARTS = [start for start, _ in _BLOCKS]

_CHINESE_OR_JAPANESE = "Hani"
"""Han characters and kana count as one script until one of the languages is chosen."""
_LETTER_WEIGHTS = {"Hani": 4.0, "Kana": 4.0, "Hang": 2.0, "Latn": 1.0}
"""A Han character says as much as four Latin letters: one product name does not turn a Chinese sentence English."""
_DEFAULT_WEIGHT = 1.5
_ALPHABETS = frozenset({"Latn", "Cyrl", "Arab", "Hebr"})
"""Scripts in which one letter is not a word."""

_SHARED_ALPHABETS = ("Latn", "Cyrl", "Arab", "Deva")
"""Scripts whose languages the statistics tell apart."""

_TAGS_OF_SCRIPT = {
    "Latn": ("en", "fr", "pt", "es", "tr", "it", "de", "vi", "ms", "id", "tl", "pl", "cs", "nl"),
    "Cyrl": ("ru", "uk", "kk", "mn"),
    "Arab": ("ar", "fa", "ur", "ug", "kk"),
    "Deva": ("hi", "mr"),
    "Hani": ("zh", "zh-Hant", "yue", "ja"),
    "Hebr": ("he",),
    "Beng": ("bn",),
    "Gujr": ("gu",),
    "Taml": ("ta",),
    "Telu": ("te",),
    "Thai": ("th",),
    "Tibt": ("bo",),
    "Mymr": ("my",),
    "Hang": ("ko",),
    "Khmr": ("km",),
    "Mong": ("mn",),
}

# Letters that few languages of a script use; the number is how many frequent words one kind of them counts for.
_TELLING_LETTERS: tuple[tuple[str, tuple[str, ...], float], ...] = (
    ("¿¡ñ", ("es",), 1.0),
    ("ß", ("de",), 1.0),
    ("ğış", ("tr",), 1.0),
    ("łąęśźż", ("pl",), 1.0),
    ("řůě", ("cs",), 1.0),
    ("đơưạảấầẩậắặẹẻếềểệịỉọỏốồổộớờởợụủứừửựỳỷỹ", ("vi",), 1.0),
    ("œ", ("fr",), 1.0),
    ("ãõ", ("pt",), 1.0),
    ("әғқңұһ", ("kk",), 2.0),
    ("їєґ", ("uk",), 2.0),
    ("і", ("uk", "kk"), 1.0),
    ("өү", ("mn", "kk"), 2.0),
    ("ыэъё", ("ru", "kk", "mn"), 1.0),
    ("ےٹڈڑں", ("ur",), 2.0),
    ("پچژگ", ("fa", "ur", "ug"), 1.0),
    ("یک", ("fa", "ur"), 1.0),
    ("ةإأ", ("ar",), 1.0),
    ("ۇۆۈۋېڭە", ("ug",), 2.0),
    ("ळ", ("mr",), 1.0),
)
_CUE_NATS = 6.0
"""What one frequent word adds to the logarithm of a language's likelihood."""
_DECISIVE_CUES = 2.0
"""This many more than any other language makes the statistics unnecessary."""
_WORD = re.compile(r"[\u0900-\u0963\u0971-\u097f]+|[^\W\d_]+")

# Frequent characters of written Cantonese that standard Chinese does not use, or hardly.
_CANTONESE = frozenset("嘅咗喺唔冇佢哋嚟啲嗰俾乜咩嘢咁喎啫噉睇攞瞓嬲諗搵咪囉")
_CANTONESE_SHARE = 0.04
_KANA_SHARE = 1 / 8
"""Of Han characters; news in Japanese has far more, a Chinese text that quotes a Japanese name has less."""


@dataclass(frozen=True, slots=True)
class Detection:
    """A language and how sure it is."""

    tag: str
    confidence: float
    """0.0 to 1.0; 1.0 when the script leaves no choice."""


class Statistics(Protocol):
    """Scores languages by their letter sequences."""

    def scores(self, text: str) -> Mapping[str, float]:
        """Return log-likelihoods by tag, not normalized; empty when the text says nothing."""


class LanguageDetector:
    """Detects languages. Belongs to one thread at a time; loads its statistics once, on first need."""

    def __init__(self) -> None:
        self._words = frequent_words()
        self._statistics: Statistics | None = None

    def detect(self, text: str, *, supported: Sequence[str] | None = None) -> Detection | None:
        """Return the likeliest language, or None when there is no word to judge by.

        Args:
            text: Any text; its first few thousand characters are looked at.
            supported: Tags to choose from; None allows all of the catalog.
        """
        found = self.candidates(text, supported=supported)
        return found[0] if found else None

    def candidates(self, text: str, *, supported: Sequence[str] | None = None) -> list[Detection]:
        """Return the languages that the text's script allows, likeliest first; empty when there is no word."""
        sample = unicodedata.normalize("NFC", without_literals(text[:_MAX_CHARACTERS]))
        script = _main_script(sample)
        tags = [tag for tag in _TAGS_OF_SCRIPT.get(script, ()) if supported is None or tag in supported]
        if not tags:
            return []
        if script == _CHINESE_OR_JAPANESE:
            return _judge_han(sample, tags)
        if script == "Arab":
            tags = _narrow_arabic(sample, tags)
        if len(tags) == 1:
            return [Detection(tags[0], 1.0)]
        return self._judge(sample, tags)

    def _judge(self, sample: str, tags: Sequence[str]) -> list[Detection]:
        cues = self._cues(sample, tags)
        first, second = sorted(cues.values(), reverse=True)[:2]
        if first - second >= _DECISIVE_CUES:
            return _normalized({tag: _CUE_NATS * count for tag, count in cues.items()})
        scores = self._load_statistics().scores(sample)
        temperature = math.sqrt(len(sample.encode()))
        return _normalized({tag: (scores.get(tag, 0.0) + _CUE_NATS * cues[tag]) / temperature for tag in tags})

    def _cues(self, sample: str, tags: Iterable[str]) -> dict[str, float]:
        """Count frequent words and telling letters, by tag."""
        lowered = sample.lower()
        words = set(_WORD.findall(lowered))
        letters = set(lowered)
        cues = {tag: float(len(words & self._words.get(tag, frozenset()))) for tag in tags}
        for telling, owners, weight in _TELLING_LETTERS:
            if not letters.isdisjoint(telling):
                for tag in owners:
                    if tag in cues:
                        cues[tag] += weight
        return cues

    def _load_statistics(self) -> Statistics:
        if self._statistics is None:
            self._statistics = _Py3LangId()
        return self._statistics


def detect_language(text: str, *, supported: Sequence[str] | None = None) -> Detection | None:
    """Return the likeliest language, or None when there is no word to judge by; see `LanguageDetector`."""
    return _detector().detect(text, supported=supported)


def candidates(text: str, *, supported: Sequence[str] | None = None) -> list[Detection]:
    """Return the languages that the text's script allows, likeliest first; see `LanguageDetector`."""
    return _detector().candidates(text, supported=supported)


@cache
def _detector() -> LanguageDetector:
    return LanguageDetector()


class _Py3LangId:
    """py3langid's model, restricted to the languages that need it; an instance of its own, not the package's global."""

    def __init__(self) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
        self._identifier.set_languages([tag for script in _SHARED_ALPHABETS for tag in _TAGS_OF_SCRIPT[script]])

    def scores(self, text: str) -> Mapping[str, float]:
        ranked = dict(self._identifier.rank(text))
        return ranked if len(set(ranked.values())) > 1 else {}  # equal: no known sequence in it


def _main_script(sample: str) -> str:
    """Return the script of most of the text, letters weighted by how much they say; empty when there is no word."""
    letters = Counter(_script_of(character) for character in sample if _is_letter(character))
    letters.pop("", None)
    if kana := letters.pop("Kana", 0):
        letters[_CHINESE_OR_JAPANESE] += kana
    if not letters:
        return ""
    script = max(letters, key=lambda each: letters[each] * _LETTER_WEIGHTS.get(each, _DEFAULT_WEIGHT))
    return "" if letters[script] < 2 and script in _ALPHABETS else script


def _is_letter(character: str) -> bool:
    """Vowel signs count: Indic scripts and Khmer write half of a word with them."""
    return character.isalpha() or unicodedata.category(character) in {"Mc", "Mn"}


def _script_of(character: str) -> str:
    return _BLOCKS[bisect_right(_BLOCK_STARTS, ord(character)) - 1][1]


def _judge_han(sample: str, tags: Sequence[str]) -> list[Detection]:
    """Tell Japanese, Cantonese, Traditional and Simplified Chinese apart by the characters each one alone uses."""
    counts = Counter(_han_kind(character) for character in sample)
    n_han = sum(counts[kind] for kind in ("both", "simplified", "traditional", "japanese", "cantonese"))
    if counts["kana"] >= max(1.0, n_han * _KANA_SHARE):
        return _preferring("ja", tags, 1.0)
    if counts["cantonese"] and counts["cantonese"] >= n_han * _CANTONESE_SHARE:
        return _preferring("yue", tags, 0.95)
    kinds = {"zh": counts["simplified"], "zh-Hant": counts["traditional"], "ja": counts["japanese"]}
    return _normalized({tag: float(kinds.get(tag, 0)) + (0.5 if tag == "zh" else 0.0) for tag in tags})


def _preferring(best: str, tags: Sequence[str], confidence: float) -> list[Detection]:
    if best not in tags:
        return [Detection(tags[0], 0.5)]
    rest = (1.0 - confidence) / max(1, len(tags) - 1)
    return [Detection(best, confidence), *(Detection(tag, rest) for tag in tags if tag != best)]


@cache
def _han_kind(character: str) -> str:
    """Classify a character by the national standards that hold it: GB 2312, Big5, JIS X 0208."""
    script = _script_of(character)
    if script != "Hani":
        return "kana" if script == "Kana" and character.isalpha() else "other"
    if character in _CANTONESE:
        return "cantonese"
    in_gb, in_big5 = _is_in(character, "gb2312"), _is_in(character, "big5")
    if in_gb != in_big5:
        return "simplified" if in_gb else "traditional"
    return "both" if in_gb or not _is_in(character, "euc_jp") else "japanese"


def _is_in(character: str, encoding: str) -> bool:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _narrow_arabic(sample: str, tags: list[str]) -> list[str]:
    """Uyghur and Kazakh write vowels that the others do not have; Kazakh is told from Uyghur by what it lacks."""
    letters = set(sample)
    if letters.isdisjoint("ېۈۆۋڭۇە"):
        return [tag for tag in tags if tag != "kk"]
    is_kazakh = not letters.isdisjoint("ٴء") or letters.isdisjoint("ېئۈھ")
    preferred = ["kk" if is_kazakh else "ug"]
    return preferred if preferred[0] in tags else tags


def _normalized(scores: Mapping[str, float]) -> list[Detection]:
    """Turn log-likelihoods into probabilities, likeliest first; of equals, the first in the catalog's order."""
    best = max(scores.values())
    weights = {tag: math.exp(score - best) for tag, score in scores.items()}
    total = sum(weights.values())
    found = [Detection(tag, weight / total) for tag, weight in weights.items()]
    return sorted(found, key=lambda each: -each.confidence)
