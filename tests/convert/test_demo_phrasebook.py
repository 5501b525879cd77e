"""The phrasebook's tables and the generator: every item sound in every language, the split honest and repeatable."""

from __future__ import annotations

import random
import re
import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_convert.demo.phrasebook import (
    PHRASE_LANGUAGES,
    Item,
    Phrasebook,
    ambiguities,
    coverage_texts,
    load_items,
    noisy,
    reading,
)

WRONG_FORMS = {
    "fr": r"\b(le|la|de|je|ne|que|à le|de le|de les|à les) (?=[aeiouhéèê](?!uit|onz))|\bà les?\b|\bde les?\b",
    "es": r"\b(de el|a el)\b(?! )|\b(de|a) el [a-z]",
    "pt": r"\b(em|de|a|por) (o|a|os|as) [a-z]|\bem um\b(?!)",
    "de": r"\b(in dem|zu dem|zu der|von dem) [A-ZÄÖÜ]",
}
"""Elisions and contractions that a slot filler can break: a lint, tuned to the words that occur."""


@pytest.fixture(scope="module")
def book() -> Phrasebook:
    return load_items()


@pytest.fixture(scope="module")
def sentences(book: Phrasebook) -> list[Item]:
    return [item for item in (*book.train, *book.held_out) if item.kind != "cldr"]


def test_every_sentence_has_one_text_in_each_of_the_ten_languages(sentences: list[Item]) -> None:
    assert all(tuple(item.texts) == PHRASE_LANGUAGES for item in sentences)
    assert sum(item.kind == "phrase" for item in sentences) >= 240
    assert len({item.concept for item in sentences if item.kind == "template"}) >= 40


def test_no_two_sentences_read_the_same_in_any_language(sentences: list[Item]) -> None:
    assert ambiguities(sentences) == []


def test_a_word_that_reads_like_another_is_blocked_as_a_source(book: Phrasebook) -> None:
    items = [*book.train, *book.held_out]
    for lang, _, ids in ambiguities(items):
        kept = [item.id for item in items if item.id in ids and lang not in item.blocked_sources]
        assert len(kept) <= 1, (lang, ids)


def test_texts_are_clean(sentences: list[Item]) -> None:
    for item in sentences:
        for lang, text in item.texts.items():
            assert text == unicodedata.normalize("NFC", text).strip(), (item.id, lang)
            assert not re.search(r"[{}\t\n’“”]|  ", text), (item.id, lang, text)


@pytest.mark.parametrize("lang", sorted(WRONG_FORMS))
def test_no_filler_breaks_an_elision_or_contraction(sentences: list[Item], lang: str) -> None:
    pattern = re.compile(WRONG_FORMS[lang])
    wrong = [item.texts[lang] for item in sentences if pattern.search(item.texts[lang])]
    assert wrong == []


def test_held_out_combinations_are_new_but_made_of_trained_parts(book: Phrasebook) -> None:
    trained = {item.id for item in book.train}
    assert trained.isdisjoint(item.id for item in book.held_out)
    templates = Counter(item.concept for item in book.train if item.kind == "template")
    fillers = {part for item in book.train if item.kind == "template" for part in item.id.partition(":")[2].split("+")}
    held = [item for item in book.held_out if item.kind == "template"]
    assert len(held) >= 200
    sizes = Counter(item.concept for item in (*book.train, *book.held_out) if item.kind == "template")
    assert all(count <= 0.15 * sizes[concept] for concept, count in Counter(item.concept for item in held).items())
    for item in held:
        assert templates[item.concept] >= 5
        assert set(item.id.partition(":")[2].split("+")) <= fillers


def test_loading_twice_gives_the_same_split(book: Phrasebook) -> None:
    assert load_items() == book


@pytest.mark.parametrize("lang", PHRASE_LANGUAGES)
def test_coverage_holds_every_item_of_the_language_but_unseen_dates(book: Phrasebook, lang: str) -> None:
    covered = set(coverage_texts(lang))
    sentences = [item for item in book.held_out if item.kind == "template"]
    assert {item.texts[lang] for item in (*book.train, *sentences) if lang in item.texts} <= covered
    unseen = {item.texts[lang] for item in book.held_out if item.concept == "date" and lang in item.texts}
    assert unseen
    assert unseen.isdisjoint(covered)


@given(seed=st.integers(0, 2**32), data=st.data())
def test_noise_changes_neither_words_nor_meaning(book: Phrasebook, seed: int, data: st.DataObject) -> None:
    item = data.draw(st.sampled_from(book.train))
    lang = data.draw(st.sampled_from(sorted(item.texts)))
    text = noisy(item.texts[lang], lang, random.Random(seed))
    assert text
    assert reading(text.replace("’", "'")).replace(" ", "") == reading(item.texts[lang]).replace(" ", "")


def test_noise_really_varies_case_and_punctuation(book: Phrasebook) -> None:
    text = "Where is the station?"
    seen = {noisy(text, "en", random.Random(seed)) for seed in range(50)}
    assert {"where is the station", "Where is the station"} <= seen
