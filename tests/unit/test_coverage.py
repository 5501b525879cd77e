"""What the closed domain of a demo model accepts, what it refuses, and which part it names."""

from __future__ import annotations

import unicodedata

import pytest

from hymt_convert.demo.coverage import metadata_of
from hymt_local.coverage import MAX_CHARACTERS, PREFIX, Coverage
from hymt_local.errors import ModelFileError, UnsupportedModelError

SENTENCES = frozenset({"de", "en", "ja", "zh"})
EVERYTHING = frozenset({"de", "en", "ja", "th", "tr", "zh"})
DOMAINS = {
    "en": {
        "Where is the station?": SENTENCES,
        "Where is the airport?": SENTENCES,
        "The station is closed.": SENTENCES,
        "You're welcome.": SENTENCES,
        "Sorry, I am late.": SENTENCES,
        "It is 10:30.": SENTENCES,
        "Monday": EVERYTHING,
    },
    "de": {"Wie heißen Sie?": SENTENCES, "Ist es offen?": SENTENCES, "Montag, 1. Mai": EVERYTHING},
    "ja": {"駅はどこですか？": SENTENCES, "コーヒーをください。": SENTENCES},
    "th": {"วันจันทร์": SENTENCES},
    "tr": {"Salı": SENTENCES, "İtalya": SENTENCES},
    "zh": {"车站在哪里？": SENTENCES, "我在看电影。": SENTENCES, "我需要看医生。": SENTENCES},
}


@pytest.fixture(scope="module")
def metadata() -> dict[str, object]:
    return dict(metadata_of(DOMAINS, min_probability=0.25))


@pytest.fixture(scope="module")
def coverage(metadata: dict[str, object]) -> Coverage:
    found = Coverage.from_metadata(metadata)
    assert found is not None
    return found


def test_every_text_of_the_domain_is_covered(coverage: Coverage) -> None:
    assert [text for lang, texts in DOMAINS.items() for text in texts if coverage.gap(text, lang) is not None] == []


@pytest.mark.parametrize(
    ("lang", "text"),
    [
        ("en", "where is the station"),
        ("en", "  Where   is\tthe station ?"),
        ("en", "where is the station?!"),
        ("en", "\ufeff\u200eWhere is the station?\u200f"),
        ("en", "you’re welcome"),
        ("en", "You're welcome!"),
        ("en", "sorry I am late"),
        ("en", "monday."),
        ("en", "it is 10:30"),
        ("de", "wie heissen sie"),
        ("de", "montag 1. mai"),
        ("de", unicodedata.normalize("NFD", "Wie heißen Sie?")),
        ("tr", "sali"),
        ("tr", "italya"),
        ("tr", "i̇talya"),
        ("ja", "駅はどこですか"),
        ("th", "วัน จันทร์"),
    ],
)
def test_what_a_hurried_user_types_is_covered(coverage: Coverage, lang: str, text: str) -> None:
    assert coverage.gap(text, lang) is None


@pytest.mark.parametrize(
    ("lang", "text", "part"),
    [
        ("en", "Where is the cinema?", "cinema"),
        ("en", "Please, where is the station?", "Please"),
        ("ja", "トラクターはどこですか？", "トラクター"),
        ("zh", "灯塔在哪里？", "灯塔"),
        ("en", "It is $10:30.", "$"),
        ("en", "It is -10:30.", "-"),
        ("en", "It is 10.30.", "10.30"),
        ("de", "Wie heißen Sie\u0301?", "Sié"),
        ("en", "Where is the sta\u200btion?", "sta\u200btion"),
        ("en", "“Monday”", "“"),
        ("en", "'Monday'", "'"),
    ],
)
def test_an_unknown_word_is_named_as_it_was_written(coverage: Coverage, lang: str, text: str, part: str) -> None:
    assert coverage.gap(text, lang) == part


@pytest.mark.parametrize(
    ("lang", "text", "part"),
    [
        ("en", "The airport is closed.", "The airport"),
        ("en", "station where is the", "station where"),
        ("en", "Where is the station closed?", "station closed"),
        ("en", "Monday Monday", "Monday Monday"),
        ("en", "Monday, AIRPORT", "Monday, AIRPORT"),
        ("en", "Where is the", "is the"),
        ("en", "late", "late"),
        ("zh", "我在车站。", "在车"),
    ],
)
def test_known_words_in_an_unknown_order_are_refused(coverage: Coverage, lang: str, text: str, part: str) -> None:
    assert coverage.gap(text, lang) == part


@pytest.mark.parametrize(
    ("lang", "text"),
    [
        ("en", "Where is the station."),
        ("en", "The station is closed?"),
        ("de", "Ist es offen."),
        ("de", "ist es offen!"),
    ],
)
def test_a_question_and_a_statement_of_the_same_words_differ(coverage: Coverage, lang: str, text: str) -> None:
    assert coverage.gap(text, lang) == text.split()[-1]


@pytest.mark.parametrize(
    ("lang", "text"),
    [
        ("en", "WHERE IS THE STATION?"),
        ("en", "Where Is The Station?"),
        ("en", "where is the Station?"),
        ("en", "MONDAY"),
        ("de", "Montag, 1. MAI"),
        ("de", "wie Heißen sie"),
    ],
)
def test_capitals_where_there_are_none_are_read_as_lower_case(coverage: Coverage, lang: str, text: str) -> None:
    assert coverage.gap(text, lang) is None
    assert coverage.usual_form(text, lang) == text.lower()


@pytest.mark.parametrize(
    ("lang", "text"),
    [
        ("en", "Where is the station?"),
        ("en", "where is the station"),
        ("en", "Monday"),
        ("de", "Montag, 1. Mai"),
        ("fr", "TOUT AUTRE CHOSE"),
    ],
)
def test_a_text_as_it_was_trained_keeps_its_form(coverage: Coverage, lang: str, text: str) -> None:
    assert coverage.usual_form(text, lang) == text


@pytest.mark.parametrize("text", ["", "   ", "...", "?", "\u200b", "«»", "\u200e"])
def test_a_text_without_words_is_not_covered(coverage: Coverage, text: str) -> None:
    assert coverage.gap(text, "en") == text.strip(" \u200e")


def test_a_language_without_texts_covers_nothing(coverage: Coverage) -> None:
    assert coverage.gap(" Monday ", "fr") == "Monday"


def test_the_languages_with_texts_are_listed(coverage: Coverage) -> None:
    assert coverage.languages == tuple(DOMAINS)


def test_a_word_may_go_where_a_sentence_may_not(coverage: Coverage) -> None:
    assert coverage.gap("Monday", "en", target_lang="th") is None
    assert coverage.gap("where is the station", "en", target_lang="zh") is None
    assert coverage.gap(" where is the station", "en", target_lang="th") == "where is the station"


def test_words_beyond_the_longest_text_are_not_overlooked(coverage: Coverage) -> None:
    assert coverage.gap("Monday" + " " * MAX_CHARACTERS + "nonsense", "en") is not None
    assert coverage.gap("." * MAX_CHARACTERS + "Monday nonsense", "en") is not None


def test_a_model_without_a_record_has_no_limits() -> None:
    assert Coverage.from_metadata({"general.architecture": "hunyuan-dense"}) is None


def test_the_least_probability_is_read(coverage: Coverage) -> None:
    assert coverage.min_probability == 0.25


def test_a_newer_record_is_refused(metadata: dict[str, object]) -> None:
    with pytest.raises(UnsupportedModelError, match="format 2"):
        Coverage.from_metadata({**metadata, f"{PREFIX}version": 2})


@pytest.mark.parametrize(
    "damage",
    [
        {"texts.en": "not base64!"},
        {"texts.en": "AAAA"},
        {"texts.en": 7},
        {"texts.en": "eJwDAAAAAAE="},  # an empty automaton
        {"min_probability": "high"},
        {"languages": "en de xx"},
    ],
)
def test_a_damaged_record_is_refused(metadata: dict[str, object], damage: dict[str, object]) -> None:
    damaged = metadata | {f"{PREFIX}{key}": value for key, value in damage.items()}
    with pytest.raises(ModelFileError, match="damaged"):
        Coverage.from_metadata(damaged)


@pytest.mark.parametrize("text", ["?!", "word " * 200])
def test_a_text_that_the_reader_could_not_find_is_not_recorded(text: str) -> None:
    with pytest.raises(ValueError, match="too long or has no words"):
        metadata_of({"en": {text: SENTENCES}}, min_probability=0.5)
