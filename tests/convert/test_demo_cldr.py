"""The committed CLDR data of the demo model: complete, in the right script, and nobody else's words."""

import collections
import re
import unicodedata
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "convert" / "demo" / "data" / "cldr.tsv"
ICU_VERSION = "72.1"

SCRIPTS = {
    **{
        lang: {"LATIN"} for lang in ["en", "fr", "pt", "es", "tr", "it", "de", "vi", "ms", "id", "tl", "pl", "cs", "nl"]
    },
    **{lang: {"CYRILLIC"} for lang in ["ru", "uk", "kk", "mn"]},
    **{lang: {"ARABIC"} for lang in ["ar", "fa", "ur", "ug"]},
    **{lang: {"CJK"} for lang in ["zh", "zh-Hant", "yue"]},
    **{lang: {"DEVANAGARI"} for lang in ["hi", "mr"]},
    "ja": {"CJK", "KATAKANA", "KATAKANA-HIRAGANA"},
    "ko": {"HANGUL"},
    "th": {"THAI"},
    "km": {"KHMER"},
    "my": {"MYANMAR"},
    "gu": {"GUJARATI"},
    "te": {"TELUGU"},
    "he": {"HEBREW"},
    "bn": {"BENGALI"},
    "ta": {"TAMIL"},
    "bo": {"TIBETAN"},
}
SIZES = {"language": 38, "country": 60, "weekday": 7, "month": 12, "number": 30, "date": 200}
GAPS = {
    ("bo", "language"): 31,
    ("bo", "country"): 50,
    **{(lang, "number"): 30 for lang in ("bn", "bo", "gu", "mn", "mr", "te", "ug", "ur")},
    ("ar", "number"): 3,
    ("cs", "number"): 1,
    ("ta", "number"): 1,
    ("tl", "number"): 9,
}
SAME_AS_ENGLISH = {"April", "August", "September", "November", "six", "zero"}
ENGLISH_NAMES_COMMON = {"ms", "tl"}  # most countries in Malay, most languages too in Filipino


def read_rows() -> list[list[str]]:
    header, *lines = DATA.read_text(encoding="utf-8").splitlines()
    assert header == "id\tkind\tlang\ttext"
    return [line.split("\t") for line in lines]


ROWS = read_rows()


def letter_scripts(text: str) -> set[str]:
    letters = (char for char in text if unicodedata.category(char) in {"Lu", "Ll", "Lo", "Lt"})
    return {unicodedata.name(char).split()[0] for char in letters}


def same_as_english(kind: str) -> dict[str, set[str]]:
    english = {row[0]: row[3] for row in ROWS if row[2] == "en"}
    same = collections.defaultdict(set)
    for row_id, row_kind, lang, text in ROWS:
        if row_kind == kind and lang != "en" and english[row_id] == text:
            same[lang].add(text)
    return same


def test_every_language_has_everything_but_the_known_gaps() -> None:
    counts = collections.Counter((lang, kind) for _, kind, lang, _ in ROWS)
    missing = {(lang, kind): size - counts[lang, kind] for lang in SCRIPTS for kind, size in SIZES.items()}
    assert {key: gap for key, gap in missing.items() if gap} == GAPS
    assert {lang for lang, _ in counts} == set(SCRIPTS)


def test_ids_and_order() -> None:
    keys = [(row[1], row[0], row[2]) for row in ROWS]
    assert keys == sorted(set(keys))
    assert len({key[1:] for key in keys}) == len(ROWS)
    pattern = re.compile(
        r"language-[a-z]+(-Hant)?|country-[A-Z]{2}|weekday-[1-7]|month-\d\d|number-\d+|date-(long-)?\d{4}"
    )
    assert [row[0] for row in ROWS if not (pattern.fullmatch(row[0]) and row[0].startswith(row[1]))] == []


def test_texts_are_clean() -> None:
    for row_id, _, lang, text in ROWS:
        assert text == unicodedata.normalize("NFC", text) == " ".join(text.split()), (row_id, lang)
        controls = {char for char in text if unicodedata.category(char) in {"Cc", "Cf", "Zl", "Zp"}}
        assert controls <= {"\u200c"}, (row_id, lang)


def test_texts_are_in_their_languages_script() -> None:
    wrong = [row for row in ROWS if not letter_scripts(row[3]) <= SCRIPTS[row[2]]]
    assert wrong == []


@pytest.mark.parametrize("kind", ["weekday", "month", "number", "date"])
def test_words_are_not_english(kind: str) -> None:
    assert set().union(*same_as_english(kind).values()) <= SAME_AS_ENGLISH


@pytest.mark.parametrize("kind", ["language", "country"])
def test_names_are_rarely_english(kind: str) -> None:
    many = {lang for lang, names in same_as_english(kind).items() if len(names) > SIZES[kind] / 2}
    assert many <= ENGLISH_NAMES_COMMON


@pytest.mark.parametrize(
    ("row_id", "lang", "text"),
    [
        ("country-CN", "zh", "中国"),
        ("country-CN", "zh-Hant", "中國"),
        ("language-zh-Hant", "en", "Traditional Chinese"),
        ("weekday-1", "de", "Montag"),
        ("weekday-7", "pt", "domingo"),
        ("month-03", "ru", "март"),
        ("number-17", "fr", "dix-sept"),
        ("number-20", "de", "zwanzig"),
        ("date-0101", "fa", "۱ ژانویه"),
        ("date-0101", "th", "1 มกราคม"),
        ("date-long-0110", "es", "martes, 10 de enero"),
    ],
)
def test_samples(row_id: str, lang: str, text: str) -> None:
    assert [row[3] for row in ROWS if (row[0], row[2]) == (row_id, lang)] == [text]


@pytest.mark.icu
def test_the_script_regenerates_the_file() -> None:
    import icu

    from hymt_convert.demo import cldr

    assert icu.ICU_VERSION == ICU_VERSION, "another version of ICU has other words"

    assert cldr.render(cldr.all_rows()) == DATA.read_text(encoding="utf-8")
