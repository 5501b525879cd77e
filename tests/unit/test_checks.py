import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.checks import check_output, repeats_at_end

CODES = {"empty", "encoding", "control_token", "lines", "placeholder", "tags", "loop", "wrong_script"}


def code_of(source: str, target: str, target_lang: str | None) -> str | None:
    finding = check_output(source, target, target_lang=target_lang)
    return None if finding is None else finding.code


def test_the_detector_cases(shared_data: Path) -> None:
    lines = (shared_data / "behaviour" / "detectors.jsonl").read_text(encoding="utf-8").splitlines()
    cases = list(map(json.loads, lines))
    assert CODES & {code for case in cases for code in case["must"]} >= {"placeholder", "tags", "loop", "wrong_script"}
    for case in cases:
        code = code_of(case["source"], case["output"], case["tgt"])
        assert code not in case["must_not"], case["id"]
        if wanted := CODES & set(case["must"]):
            assert code in wanted, case["id"]
        if case["id"].startswith("ok-"):
            assert code is None, case["id"]


@pytest.mark.parametrize("target_lang", ["zh", "zh-Hant", "ja", "ko", "ar", "de", "fr", "ru", "th", "bo", "my", "ug"])
def test_professional_translations_have_no_fault(shared_data: Path, target_lang: str) -> None:
    sources = (shared_data / "ntrex" / "en.txt").read_text(encoding="utf-8").splitlines()
    targets = (shared_data / "ntrex" / f"{target_lang}.txt").read_text(encoding="utf-8").splitlines()
    pairs = list(zip(sources, targets, strict=True))
    assert len(pairs) == 100
    assert [pair for pair in pairs if check_output(*pair, target_lang=target_lang)] == []


@pytest.mark.parametrize(
    ("source", "target", "target_lang", "expected"),
    [
        ("Hello", "", "fr", "empty"),
        ("Hello", " \u3000", "fr", "empty"),
        ("Hello", "Bon\ufffdjour", "fr", "encoding"),
        ("Hello", "Bonjour\x1b[31m", "fr", "encoding"),
        ("Hello\ufffd", "Bonjour\ufffd", "fr", None),
        ("Hello", "Bonjour<|eos|>", "fr", "control_token"),
        ("What is <|eos|>?", "Qu'est-ce que <|eos|> ?", "fr", None),
        ("Hello", "Bonjour\n\nNote : salut", "fr", "lines"),
        ("Hello %1$s, good to see you", "Bonjour % 1 $ s, ravi", "fr", "placeholder"),
        ("Hello %1$s, good to see you", "Bonjour %1$s, ravi de vous voir", "fr", None),
        ("See https://a.example/b.", "Voir https://a.example/c.", "fr", "placeholder"),
        ("See https://a.example/b.", "请看 https://a.example/b。", "zh", None),
        ("Mail a@b.example", "Écrivez", "fr", "placeholder"),
        ("Hello", "Bonjour {name}", "fr", "placeholder"),
        ("<b>Save</b> it", "<b>Speichern", "de", "tags"),
        ("Save it", "<b>Speichern</b>", "de", "tags"),
        ("a<br>b <i>c</i>", "A<br>B <i>C</i>", "de", None),
        ("<b>x</b> <i>y</i>", "<i>y</i> <b>x</b>", "de", None),
        ("Good morning to all of you", "Good morning to all of you", "zh", "wrong_script"),
        ("San Francisco", "San Francisco", "zh", None),
        ("Good morning to all of you", "大家早上好", "fr", "wrong_script"),
        ("Good morning to all of you", "大家早上好", None, None),
        ("这座城市开设了图书馆", "這座城市開設了圖書館", "zh", "wrong_script"),
    ],
)
def test_faults(source: str, target: str, target_lang: str | None, expected: str | None) -> None:
    assert code_of(source, target, target_lang) == expected


@given(st.text())
def test_a_text_is_faultless_against_itself(text: str) -> None:
    assert code_of(text, text, None) == (None if text.strip() else "empty")


@given(st.lists(st.integers(0, 5), min_size=1, max_size=32), st.lists(st.integers(6, 99), max_size=50))
def test_a_repeated_unit_is_a_loop_after_any_beginning(unit: list[int], beginning: list[int]) -> None:
    loop = unit * max(5, -(-48 // len(unit)))
    assert repeats_at_end(beginning + loop)
    assert not repeats_at_end([*beginning, *loop, 1000])


def test_short_repetitions_and_those_of_the_source_are_fine() -> None:
    assert not repeats_at_end([1, 2] * 10)
    assert not repeats_at_end([1, 2] * 40, allowed=[9, 1, 2, 1, 2, 9])
    assert repeats_at_end([1, 2] * 40, allowed=[9, 1, 2, 9])
