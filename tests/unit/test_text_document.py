"""Plain text: what is one unit, and how its target is put back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.documents.base import Languages, MergeOptions
from hymt_local.documents.text import TextDocument, TextFormat, cells, wrap

LANGUAGES = Languages("en", "fr")
GOLDEN = Path(__file__).parents[1] / "golden" / "documents" / "text"


def read(text: str) -> TextDocument:
    return TextFormat().read(text.encode(), LANGUAGES)


def sources(text: str) -> list[str]:
    return [unit.source.text for unit in read(text).units]


def merged(text: str, *, is_bilingual: bool = False, **targets: str) -> str:
    by_id = {unit_id.replace("_", "-"): target for unit_id, target in targets.items()}
    return read(text).merge(by_id, MergeOptions(LANGUAGES, is_bilingual=is_bilingual)).data.decode()


def test_a_line_is_a_unit_and_outer_whitespace_and_markers_are_not_in_it() -> None:
    text = "\u3000\u3000第一段。\n- item one \t\n 12) point\n\ufeffodd\u200b\n(a) part\n"
    assert sources(text) == ["第一段。", "item one", "point", "odd", "part"]


def test_what_has_no_letters_is_no_unit() -> None:
    assert sources("----\n12.5 %\nhttps://example.org/a\n***\n12:30\n") == []


def test_hard_wrapped_paragraphs_are_one_unit_each() -> None:
    text = (GOLDEN / "wrapped.txt").read_text(encoding="utf-8")
    units = sources(text)
    assert units[0] == "The Harbour"
    assert units[1].startswith("It was late in the evening when the ship came into the harbour, and most of the people")
    assert units[1].endswith("lights on the water.")
    assert units[2].endswith('what-ever the others say about the weather and the waves and about the long way home."')
    assert units[3:5] == ["Things to bring:", "a lamp"]
    assert units[5] == (
        "bread and a rather long description of it that does not fit on one line so that it continues here"
    )


def test_hard_wrapped_chinese_is_joined_without_spaces() -> None:
    units = sources((GOLDEN / "wrapped-zh.txt").read_text(encoding="utf-8"))
    assert len(units) == 2
    assert " " not in units[0]


def test_the_short_fixture_of_the_corpora_is_joined_where_the_sentence_flows_on(shared_data: Path) -> None:
    text = (shared_data / "formats-own" / "hard-wrapped.txt").read_text(encoding="utf-8")
    assert sources(text) == [
        "This paragraph is hard wrapped at a short width, as in e-mail.",
        "bullet one",
        "bullet two",
        "sig",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Yours sincerely,\nJohn Doe\n12 Long Street\nSpringfield\n",
        "apples\npears\nbread\n",
        "Roses are red,\nViolets are blue,\nSugar is sweet,\nAnd so are you.\n",
        "第一段文字。\n第二段文字。\n",
        "name: value\nother: thing\n",
        "| a table | of few columns and many more words in each of them |\n" + "| row " * 40 + "|\n" + "| row " * 50,
    ],
)
def test_lines_that_mean_something_stay_lines(text: str) -> None:
    assert len(sources(text)) == len([line for line in text.splitlines() if line])


def test_the_text_before_is_the_context() -> None:
    units = read("Title\n\nFirst.\n").units
    assert [unit.source.context for unit in units] == [(), ("Title",)]
    long = read("word " * 100 + "\n\nNext.\n").units[1].source.context[0]
    assert len(long) <= 200
    assert long.startswith("word")


def test_a_wrapped_target_is_wrapped_at_the_same_width_with_the_same_indent() -> None:
    text = "".join("    word word word word word word word word word word word word word\n" for _ in range(4))
    target = "mot " * 60
    out = merged(text, lines_1_4=target.strip())
    assert all(line.startswith("    mot") and len(line) <= 68 for line in out.splitlines())
    assert out.split() == target.split()


def test_a_line_stays_one_line() -> None:
    document = read("Hello.\n")
    (unit,) = document.units
    assert document.fault(unit, "a\nb") == "a single line would become several"
    assert document.fault(unit, "a\u2028b") == "a single line would become several"
    assert document.fault(unit, "a\0b") == "the target holds a NUL character"
    assert document.fault(unit, "a b") is None


def test_line_ends_of_all_kinds_stay() -> None:
    text = "one\r\n\rtwo\x0bthree\x0cfour\u2028five\x85six"
    assert merged(text, line_1="A", line_3="B", line_5="C") == "A\r\n\rB\x0bthree\x0cC\u2028five\x85six"


def test_side_by_side_follows_the_layout_of_the_text() -> None:
    assert merged("a\nb\n", is_bilingual=True, line_1="A", line_2="B") == "a\nA\nb\nB\n"
    assert merged("a\r\n\r\n  b", is_bilingual=True, line_1="A", line_3="B") == "a\r\n\r\nA\r\n\r\n  b\r\n\r\n  B"


def test_wrapping_breaks_between_words_and_between_characters_of_unspaced_scripts() -> None:
    assert wrap("aaa bbb ccc", first_width=7, width=3) == ["aaa bbb", "ccc"]
    assert wrap("一二三，四五六。", first_width=6, width=6) == ["一二", "三，四", "五六。"]
    assert wrap("endlesslylongword x", first_width=5, width=5) == ["endlesslylongword", "x"]
    assert cells("a一\u0301") == 3


WORDS = st.text(st.sampled_from("ab一二。，é"), min_size=1, max_size=12)


@given(st.lists(WORDS, min_size=1, max_size=30), st.integers(4, 40), st.integers(4, 40))
def test_wrapping_loses_nothing(words: list[str], first: int, width: int) -> None:
    text = " ".join(words)
    lines = wrap(text, first_width=first, width=width)
    assert "".join("".join(lines).split()) == "".join(words)
    assert all(line == line.strip() for line in lines)
