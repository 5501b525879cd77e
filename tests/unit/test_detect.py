from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.catalog import ALL_TAGS
from hymt_local.detect import LanguageDetector, candidates, detect_language
from tests.bench.bench_text import GATES, news_cases, own_cases, share_right, udhr_cases


@pytest.fixture(scope="module")
def detector() -> LanguageDetector:
    return LanguageDetector()


def found(detector: LanguageDetector, text: str) -> str | None:
    detection = detector.detect(text)
    return None if detection is None else detection.tag


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
def test_l_1_nothing_is_found_where_no_word_of_ours_is(detector: LanguageDetector, text: str) -> None:
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
def test_l_1_candidates_are_probabilities_in_order(text: str) -> None:
    found_all = candidates(text)
    confidences = [each.confidence for each in found_all]
    assert confidences == sorted(confidences, reverse=True)
    assert all(0.0 <= confidence <= 1.0 for confidence in confidences)
    assert {each.tag for each in found_all} <= set(ALL_TAGS)
    assert detect_language(text) == (found_all[0] if found_all else None)


def test_l_4_gate_own_sentences(detector: LanguageDetector, shared_data: Path) -> None:
    cases = own_cases(shared_data)
    assert len(cases) == 80
    assert share_right(detector, cases) >= GATES["own"]


@pytest.mark.parametrize("n_characters", [None, 40])
def test_l_4_gate_news(detector: LanguageDetector, shared_data: Path, n_characters: int | None) -> None:
    cases = news_cases(shared_data, n_characters)
    assert len({tag for tag, _ in cases}) == 38
    name = "news 40" if n_characters else "news"
    assert share_right(detector, cases) >= GATES[name]
    assert share_right(detector, cases, merged=True) >= GATES[f"{name} merged"]


def test_l_4_gate_declaration_of_human_rights(detector: LanguageDetector, shared_data: Path) -> None:
    cases = udhr_cases(shared_data)
    assert len(cases) > 1000
    assert share_right(detector, cases) >= GATES["udhr"]


def test_l_4_scripts_and_cues_do_without_the_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    bare = LanguageDetector()
    assert [
        found(bare, text) for text in ("Good morning, how are you?", "你好", "안녕하세요", "שלום", "Guten Morgen")
    ] == [*("en", "zh", "ko", "he", "de")]
    assert found(bare, "xyzzy plugh") is None


@pytest.mark.parametrize(
    ("text", "tag", "script"),
    [
        ("كومەگىڭىزگە راحمەت.", "kk", "Arab"),
        ("Сәлем, қалайсың?", "kk", "Cyrl"),
        ("ᠮᠣᠩᠭᠣᠯ ᠬᠡᠯᠡ", "mn", "Mong"),
        ("Сайн байна уу", "mn", "Cyrl"),
        ("谢谢你们", "zh", "Hans"),
        ("謝謝你們", "zh-Hant", "Hant"),
        ("ありがとう", "ja", "Jpan"),
        ("Guten Morgen", "de", "Latn"),
    ],
)
def test_l_1_l_5_the_script_is_told_too(detector: LanguageDetector, text: str, tag: str, script: str) -> None:
    detection = detector.detect(text)
    assert detection is not None
    assert (detection.tag, detection.script) == (tag, script)


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("Menimbang bahwa setiap orang berhak atas kebebasan.", "id"),
        ("Harga barang itu naik karena pajak.", "id"),
        ("Harga barang itu naik kerana cukai.", "ms"),
        ("Kerajaan akan menubuhkan syarikat baharu.", "ms"),
    ],
)
def test_malay_and_indonesian_are_told_apart_by_their_words(detector: LanguageDetector, text: str, tag: str) -> None:
    assert found(detector, text) == tag
