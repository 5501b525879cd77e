"""Laws of the HTML format, on the corpus, on own samples and on made pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymt_local.documents.base import MergeOptions, Unit
from hymt_local.documents.html import HtmlFormat
from hymt_local.documents.html_scan import TokenType, scan
from hymt_local.documents.text_encoding import decode
from tests.markup import LANGUAGES, PLAIN, foreign, html_skeleton, literals, pseudo, targets_of

GOLDEN = Path(__file__).parents[1] / "golden" / "documents" / "html"
FORMAT = HtmlFormat()
FRAGMENTS = [
    *("<p>", "</p>", "<div>", "</div>", "<b>", "</b>", "<i>", "</i>", "<br>", "<img src=a alt='A cat'>", "<img alt=x>"),
    *(
        '<a href="x" title="T">',
        "</a>",
        "<span translate=no>",
        "</span>",
        "<code>",
        "</code>",
        "<pre>",
        "</pre>",
        "<li>",
    ),
    *("<td>", "<script>", "</script>", "<style>", "</style>", "<title>", "</title>", "<textarea>", "<svg>", "</svg>"),
    *(
        "<!--",
        "-->",
        "<!doctype html>",
        "<html lang=en>",
        "<?php",
        "?>",
        "<?",
        "{{",
        "}}",
        "{%",
        "%}",
        "<",
        ">",
        "</",
        "&",
    ),
    *(
        "&amp;",
        "&lt;",
        "&nbsp;",
        "&eacute",
        ";",
        '"',
        "'",
        "=",
        "/",
        "word",
        "two words",
        "a",
        "é",
        "真",
        "\n",
        "\r\n",
        " ",
    ),
    *(
        "<b",
        "<p class=",
        '<p title="',
        "<!",
        "<![CDATA[",
        "]]>",
        "<o:p>",
        "</o:p>",
        "<x-y>",
        "<meta name=description content=",
    ),
]
PAGES = st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join)
BAD_TARGETS = st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=6).map("".join)


@pytest.fixture(scope="module")
def pages(shared_data: Path) -> list[bytes]:
    paths = [*sorted((shared_data / "udhr").glob("*.html")), *sorted(GOLDEN.iterdir())]
    assert len(paths) > 20
    return [path.read_bytes() for path in paths]


def tags(text: str) -> list[str]:
    """Return all that is not text, but for the values of attributes."""
    return [
        f"{token.name} {[each.name for each in token.attributes]}"
        if token.type in (TokenType.START, TokenType.END)
        else token.span.of(text)
        for token in scan(text)
        if token.type is not TokenType.TEXT
    ]


def test_d_1_every_page_comes_back(pages: list[bytes]) -> None:
    for data in pages:
        document = FORMAT.read(data, LANGUAGES)
        assert document.merge({}, PLAIN).data == data
        assert document.merge({unit.id: unit.source.text for unit in document.units}, PLAIN).data == data


def test_d_2_pseudo_keeps_the_tags_and_changes_every_unit(pages: list[bytes]) -> None:
    for data in pages:
        document = FORMAT.read(data, LANGUAGES)
        targets = {unit.id: pseudo(unit) for unit in document.units}
        merged = document.merge(targets, PLAIN)
        assert merged.rejected == {}
        again = FORMAT.read(merged.data, LANGUAGES)
        before = [_letters(literals(unit.source)) for unit in document.units]
        changed = [_letters(literals(unit.source, foreign)) for unit in document.units]
        assert [_letters(literals(unit.source)) for unit in again.units] == changed
        assert all(old != new for old, new in zip(before, changed, strict=True))


def _letters(text: str) -> str:
    """Return the letters of a text: which references are protected in it depends on the rest."""
    return "".join(filter(str.isalpha, text))


def test_d_2_the_standard_library_sees_the_same_tags(pages: list[bytes]) -> None:
    for data in pages:
        document = FORMAT.read(data, LANGUAGES)
        merged = document.merge({unit.id: pseudo(unit) for unit in document.units}, PLAIN)
        before, after = _text(data), _text(merged.data)
        assert html_skeleton(after) == html_skeleton(before)
        assert tags(after) == tags(before)


def test_d_3_every_text_of_the_corpus_is_in_a_unit(shared_data: Path) -> None:
    """What is left of a page without its units and tags has no letter."""
    for path in sorted((shared_data / "udhr").glob("*.html")):
        document = FORMAT.read(path.read_bytes(), LANGUAGES)
        emptied = document.merge({unit.id: "0" for unit in document.units}, PLAIN)
        assert emptied.rejected == {}
        text = emptied.data.decode()
        rest = [token.span.of(text) for token in scan(text) if token.type is TokenType.TEXT]
        assert not [part for part in rest if any(map(str.isalpha, part))], path.name


@given(text=st.one_of(PAGES, st.text(max_size=300)))
@settings(max_examples=200)
def test_the_tokens_of_any_text_are_the_text(text: str) -> None:
    assert "".join(token.span.of(text) for token in scan(text)) == text


@given(text=PAGES)
@settings(max_examples=150)
def test_d_1_made_pages_come_back(text: str) -> None:
    data = text.encode()
    document = FORMAT.read(data, LANGUAGES)
    assert document.merge({unit.id: unit.source.text for unit in document.units}, PLAIN).data == data
    assert len({unit.id for unit in document.units}) == len(document.units)
    assert all(unit.source.text == unit.source.text.strip() != "" for unit in document.units)
    assert [unit.source.text for unit in document.units if document.fault(unit, unit.source.text)] == []


@given(text=PAGES)
@settings(max_examples=150)
def test_d_2_pseudo_keeps_the_tags_of_made_pages(text: str) -> None:
    document = FORMAT.read(text.encode(), LANGUAGES)
    targets = {unit.id: pseudo(unit) for unit in document.units}
    merged = document.merge(targets, PLAIN)
    assert merged.rejected == {}
    assert tags(merged.data.decode()) == tags(text)


@given(text=PAGES, data=st.data())
@settings(max_examples=200)
def test_v_1_no_target_changes_the_tags(text: str, data: st.DataObject) -> None:
    document = FORMAT.read(text.encode(), LANGUAGES)

    def mangled(unit: Unit) -> str:
        kind = data.draw(st.sampled_from(["bad", "preamble", "twice", "around"]))
        bad = data.draw(BAD_TARGETS)
        source = unit.source.text
        return {"bad": bad, "preamble": f"{bad}\n\n{source}", "twice": source * 2, "around": f"{bad}{source}{bad}"}[
            kind
        ]

    merged = document.merge(targets_of(document, mangled), PLAIN)
    assert sorted(tags(merged.data.decode())) == sorted(tags(text))


@given(text=PAGES, data=st.data())
def test_v_1_a_target_without_a_tag_is_refused(text: str, data: st.DataObject) -> None:
    document = FORMAT.read(text.encode(), LANGUAGES)
    for unit in document.units:
        if unit.source.protected:
            lost = data.draw(st.sampled_from(unit.source.protected)).span
            target = unit.source.text[: lost.start] + unit.source.text[lost.end :]
            assert document.fault(unit, target)
            assert unit.id in document.merge({unit.id: target}, PLAIN).rejected


@given(text=PAGES)
def test_d_8_both_languages_fit_wherever_the_source_stood(text: str) -> None:
    document = FORMAT.read(text.encode(), LANGUAGES)
    options = MergeOptions(LANGUAGES, is_bilingual=True, sets_metadata=False)
    targets = {unit.id: f"⟦{pseudo(unit)}⟧" for unit in document.units}
    merged = document.merge(targets, options)
    assert merged.data.decode().count("⟦") == len(document.units) + text.count("⟦")
    assert document.merge({}, options).data == text.encode()


def _text(data: bytes) -> str:
    return decode(data, declared="windows-1252" if b"iso-8859-1" in data else None).text
