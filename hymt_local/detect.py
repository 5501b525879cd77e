"""Language identification: the script decides first, then frequent words and telling letters, statistics last.

The statistics (py3langid) are loaded only for a text that the rules leave open: 0.4 s and 130 MB, once per detector,
then about 0.1 ms a call. Nothing is ever found that the text's script rules out.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

from hymt_local.frequent_words import frequent_words, sister_words
from hymt_local.language import get_language
from hymt_local.literals import without_literals
from hymt_local.scripts import han_kind, is_letter, letter_weight, script_of

_MAX_CHARACTERS = 4000
"""What is looked at: more changes no verdict and costs time."""

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
_TWO_SCRIPTS = frozenset({"kk", "mn"})
"""Languages that China and their other countries write differently."""

_TOLD_APART = 0.9
"""How sure a word makes that only one of two sisters has."""
_CUE_NATS = 6.0
"""What one frequent word adds to the logarithm of a language's likelihood."""
_DECISIVE_CUES = 2.0
"""This many more than any other language makes the statistics unnecessary."""
_WORD = re.compile(r"[\u0900-\u0963\u0971-\u097f]+|[^\W\d_]+")

_CANTONESE_SHARE = 0.04
_KANA_SHARE = 1 / 8
"""Of Han characters; news in Japanese has far more, a Chinese text that quotes a Japanese name has less."""


@dataclass(frozen=True, slots=True)
class Detection:
    """A language and how sure it is."""

    tag: str
    confidence: float
    """0.0 to 1.0; 1.0 when the script leaves no choice."""
    script: str = ""
    """ISO 15924 code of the script that the text is written in: Kazakh and Mongolian have two."""


class Statistics(Protocol):
    """Scores languages by their letter sequences."""

    def scores(self, text: str) -> Mapping[str, float]:
        """Return log-likelihoods by tag, not normalized; empty when the text says nothing."""


class LanguageDetector:
    """Detects languages. Loads its statistics on first need; threads may share it (two may load them at once)."""

    def __init__(self) -> None:
        self._words = frequent_words()
        self._statistics: Statistics | None = None
        self._is_without_statistics = False

    def identify(self, text: str) -> tuple[str, float] | None:
        """Return the likeliest language and its confidence, as checks ask for them."""
        found = self.detect(text)
        return (found.tag, found.confidence) if found else None

    def detect(self, text: str, *, supported: Sequence[str] | None = None) -> Detection | None:
        """Return the likeliest language, or None when there is no word to judge by.

        Args:
            text: Any text; its first few thousand characters are looked at.
            supported: Tags to choose from; None allows all of the catalog.
        """
        found = self.candidates(text, supported=supported)
        return found[0] if found else None

    def rules_out(self, text: str, tag: str) -> bool:
        """Tell whether a text cannot be in a language, because that is written in another script. Loads nothing."""
        script = _main_script(unicodedata.normalize("NFC", without_literals(text[:_MAX_CHARACTERS])))
        return script in _TAGS_OF_SCRIPT and tag not in _TAGS_OF_SCRIPT[script]

    def candidates(self, text: str, *, supported: Sequence[str] | None = None) -> list[Detection]:
        """Return the languages that the text's script allows, likeliest first; empty when there is no word."""
        sample = unicodedata.normalize("NFC", without_literals(text[:_MAX_CHARACTERS]))
        script = _main_script(sample)
        tags = [tag for tag in _TAGS_OF_SCRIPT.get(script, ()) if supported is None or tag in supported]
        return [replace(each, script=_written_in(each.tag, script)) for each in self._among(sample, tags, script)]

    def _among(self, sample: str, tags: list[str], script: str) -> list[Detection]:
        if not tags:
            return []
        if script == "Hani":
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
        statistics = self._load_statistics()
        if statistics is None and first == 0.0:
            return []
        scores = statistics.scores(sample) if statistics else {}
        temperature = math.sqrt(len(sample.encode()))
        found = _normalized({tag: (scores.get(tag, 0.0) + _CUE_NATS * cues[tag]) / temperature for tag in tags})
        return _told_apart(sample, found)

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

    def _load_statistics(self) -> Statistics | None:
        """Return the statistics, None where their package is missing: scripts and cues must do then."""
        if self._statistics is None and not self._is_without_statistics:
            try:
                self._statistics = _Py3LangId()
            except ImportError:
                self._is_without_statistics = True
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


def _written_in(tag: str, script: str) -> str:
    """Return the script of a text in this language, of which `script` is what its letters belong to."""
    return script if tag in _TWO_SCRIPTS else get_language(tag).script


def _main_script(sample: str) -> str:
    """Return the script of most of the text, letters weighted by how much they say; empty when there is no word."""
    letters = Counter(script_of(character) for character in sample if is_letter(character))
    letters.pop("", None)
    if kana := letters.pop("Kana", 0):  # one script until one of the languages is chosen
        letters["Hani"] += kana
    if not letters:
        return ""
    script = max(letters, key=lambda each: letters[each] * letter_weight(each))
    return "" if letters[script] < 2 and script in _ALPHABETS else script


def _judge_han(sample: str, tags: Sequence[str]) -> list[Detection]:
    """Tell Japanese, Cantonese, Traditional and Simplified Chinese apart by the characters each one alone uses."""
    counts = Counter(han_kind(character) for character in sample)
    n_han = sum(counts[kind] for kind in ("both", "simplified", "traditional", "japanese", "cantonese"))
    if counts["kana"] >= max(1.0, n_han * _KANA_SHARE):
        return _preferring("ja", tags, 1.0)
    if counts["cantonese"] and counts["cantonese"] >= n_han * _CANTONESE_SHARE:
        return _preferring("yue", tags, 0.95)
    kinds = {"zh": counts["simplified"], "zh-Hant": counts["traditional"], "ja": counts["japanese"]}
    return _normalized({tag: float(kinds.get(tag, 0)) + (0.5 if tag == "zh" else 0.0) for tag in tags})


def _told_apart(sample: str, found: list[Detection]) -> list[Detection]:
    """Let words that only one of two sisters has decide between them, when the two lead."""
    telling = sister_words()
    leading = {each.tag for each in found[:2]}
    if leading != set(telling):
        return found
    words = set(_WORD.findall(sample.lower()))
    counts = {tag: len(words & telling[tag]) for tag in telling}
    best = max(counts, key=lambda tag: counts[tag])
    if len(set(counts.values())) == 1:
        return found
    both = sum(each.confidence for each in found[:2])
    told = {tag: both * (_TOLD_APART if tag == best else 1.0 - _TOLD_APART) for tag in leading}
    ranked = [replace(each, confidence=told.get(each.tag, each.confidence)) for each in found]
    return sorted(ranked, key=lambda each: -each.confidence)


def _preferring(best: str, tags: Sequence[str], confidence: float) -> list[Detection]:
    if best not in tags:
        return [Detection(tags[0], 0.5)]
    rest = (1.0 - confidence) / max(1, len(tags) - 1)
    return [Detection(best, confidence), *(Detection(tag, rest) for tag in tags if tag != best)]


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
