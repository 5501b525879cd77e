from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.catalog import ALL_TAGS
from hymt_local.detect import LanguageDetector, candidates, detect_language

# Written Malay and Indonesian, and formal Cantonese and Traditional Chinese, cannot be told apart in every sentence.
MERGED = {"id": "ms", "yue": "zh-Hant"}
OTHER_SCRIPTS = {"kk-Arab": "kk", "mn-Mong": "mn"}


@pytest.fixture(scope="module")
def detector() -> LanguageDetector:
    return LanguageDetector()


def found(detector: LanguageDetector, text: str) -> str | None:
    detection = detector.detect(text)
    return None if detection is None else detection.tag


def share_right(detector: LanguageDetector, cases: Iterable[tuple[str, str]], *, merged: bool) -> float:
    verdicts = []
    for expected, text in cases:
        tags = (OTHER_SCRIPTS.get(expected, expected), found(detector, text))
        verdicts.append(len({MERGED.get(str(tag), tag) if merged else tag for tag in tags}) == 1)
    return sum(verdicts) / len(verdicts)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("en", "hello handsome"),
        ("it", "Ciao!"),
        ("fr", "Bonjour"),
        ("de", "Danke"),
        ("es", "Gracias"),
        ("es", "Hola"),
        ("en", "Good morning"),
        ("de", "Guten Morgen"),
        ("pt", "Bom dia"),
        ("vi", "Xin chào"),
        ("pl", "Dzień dobry"),
        ("cs", "Dobrý den"),
        ("tr", "Merhaba"),
        ("nl", "Goedemorgen"),
        ("de", "Montag"),
        ("fr", "lundi"),
        ("it", "La tua password non è corretta"),
        ("zh", "如果用于切换输入语言的本地键盘快捷键(如WIN + Space)被主机所捕获"),
        ("zh", "你好"),
        ("zh", "猫"),
        ("zh-Hant", "謝謝"),
        ("yue", "唔該晒"),
        ("ja", "日本語を話せますか"),
        ("ja", "新製品の発表"),
        ("ja", "iPhone 15 Pro Max を買った"),
        ("ko", "안녕하세요"),
        ("ru", "Привет"),
        ("uk", "Дякую"),
        ("kk", "Сәлем"),
        ("mn", "Сайн байна уу"),
        ("ar", "مرحبا"),
        ("fa", "سلام"),
        ("ur", "شکریہ"),
        ("ug", "رەھمەت"),
        ("he", "שלום"),
        ("hi", "आप कहाँ हैं?"),
        ("mr", "तू कुठे आहेस?"),
        ("en", "See https://beispiel.example/straße/über-uns for details, please."),
    ],
)
def test_short_texts(detector: LanguageDetector, expected: str, text: str) -> None:
    assert found(detector, text) == expected


@pytest.mark.parametrize(
    "text", ["", " \n", "12345", "...", "🎉🚀", "x", "ж", "%1$s {name}", "https://example.com/deutsch", "ᚠᚢᚦ"]
)
def test_nothing_is_found_where_no_word_of_ours_is(detector: LanguageDetector, text: str) -> None:
    assert detector.detect(text) is None
    assert detector.candidates(text) == []


def test_the_passthrough_cases_have_no_language(detector: LanguageDetector, shared_data: Path) -> None:
    lines = (shared_data / "behaviour" / "passthrough.jsonl").read_text(encoding="utf-8").splitlines()
    assert {case["id"]: found(detector, case["source"]) for case in map(json.loads, lines)} == {
        json.loads(line)["id"]: None for line in lines
    }


def test_only_supported_languages_are_found(detector: LanguageDetector) -> None:
    assert detector.detect("Bonjour, comment ça va ?", supported=["en", "de"]) is not None
    detection = detector.detect("Bonjour, comment ça va ?", supported=["en", "de"])
    assert detection is not None
    assert detection.tag in {"en", "de"}
    assert detector.detect("Привет", supported=["en", "de"]) is None
    detection = detector.detect("謝謝你", supported=["en", "zh"])
    assert detection is not None
    assert detection.tag == "zh"


def test_a_clear_text_needs_no_statistics() -> None:
    program = (
        "import sys; from hymt_local.detect import detect_language;"
        "print([detect_language(t).tag for t in ('Good morning, how are you?', 'Où est la gare ?', '你好')]);"
        "print('py3langid' in sys.modules, 'numpy' in sys.modules)"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output == "['en', 'fr', 'zh']\nFalse False\n"


def test_the_packages_own_identifier_is_left_alone(detector: LanguageDetector) -> None:
    from py3langid import langid

    assert found(detector, "Der Zug fährt ab.") == "de"
    detector.candidates("xyzzy plugh")
    assert langid.IDENTIFIER is None


@given(st.text(max_size=60))
def test_candidates_are_probabilities_in_order(text: str) -> None:
    found_all = candidates(text)
    confidences = [each.confidence for each in found_all]
    assert confidences == sorted(confidences, reverse=True)
    assert all(0.0 <= confidence <= 1.0 for confidence in confidences)
    assert {each.tag for each in found_all} <= set(ALL_TAGS)
    assert detect_language(text) == (found_all[0] if found_all else None)


def test_gate_own_sentences(detector: LanguageDetector, shared_data: Path) -> None:
    lines = (shared_data / "lid" / "own_sentences.tsv").read_text(encoding="utf-8").splitlines()
    cases = [(tag, text) for tag, text in (line.split("\t") for line in lines)]
    assert len(cases) == 80
    assert share_right(detector, cases, merged=False) >= 0.97


@pytest.mark.parametrize(("n_characters", "exact", "merged"), [(None, 0.98, 0.995), (40, 0.965, 0.985)])
def test_gate_news(
    detector: LanguageDetector, shared_data: Path, n_characters: int | None, exact: float, merged: float
) -> None:
    files = sorted((shared_data / "ntrex").glob("*.txt"))
    assert len(files) == 38
    cases = [
        (file.stem, line[:n_characters])
        for file in files
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    assert share_right(detector, cases, merged=False) >= exact
    assert share_right(detector, cases, merged=True) >= merged
