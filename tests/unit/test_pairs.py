"""Language pairs: how they are written, and which model a text gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local import pairs
from hymt_local.catalog import load_catalog
from hymt_local.errors import LanguageError
from hymt_local.language import LANGUAGES
from hymt_local.pairs import ANY, LanguagePair, check_spoken, model_of_pair, parse_pair

TAGS = [language.tag for language in LANGUAGES]


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("en-zh", "en-zh"),
        ("EN-zh-Hant", "en-zh-Hant"),
        ("zh-Hant-en", "zh-Hant-en"),
        ("zh-Hant-zh", "zh-Hant-zh"),
        ("english-german", "en-de"),
        ("en>fr", "en-fr"),
        ("*-zh", "*-zh"),
        ("zh-TW-ja", "zh-Hant-ja"),
    ],
)
def test_pairs_are_read_with_tags_and_names(text: str, pair: str) -> None:
    assert str(parse_pair(text)) == pair


@given(source=st.sampled_from([ANY, *TAGS]), target=st.sampled_from(TAGS))
def test_what_is_written_is_read_again(source: str, target: str) -> None:
    if source != target:
        assert parse_pair(str(LanguagePair(source, target))) == LanguagePair(source, target)


@pytest.mark.parametrize("text", ["", "en", "-", "en-", "xx-yy", "en-*", "en-en", "zh-TW-zh-Hant"])
def test_what_is_no_pair_is_an_error_with_an_example(text: str) -> None:
    with pytest.raises(LanguageError) as caught:
        parse_pair(text)
    assert "en-zh" in caught.value.hint


def test_a_model_that_does_not_speak_a_language_is_refused() -> None:
    spec = load_catalog().get("Hunyuan-MT-7B")
    check_spoken(LanguagePair(ANY, "fr"), spec)
    with pytest.raises(LanguageError, match="does not speak tlh"):
        check_spoken(LanguagePair("en", "tlh"), spec)


MODELS = {"en-zh": "A", "*-zh": "B", "fr-de": "C"}


@pytest.mark.parametrize(
    ("source", "target", "model"),
    [("en", "zh", "A"), ("fr", "zh", "B"), ("fr", "de", "C"), ("en", "de", None), ("en", "fr", None)],
)
def test_the_pair_goes_before_any_source(source: str, target: str, model: str | None) -> None:
    assert model_of_pair(MODELS, source_lang=source, target_lang=target, text="x") == model


def test_without_a_source_it_is_detected() -> None:
    text = "Where is the railway station, please?"
    assert model_of_pair(MODELS, source_lang=None, target_lang="zh", text=text) == "A"
    assert model_of_pair(MODELS, source_lang=None, target_lang="zh", text="12345") == "B"
    assert model_of_pair(MODELS, source_lang=None, target_lang="de", text=text) is None


def test_nothing_is_detected_when_it_does_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "detect_language", None)
    assert model_of_pair(MODELS, source_lang=None, target_lang="ja", text="hello") is None
    assert model_of_pair({"*-zh": "B"}, source_lang=None, target_lang="zh", text="hello") == "B"
