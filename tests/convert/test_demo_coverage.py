"""What the demo's own record covers: its whole grammar, in every form a user types, and nothing beside it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import hymt_local
from hymt_convert.demo.coverage import coverage_metadata, fold, metadata_of
from hymt_convert.demo.coverage_report import (
    FORMS,
    RESULT,
    Answer,
    Case,
    Counts,
    Outcome,
    counts,
    domain_cases,
    judge,
    near_domain_cases,
    ordinary_cases,
    render,
    sweep,
)
from hymt_convert.demo.examples import directions
from hymt_convert.demo.phrasebook import PHRASE_LANGUAGES, Phrasebook, coverage_texts, load_items
from hymt_local.coverage import PREFIX, Coverage
from hymt_local.engine.gguf_file import read_header
from hymt_local.language import LANGUAGES

SHIPPED = Path(hymt_local.__file__).parent / "data" / "demo" / "hymt-demo-Q8_0.gguf"
MAX_RECORD_BYTES = 500_000
MAX_PERCENT = 3


@pytest.fixture(scope="module")
def metadata() -> dict[str, int | float | str]:
    return coverage_metadata()


@pytest.fixture(scope="module")
def coverage(metadata: dict[str, int | float | str]) -> Coverage:
    found = Coverage.from_metadata(metadata)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def phrasebook() -> Phrasebook:
    return load_items()


def test_the_record_is_small(metadata: dict[str, int | float | str]) -> None:
    assert sum(len(key) + len(str(value)) for key, value in metadata.items()) <= MAX_RECORD_BYTES


def test_every_language_has_texts(coverage: Coverage) -> None:
    assert set(coverage.languages) == {language.tag for language in LANGUAGES}


@pytest.mark.parametrize("lang", PHRASE_LANGUAGES)
def test_the_whole_grammar_is_covered_in_every_form(coverage: Coverage, phrasebook: Phrasebook, lang: str) -> None:
    items = (*phrasebook.train, *phrasebook.held_out)
    blocked = {item.texts[lang] for item in items if lang in item.blocked_sources}
    typed = [form(text) for text in coverage_texts(lang) if text not in blocked for form in FORMS.values()]
    assert [text for text in typed if coverage.gap(text, lang) is not None] == []


def test_dates_that_were_never_trained_are_refused(coverage: Coverage, phrasebook: Phrasebook) -> None:
    dates = [item for item in phrasebook.held_out if item.concept == "date"]
    assert len(dates) > 20
    texts = {(lang, text) for item in dates for lang, text in item.texts.items()}
    texts -= {(lang, text) for item in phrasebook.train for lang, text in item.texts.items()}
    assert [text for lang, text in texts if coverage.gap(text, lang) is None] == []


def test_exactly_the_trained_directions_are_claimed(coverage: Coverage, phrasebook: Phrasebook) -> None:
    items = (*phrasebook.train, *(item for item in phrasebook.held_out if item.kind == "template"))
    for item in items[::29]:
        claims = directions(item)
        for source in {source for source, _ in claims}:
            text = item.texts[source]
            same = [other for other in items if other.texts.get(source) == text]
            found = {
                language.tag
                for language in LANGUAGES
                if language.tag != source and coverage.gap(text, source, target_lang=language.tag) is None
            }
            assert found == {target for other in same for start, target in directions(other) if start == source}


def test_ordinary_sentences_are_refused(coverage: Coverage, shared_data: Path) -> None:
    cases = list(ordinary_cases(shared_data / "ntrex"))
    assert len({case.source_lang for case in cases}) == len(LANGUAGES)
    assert [case.source for case in cases if coverage.gap(case.source, case.source_lang) is None] == []


def test_ordinary_sentences_are_refused_in_every_other_language(coverage: Coverage, shared_data: Path) -> None:
    """Language detection may be wrong."""
    cases = list(ordinary_cases(shared_data / "ntrex"))[::37]
    assert [case for case in cases for lang in coverage.languages if coverage.gap(case.source, lang) is None] == []


def test_one_unknown_word_is_enough_and_is_named(coverage: Coverage) -> None:
    cases = [case for case in near_domain_cases() if case.group == "unknown word"]
    assert sum(case.source_lang == "en" for case in cases) >= 60
    vocabulary = {lang: {word for text in coverage_texts(lang) for word in fold(text)} for lang in PHRASE_LANGUAGES}
    named = [coverage.gap(case.source, case.source_lang) for case in cases]
    assert [
        case.source
        for case, gap in zip(cases, named, strict=True)
        if not gap or vocabulary[case.source_lang].intersection(fold(gap))
    ] == []


def test_known_words_in_a_new_sentence_are_refused(coverage: Coverage) -> None:
    cases = [case for case in near_domain_cases() if case.group == "recombined"]
    assert {case.source_lang for case in cases} == set(PHRASE_LANGUAGES)
    assert [case.source for case in cases if coverage.gap(case.source, case.source_lang) is None] == []


class FakeModel:
    """Answers what it is told to; the probability is the last word of the source, in percent."""

    def __init__(self, text: str) -> None:
        self.text = text

    def answer(self, case: Case) -> Answer:
        return Answer(self.text, int(case.source.split()[-1]) / 100)


def test_a_case_is_put_to_the_model_only_when_its_source_is_covered() -> None:
    domain = Coverage.from_metadata(dict(metadata_of({"en": {"say 90": frozenset({"fr"})}}, min_probability=0.5)))
    assert domain is not None
    cases = [
        Case("g", "en", "fr", "say 90", "dire 90"),
        Case("g", "en", "fr", "sing 90"),
        Case("g", "en", "th", "say 90"),
    ]
    outcomes = judge(cases, domain, FakeModel("dire 90"))
    assert [outcome.answer for outcome in outcomes] == [Answer("dire 90", 0.9), None, None]


def outcome(probability: float | None, *, right: bool = True, group: str = "held out", lang: str = "en") -> Outcome:
    answer = None if probability is None else Answer("oui" if right else "non", probability)
    return Outcome(Case(group, lang, "fr", "yes", "oui"), answer)


def test_outcomes_are_counted_by_group_and_language() -> None:
    found = [outcome(None), outcome(0.4), outcome(0.3, right=False), outcome(0.5), outcome(0.9, right=False, lang="de")]
    table = counts(found, minimum=0.5)
    assert table["held out"]["de"] == Counts(texts=1, shown_wrong=1)
    assert table["held out"]["en"] == Counts(4, not_covered=1, withheld_right=1, withheld_wrong=1, shown_right=1)
    assert table["held out"]["en"].refused_percent == 75
    assert table["held out"]["en"].falsely_refused_percent == 50
    assert table["held out"]["all"].texts == 5


def test_the_sweep_weighs_right_answers_against_wrong_ones() -> None:
    found = [outcome(0.95), outcome(0.55), outcome(0.35, right=False), outcome(0.85, right=False), outcome(None)]
    rows = {row["min_probability"]: row for row in sweep(found)}
    assert rows[0.5] == {"min_probability": 0.5, "right_withheld_percent": 0, "wrong_withheld_percent": 50}
    assert rows[0.9] == {"min_probability": 0.9, "right_withheld_percent": 50, "wrong_withheld_percent": 100}


def test_every_domain_case_is_covered_and_of_a_claimed_direction(coverage: Coverage) -> None:
    cases = list(domain_cases())
    assert {case.group for case in cases} == {"held out", "trained"}
    assert {case.source_lang for case in cases} == {language.tag for language in LANGUAGES}
    assert [case for case in cases if coverage.gap(case.source, case.source_lang, target_lang=case.target_lang)] == []


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """The committed figures."""
    return dict(json.loads(RESULT.read_text(encoding="utf-8")))


def test_the_committed_figures_are_of_the_shipped_file(report: dict[str, Any]) -> None:
    assert report["sha256"] == hashlib.sha256(SHIPPED.read_bytes()).hexdigest()


def test_the_shipped_file_records_what_the_phrasebook_says(metadata: dict[str, int | float | str]) -> None:
    shipped = read_header(SHIPPED).metadata
    recorded = {key: value for key, value in shipped.items() if key.startswith(PREFIX)}
    least = f"{PREFIX}min_probability"
    assert recorded.pop(least) == pytest.approx(metadata[least], rel=1e-6)  # f32 in the file
    assert recorded == {key: value for key, value in metadata.items() if key != least}


@pytest.mark.parametrize("group", ["ordinary", "unknown word"])
def test_no_text_beside_the_domain_was_answered(report: dict[str, Any], group: str) -> None:
    assert min(row["refused_percent"] for row in report["groups"][group].values()) >= 100 - MAX_PERCENT


@pytest.mark.parametrize("group", ["held out", "trained"])
def test_hardly_a_right_answer_was_withheld(report: dict[str, Any], group: str) -> None:
    rows = report["groups"][group]
    assert rows["all"]["falsely_refused_percent"] <= MAX_PERCENT
    assert max(rows[lang]["falsely_refused_percent"] for lang in PHRASE_LANGUAGES) <= MAX_PERCENT


def test_the_report_is_readable(report: dict[str, Any]) -> None:
    lines = render(report).splitlines()
    assert lines[0].split()[:3] == ["group", "lang", "texts"]
    assert any(line.startswith("unknown word") for line in lines)
