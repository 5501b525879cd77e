"""Laws of the closed domain: membership is exact, folding is stable, and no text whatever raises."""

from __future__ import annotations

import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from hymt_convert.demo.coverage import fold, metadata_of
from hymt_local.coverage import Coverage, split_words

WORDS = ("red", "green", "blue", "Ärger", "s'il", "10", "3.50", "don’t", "車", "站", "コーヒー", "สวัสดี", "한국어")
TARGETS = (frozenset({"de"}), frozenset({"de", "fr"}))

texts = st.builds(
    lambda words, mark: " ".join(words) + mark,
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=5),
    st.sampled_from(("", ".", "?", "！", "？")),
)
domains = st.dictionaries(texts, st.sampled_from(TARGETS), min_size=1, max_size=12)


def coverage_of(domain: dict[str, frozenset[str]]) -> Coverage:
    found = Coverage.from_metadata(dict(metadata_of({"en": domain}, min_probability=0.5)))
    assert found is not None
    return found


def bare(text: str) -> tuple[str, ...]:
    words = fold(text)
    return words[:-1] if words[-1] in ("?", ".") else words


@given(domains, texts)
def test_a_text_is_covered_exactly_when_the_domain_has_it(domain: dict[str, frozenset[str]], text: str) -> None:
    accepted = {form for known in domain for form in (bare(known), (*bare(known), "?" if "?" in fold(known) else "."))}
    assert (coverage_of(domain).gap(text, "en") is None) == (fold(text) in accepted)


@given(domains)
def test_targets_are_those_of_the_texts_with_the_same_words(domain: dict[str, frozenset[str]]) -> None:
    coverage = coverage_of(domain)
    for text in domain:
        same = [targets for known, targets in domain.items() if fold(known) == fold(text)]
        assert (coverage.gap(text, "en", target_lang="de") is None) == any("de" in targets for targets in same)
        if not any("fr" in targets for known, targets in domain.items() if bare(known) == bare(text)):
            assert coverage.gap(text, "en", target_lang="fr") == unicodedata.normalize("NFC", text)


@given(domains, st.text(st.characters(codec=None), max_size=700))
def test_any_text_has_an_answer_that_is_part_of_it(domain: dict[str, frozenset[str]], text: str) -> None:
    gap = coverage_of(domain).gap(text, "en", target_lang="fr")
    assert gap is None or gap in unicodedata.normalize("NFC", text)


@given(st.text())
@example("\u0307")
def test_words_are_disjoint_ranges_in_order(text: str) -> None:
    end = 0
    for word in split_words(text):
        assert word.key
        assert end <= word.start < word.end <= len(text)
        end = word.end


@given(texts)
def test_letter_case_does_not_count(text: str) -> None:
    assert fold(text.lower()) == fold(text.upper()) == fold(text)


def test_the_strategy_meets_both_answers() -> None:
    coverage = coverage_of({"red green": TARGETS[0]})
    assert coverage.gap("red green", "en") is None
    assert coverage.gap("green red", "en") == "green red"
