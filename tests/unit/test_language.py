"""Languages and what people write for them."""

from __future__ import annotations

import subprocess
import sys
import unicodedata

import pytest

from hymt_local.errors import LanguageError
from hymt_local.language import LANGUAGES, Language, get_language, is_chinese, match_language

TAGS = [language.tag for language in LANGUAGES]


def test_the_table_is_the_model_cards() -> None:
    expected = (
        "zh en fr pt es ja tr ru ar ko th it de vi ms id tl hi zh-Hant pl cs nl km my fa gu ur te mr he bn ta uk bo kk"
        " mn ug yue"
    )
    assert expected.split() == TAGS


def test_every_name_of_a_language_is_its_own() -> None:
    for field in ("english", "chinese", "native"):
        names = [getattr(language, field) for language in LANGUAGES if (language.tag, field) != ("zh-Hant", "native")]
        assert len(set(names)) == len(names), field


@pytest.mark.parametrize("language", LANGUAGES, ids=TAGS)
def test_every_language_is_found_by_tag_and_by_each_name(language: Language) -> None:

    for text in (language.tag, language.english, language.chinese, language.native):
        for written in (text, text.upper(), text.lower(), f" {text} ", unicodedata.normalize("NFD", text)):
            assert match_language(written) == language.tag, written


@pytest.mark.parametrize(
    "language", [language for language in LANGUAGES if language.script != "Latn"], ids=lambda each: each.tag
)
def test_native_names_are_written_in_the_languages_own_script(language: Language) -> None:

    unicode_names = {
        "Hans": "CJK",
        "Hant": "CJK",
        "Jpan": "CJK",
        "Kore": "HANGUL",
        "Cyrl": "CYRILLIC",
        "Arab": "ARABIC",
        "Thai": "THAI",
        "Deva": "DEVANAGARI",
        "Khmr": "KHMER",
        "Mymr": "MYANMAR",
        "Gujr": "GUJARATI",
        "Telu": "TELUGU",
        "Hebr": "HEBREW",
        "Beng": "BENGALI",
        "Taml": "TAMIL",
        "Tibt": "TIBETAN",
    }
    letters = [character for character in language.native if character.isalpha()]
    assert {unicodedata.name(letter).split()[0] for letter in letters} == {unicode_names[language.script]}


def test_right_to_left_languages_are_those_of_the_arabic_and_hebrew_scripts() -> None:
    assert {language.tag for language in LANGUAGES if language.rtl} == {"ar", "fa", "ur", "he", "ug"}


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        *[
            ("zh-CN", "zh"),
            ("zh-Hans", "zh"),
            ("zh-SG", "zh"),
            ("zh_CN.UTF-8", "zh"),
            ("zh-Hans-HK", "zh"),
            ("cmn", "zh"),
        ],
        *[("zh-TW", "zh-Hant"), ("zh_TW.Big5", "zh-Hant"), ("zh-HK", "zh-Hant"), ("zh-MO", "zh-Hant")],
        *[("zh-hant", "zh-Hant"), ("zh-Hant-TW", "zh-Hant"), ("cmn-Hant", "zh-Hant"), ("ZH-TW", "zh-Hant")],
        *[("yue", "yue"), ("yue-HK", "yue"), ("zh-yue", "yue"), ("yue-Hans", "yue")],
        *[("iw", "he"), ("iw_IL", "he"), ("fil", "tl"), ("fil-PH", "tl"), ("in", "id"), ("in-ID", "id")],
        *[("pt-BR", "pt"), ("pt_PT", "pt"), ("en_US.UTF-8", "en"), ("es_ES@euro", "es")],
        *[("deu", "de"), ("fas", "fa"), ("pes", "fa"), ("arb", "ar"), ("zsm", "ms"), ("eng-GB", "en"), ("zho", "zh")],
        *[("kk-Cyrl-KZ", "kk"), ("mn-MN", "mn"), ("ru-Cyrl", "ru")],
        *[
            ("Mandarin", "zh"),
            ("Simplified Chinese", "zh"),
            ("简体中文", "zh"),
            ("汉语", "zh"),
            ("繁體中文", "zh-Hant"),
        ],
        *[("Farsi", "fa"), ("Tagalog", "tl"), ("Uighur", "ug"), ("Bangla", "bn"), ("Myanmar", "my"), ("廣東話", "yue")],
        *[("法文", "fr"), ("德語", "de"), ("韓語", "ko"), ("葡萄牙語", "pt"), ("烏克蘭語", "uk"), ("阿拉伯語", "ar")],
        *[("francais", "fr"), ("FRANÇAIS", "fr"), ("turkce", "tr"), ("tieng viet", "vi"), ("cestina", "cs")],
    ],
)
def test_tags_locales_and_names_are_understood(text: str, tag: str) -> None:
    assert match_language(text) == tag


@pytest.mark.parametrize(
    "text", ["", " ", "C", "POSIX", "auto", "nan", "wuu", "zh-min-nan", "sv", "tlh", "fr-", "-", "e n", "\x1b[0m", "語"]
)
def test_what_names_no_language_of_the_table_is_refused(text: str) -> None:
    with pytest.raises(LanguageError) as caught:
        match_language(text)
    assert repr(text) in caught.value.message
    assert "hymt languages" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "suggested"), [("Frnech", "French (fr)"), ("chineese", "Chinese (zh)"), ("日本", "Japanese (ja)")]
)
def test_the_hint_names_the_nearest_language(text: str, suggested: str) -> None:
    with pytest.raises(LanguageError) as caught:
        match_language(text)
    assert suggested in caught.value.hint


def test_a_refusal_does_not_repeat_a_whole_novel() -> None:
    with pytest.raises(LanguageError) as caught:
        match_language("novel " * 10_000)
    assert len(caught.value.message) < 100


def test_a_language_outside_the_models_own_is_refused_by_name() -> None:
    assert match_language("German", supported=["en", "de"]) == "de"
    with pytest.raises(LanguageError, match=r"does not speak French \(fr\)"):
        match_language("fr", supported=["en", "de"])


def test_suggestions_stay_within_the_models_own_languages() -> None:
    with pytest.raises(LanguageError) as caught:
        match_language("Frnech", supported=["en", "de"])
    assert "French" not in caught.value.hint


def test_get_language_takes_exact_tags_only() -> None:
    assert get_language("zh-Hant").chinese == "繁体中文"
    with pytest.raises(LanguageError):
        get_language("zh-TW")


def test_chinese_is_what_the_model_cards_prompt_in_chinese() -> None:
    assert [tag for tag in TAGS if is_chinese(tag)] == ["zh", "zh-Hant", "yue"]


def test_known_names_and_tags_never_load_langcodes() -> None:
    program = (
        "import sys; from hymt_local.language import match_language as m; m('zh_TW.UTF-8'); m('French'); m('iw-IL');"
        "assert 'langcodes' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
