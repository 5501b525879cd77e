from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymt_local.catalog import ALL_TAGS, load_catalog
from hymt_local.checks import (
    Pair,
    check_output,
    check_pair,
    check_terms,
    find_terms,
    most_characters,
    repeats_at_end,
    tidied,
)
from hymt_local.checks import without_chatter as shortened
from hymt_local.detect import LanguageDetector
from hymt_local.prompts import (
    Background,
    Context,
    Delimiters,
    Formatted,
    Personalization,
    Structured,
    Style,
    Task,
    Terminology,
    Translate,
    build_prompt,
    has_task,
)
from hymt_local.segment import Finding, Severity, Term
from tests.bench.bench_checks import measure, read_corpus


@pytest.fixture(scope="module")
def detector() -> LanguageDetector:
    return LanguageDetector()


def cases_of(shared_data: Path, name: str) -> list[dict[str, Any]]:
    lines = (shared_data / "behaviour" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return list(map(json.loads, lines))


def codes_of(source: str, target: str, target_lang: str | None = "fr", source_lang: str | None = "en") -> set[str]:
    return {finding.code for finding in check_pair(Pair(source, target, source_lang, target_lang))}


def test_f_1_to_f_12_the_detector_cases(shared_data: Path, detector: LanguageDetector) -> None:
    def identify(text: str) -> tuple[str, float] | None:
        found = detector.detect(text)
        return (found.tag, found.confidence) if found else None

    cases = cases_of(shared_data, "detectors")
    assert len(cases) == 22
    verdicts = {}
    for case in cases:
        pair = Pair(case["source"], case["output"], case["src"], case["tgt"], identify=identify)
        codes = {finding.code for finding in check_pair(pair)}
        verdicts[case["id"]] = (set(case["must"]) - codes, codes & set(case["must_not"]))
        if case["id"].startswith("ok-"):
            assert codes == set(), case["id"]
    assert verdicts == {case["id"]: (set(), set()) for case in cases}


@pytest.mark.parametrize(
    ("target", "target_lang", "is_broken_off"),
    [
        ("„Das hat er gestern gesagt.“", "de", False),
        ("»Das hat er gestern gesagt.«", "de", False),
        ("Das hat er gestern uns von der", "de", True),
        ("הוא אמר את זה אז!“", "he", False),
        ("เขาพูดแบบนั้นเมื่อวาน", "th", False),
    ],
)
def test_f_5_a_sentence_that_ends_as_its_language_ends_them_is_not_broken_off(
    target: str, target_lang: str, is_broken_off: bool
) -> None:
    source = "“He said that to all of us yesterday in town before us.”"
    assert ("truncated" in codes_of(source, target, target_lang)) == is_broken_off


def test_p_8_professional_translations_raise_few_alarms(shared_data: Path) -> None:
    corpus = read_corpus(shared_data / "ntrex")
    directions = [("en", lang) for lang in corpus if lang != "en"] + [("zh", "de"), ("ru", "ja"), ("ar", "bo")]
    alarms = measure(corpus, directions, every=8)
    assert alarms.n_pairs >= 500
    assert len(alarms.pairs_with_error) <= 3, alarms.errors  # the bench measures the rate: 0.05 %
    assert alarms.warning_rate <= 0.05, alarms.warnings


@pytest.mark.parametrize(
    ("source", "target", "target_lang", "expected"),
    [
        ("Hello", "", "fr", "empty"),
        ("Hello", " \u3000", "fr", "empty"),
        ("Hello", "Bon\ufffdjour", "fr", "encoding"),
        ("Hello", "Bonjour\x1b[31m", "fr", "encoding"),
        ("Good summer", "Bon Ã©tÃ©", "fr", "encoding"),
        ("Hello\ufffd", "Bonjour\ufffd", "fr", None),
        ("Hello", "Bonjour<|eos|>", "fr", "control_token"),
        ("What is <|eos|>?", "Qu'est-ce que <|eos|> ?", "fr", None),
        ("Hello", "Bonjour\n\nSalut", "fr", "lines"),
        ("Hello", "Bonjour\n\nNote : salut", "fr", "explanation"),
        ("Hello %1$s, good to see you", "Bonjour % 1 $ s, ravi de vous voir", "fr", "placeholder"),
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
        ("Good morning to all of you", "大家早上好大家早上好", "fr", "wrong_script"),
        ("Good morning to all of you", "大家早上好大家早上好", None, None),
        ("这座城市开设了图书馆", "這座城市開設了圖書館", "zh", "wrong_script"),
    ],
)
def test_faults(source: str, target: str, target_lang: str | None, expected: str | None) -> None:
    found = check_output(source, target, target_lang=target_lang)
    assert (found.code if found else None) == expected


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (
            "The file was saved today in the old folder.",
            "Here is the translation: Le fichier a été enregistré.",
            "preamble",
        ),
        ("The list is long.", "Traduction : La liste est longue.", "preamble"),
        ("Translation: a list", "Traduction : une liste", None),
        ("Here is the list:", "Voici la liste :", None),
        ("Hello.", "Bonjour. (Note : forme polie)", "explanation"),
        ("Hello. (Note: polite)", "Bonjour. (Note : forme polie)", None),
        ("Save the file", "« Enregistrer le fichier »", "wrapping"),
        ('"Save the file"', "« Enregistrer le fichier »", None),
        ("Save the file", "`Enregistrer le fichier`", "wrapping"),
        ("Is it open?", "C'est ouvert.", "question"),
        ("It is open.", "C'est c'est est est ouvert ouvert.", "doubled_word"),
        ("See (below) for more.", "Voir (ci-dessous pour plus.", "brackets"),
        ("The cat sat here.", "Le chat (the cat sat) était ici.", "gloss"),
        ("Pay 1200 now", "Payez 1300 maintenant", "number"),
        ("Pay 1,200 now", "Payez 1 200 maintenant", None),
        (" Name: ", "Nom :", "whitespace"),
        ("One.\nTwo.", "Un. Deux.", "lines"),
        ("How do I do that?", "I'm sorry, but I can't help with that.", "refusal"),
        ("Hello", "<target>Bonjour</target>", "prompt_leak"),
        ("a cat", "chat 翻译成 cat\nun chat", "prompt_leak"),
    ],
)
def test_findings(source: str, target: str, expected: str | None) -> None:
    codes = codes_of(source, target)
    assert expected in codes if expected else codes == set()


def test_f_2_the_part_that_was_not_translated_is_shown() -> None:
    source = "The council met on Tuesday to discuss the new plan. It will meet again when all members are back in town."
    target = (
        "Le conseil s'est réuni mardi pour discuter du nouveau projet. It will meet again when all members are back."
    )
    (finding,) = check_pair(Pair(source, target, "en", "fr"))
    assert finding.code == "partly_untranslated"
    assert finding.span is not None
    assert finding.span.of(target).startswith("It will meet again")


def test_f_2_a_copy_of_what_is_in_the_target_language_is_no_fault(detector: LanguageDetector) -> None:
    def identify(text: str) -> tuple[str, float] | None:
        found = detector.detect(text)
        return (found.tag, found.confidence) if found else None

    text = "Le conseil municipal se réunit mardi prochain pour discuter du nouveau budget de la ville."
    assert check_pair(Pair(text, text, "en", "fr", identify=identify)) == ()
    assert [f.code for f in check_pair(Pair(text, text, "en", "fr"))] == ["untranslated"]


def test_f_7_text_of_the_context_is_found_in_the_answer() -> None:
    context = ("The old house stood on a hill above the river.",)
    target = "The old house stood on a hill. Il était vide."
    codes = {f.code for f in check_pair(Pair("It was empty.", target, "en", "fr", context=context))}
    assert "context_leak" in codes
    assert codes_of("It was empty.", "Il était vide.") == set()


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Hello, world.", "Here is the translation:\n\nBonjour, monde.", "Bonjour, monde."),
        ("你好。", "Translation: Hello.", "Hello."),
        ("Hello.", "你好。\n\n（注：这里采用了常见译法。）", "你好。"),
        ("Hello.", "**译文：**你好。", "你好。"),
        ("Save the file.", "„Speichern Sie die Datei.“", "Speichern Sie die Datei."),
        ("Save the file.", "Speichern Sie die Datei.", "Speichern Sie die Datei."),
        ("Note: save it.", "Hinweis: Speichern.", "Hinweis: Speichern."),
        ("Hello.", "译文：", "译文："),
    ],
)
def test_f_3_what_a_model_adds_is_cut_off(source: str, target: str, expected: str) -> None:
    assert shortened(source, target) == expected


def test_f_10_every_prompt_of_every_generation_is_known_as_a_leak() -> None:
    tasks: tuple[Task, ...] = (
        *(Translate(), Terminology((Term("cat", "chat"),)), Context("Before."), Style("formal"), Delimiters()),
        *(Personalization(("be brief",)), Structured("JSON"), Background("A play."), Formatted()),
    )
    for spec in load_catalog().models:
        if spec.template_set == "plain":
            continue
        for task in tasks:
            for pair in (("en", "fr"), ("zh", "fr")):
                if has_task(spec, task.name):
                    prompt = build_prompt(spec, source_lang=pair[0], target_lang=pair[1], source="a cat", task=task)
                    answer = "".join(part for part in prompt.parts if isinstance(part, str))
                    assert "prompt_leak" in codes_of("a cat", answer), (spec.id, task)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("cafe", "cafe\u0301", "caf\u00e9"),
        ("cafe\u0301", "cafe\u0301", "cafe\u0301"),
        ("Hello", "\ufeffBonjour\u200b", "Bonjour"),
        ("a\u200bb", "x\u200by", "x\u200by"),
    ],
)
def test_f_15_what_nobody_sees_is_put_right(source: str, target: str, expected: str) -> None:
    assert tidied(source, target) == expected


def test_g_1_the_glossary_cases(shared_data: Path) -> None:
    for case in cases_of(shared_data, "glossary"):
        lang = {"cjk-no-space": "zh", "fullwidth": "ja", "de-compound": "de"}.get(case["id"], "en")
        found = [match.term for match in find_terms(case["source"], list(case["terms"]), lang=lang)]
        assert found == case["expect"], case["id"]


@pytest.mark.parametrize(
    ("target", "target_lang", "n_findings"),
    [
        ("Les serveurs cloud sont rapides.", "fr", 0),
        ("Les machines sont rapides.", "fr", 1),
        ("云服务器很快。", "zh", 0),
        ("Облачных серверов много.", "ru", 0),
    ],
)
def test_g_3_a_term_that_was_not_used_is_a_warning(target: str, target_lang: str, n_findings: int) -> None:
    allowed = {"fr": ("serveur cloud", "serveurs cloud"), "zh": ("云服务器",), "ru": ("облачный сервер",)}[target_lang]
    pair = Pair("Cloud servers are fast.", target, "en", target_lang)
    assert len(list(check_terms(pair, {"cloud server": allowed, "unused": ("x",)}))) == n_findings


@given(st.text())
def test_a_text_is_faultless_against_itself(text: str) -> None:
    finding = check_output(text, text, target_lang=None)
    assert (finding.code if finding else None) == (None if text.strip() else "empty")


@settings(max_examples=100)
@given(st.text(max_size=200), st.text(max_size=200), st.sampled_from(ALL_TAGS))
def test_any_text_can_be_checked(source: str, target: str, lang: str) -> None:
    found = check_pair(Pair(source, target, "en", lang))
    assert all(isinstance(finding, Finding) and finding.message for finding in found)
    assert all(finding.span is None or finding.span.of(target) for finding in found)
    severities = [finding.severity for finding in found]
    assert severities == sorted(severities, key=[Severity.ERROR, Severity.WARNING, Severity.INFO].index)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=32), st.lists(st.integers(6, 99), max_size=50))
def test_a_repeated_unit_is_a_loop_after_any_beginning(unit: list[int], beginning: list[int]) -> None:
    loop = unit * max(5, -(-48 // len(unit)))
    assert repeats_at_end(beginning + loop)
    assert not repeats_at_end([*beginning, *loop, 1000])


def test_short_repetitions_and_those_of_the_source_are_fine() -> None:
    assert not repeats_at_end([1, 2] * 10)
    assert not repeats_at_end([1, 2] * 40, allowed=[9, 1, 2, 1, 2, 9])
    assert repeats_at_end([1, 2] * 40, allowed=[9, 1, 2, 9])


@pytest.mark.parametrize(
    ("source", "target", "lang", "expected"),
    [
        ("Wait…", "Attendez...", "fr", "Attendez…"),
        ("Wait...", "Attendez…", "fr", "Attendez..."),
        ("Wait...", "等等……", "zh", "等等……"),
        ("Wait...", "待って…", "ja", "待って…"),
        ("Wait....", "Attendez…", "fr", "Attendez…"),
        ("Done.", "हो गया.", "hi", "हो गया।"),
        ("Done.", "সম্পন্ন|", "bn", "সম্পন্ন।"),
        ("Done.", "झाले.", "mr", "झाले."),
        ("See v1.", "देखें v1.", "hi", "देखें v1."),
        ("No full stop", "हो गया.", "hi", "हो गया."),
        ("Done.", ".", "hi", "."),
    ],
)
def test_p_8_what_has_one_right_form_is_put_right(source: str, target: str, lang: str, expected: str) -> None:
    assert tidied(source, target, target_lang=lang) == expected


@pytest.mark.parametrize(
    ("source", "target", "is_found"),
    [
        ("The library opens at nine in the morning.", "}}]] ## 12 34 ]]{{ ;; :: 99 __", True),
        ("The library opens at nine in the morning.", "La bibliothèque ouvre à neuf heures du matin.", False),
        ("The library opens at nine in the morning.", "पुस्तकालय सुबह नौ बजे खुलता है।", False),
        ("12:30 – 14:45, 16:00 – 17:15, 18:30 a", "12:30 – 14:45, 16:00 – 17:15, 18:30 b", False),
        ("The library opens.", "}}]] ##", False),
    ],
)
def test_f_12_an_answer_of_signs_is_garbage(source: str, target: str, is_found: bool) -> None:
    codes = {finding.code for finding in check_pair(Pair(source, target, "en", "fr"))}
    assert ("garbage" in codes) == is_found


@pytest.mark.parametrize(
    ("n_copied_before", "n_copied_after", "code"),
    [(20, 0, "partly_untranslated"), (0, 20, "partly_untranslated"), (20, 20, "untranslated")],
)
def test_f_2_a_long_text_is_a_copy_only_when_both_of_its_ends_are(
    n_copied_before: int, n_copied_after: int, code: str
) -> None:
    english = "The library opens at nine in the morning and closes at six. "
    french = "La bibliothèque ouvre à neuf heures du matin et ferme à six heures. "
    middle = "" if n_copied_before and n_copied_after else french * 20
    source = english * (n_copied_before + n_copied_after + (20 if middle else 0))
    target = english * n_copied_before + middle + english * n_copied_after + ("" if middle else "end")
    assert code in {finding.code for finding in check_pair(Pair(source, target, "en", "fr"))}


@pytest.mark.parametrize("run", [" ", "\n", "\t", "1", "1,", "(", "a ", "\u00a0", "Note: ", "“"])
def test_d_6_runs_of_one_sign_take_a_time_that_grows_like_their_length(run: str) -> None:
    def cost(length: int) -> float:
        text = f"Some words{run * (length // len(run))}and others"
        pair = Pair(text, text.upper(), "en", "fr")
        started = time.process_time()
        for _ in range(3):
            check_pair(pair)
            shortened(pair.source, pair.target)
        return time.process_time() - started

    cost(1000)
    assert cost(32_000) < 30 * max(cost(4_000), 0.002)  # eight times the length; a square would be 64


def test_f_4_no_answer_that_the_length_check_lets_through_is_given_up() -> None:
    for source_lang, target_lang in [("en", "fr"), ("zh", "en"), ("en", "zh"), ("ja", "ta"), ("en", "bo")]:
        for text in ("好", "Yes", "The library opens at nine in the morning. " * 5, "图书馆上午九点开门。" * 9):
            most = most_characters(text, source_lang, target_lang)
            assert most is not None
            answer = "word " * (most // 5 + 1)
            assert any(each.code == "ratio" for each in check_pair(Pair(text, answer, source_lang, target_lang)))
    assert most_characters("Yes", "und", "fr") is None
