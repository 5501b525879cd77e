"""Right-to-left rows as they are seen, and where rows are broken."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from hymt_local.tui.bidi import ZERO_WIDTH, has_rtl, is_rtl, mirrored, shaped, visual_order
from hymt_local.tui.line_breaks import line_breaks, may_break


def seen(text: str, *, is_base_rtl: bool = True) -> str:
    turned = mirrored(text, is_base_rtl=is_base_rtl)
    return "".join(turned[position] for position in visual_order(text, is_base_rtl=is_base_rtl))


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("אבג", "גבא"),
        ("אבג abc", "abc גבא"),
        ("אבג 123 דה", "הד 123 גבא"),
        ("(אב)", "(בא)"),
        ("אב, גד", "דג ,בא"),
        ("אב 1.5 גד", "דג 1.5 בא"),
        ("אָב", "באָ"),
        ("abc אב def", "def בא abc"),
        ("20% אב", "בא 20%"),
    ],
)
def test_a_hebrew_row_is_seen_as_written_by_hand(text: str, row: str) -> None:
    assert seen(text) == row


def test_in_a_left_to_right_row_only_the_foreign_words_turn() -> None:
    assert seen("one אבג two", is_base_rtl=False) == "one גבא two"


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("سلام", "\ufeb3\ufefc" + ZERO_WIDTH + "\ufee1"),
        ("لا", "\ufefb" + ZERO_WIDTH),
        ("می\u200cشود", "\ufee3\ufbfd\u200c\ufeb7\ufeee\ufea9"),
        ("ب", "\ufe8f"),
        ("بَب", "\ufe91َ\ufe90"),
        ("گچ", "\ufb94\ufb7b"),
        ("ەن", "ە\ufee5"),
    ],
)
def test_arabic_letters_take_the_form_that_their_neighbours_give_them(text: str, joined: str) -> None:
    assert shaped(text) == joined


@given(st.text("اب تلاמש 12.,()[]abَّ\u200c", max_size=20), st.booleans())
def test_no_character_is_lost_or_doubled(text: str, is_base_rtl: bool) -> None:
    assert sorted(visual_order(text, is_base_rtl=is_base_rtl)) == list(range(len(text)))
    assert len(shaped(text)) == len(text)


@pytest.mark.parametrize(
    ("text", "first", "anywhere"),
    [("abc", False, False), ("1. אב", True, True), ("abc אב", False, True), ("", False, False)],
)
def test_the_first_letter_decides_the_direction_of_a_row(text: str, first: bool, anywhere: bool) -> None:
    assert (is_rtl(text), has_rtl(text)) == (first, anywhere)


def rows(text: str, width: int) -> list[str]:
    ends = [0, *line_breaks(text, width), len(text)]
    return [text[start:end] for start, end in pairwise(ends)]


@pytest.mark.parametrize(
    ("text", "width", "broken"),
    [
        ("人人生而自由。在尊严", 12, ["人人生而自", "由。在尊严"]),
        ("他说「你好」了吗", 6, ["他说", "「你", "好」了", "吗"]),
        ("見てファイル", 6, ["見て", "ファイ", "ル"]),
        ("use GPU加速很快", 10, ["use GPU加", "速很快"]),
        ("one two three", 8, ["one two ", "three"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("བོད་ཡིག་གི་", 4, ["བོད་", "ཡིག་", "གི་"]),
        ("한국어 문장입니다", 8, ["한국어 ", "문장입니", "다"]),
        ("नमस्ते दुनिया", 6, ["नमस्ते ", "दुनिया"]),
        ("a「。。", 5, ["a", "「。", "。"]),
    ],
)
def test_rows_begin_and_end_where_readers_expect_it(text: str, width: int, broken: list[str]) -> None:
    assert rows(text, width) == broken


@given(st.text("ab 中文。「」กำ་ी\u200d👍🏽", max_size=40), st.integers(4, 20))
def test_rows_fit_and_make_up_the_line(text: str, width: int) -> None:
    parts = rows(text, width)
    assert "".join(parts) == text
    assert all(part for part in parts[:-1]) or not text
    for part in parts:
        assert sum(cell_len(character) for character in part) <= width or len(part) == 1


def test_no_row_begins_with_a_mark_unless_it_must() -> None:
    text = "กำลังพัฒนาภาษาไทย"
    assert [row for row in rows(text, 6) if unicodedata.category(row[0]) in {"Mn", "Mc"}] == []
    assert not may_break("aी", 1)
