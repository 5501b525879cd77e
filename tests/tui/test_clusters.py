"""The cursor and backspace in every script: no character that a reader sees is torn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.segmenter import is_grapheme_boundary
from hymt_local.tui.clusters import backspaced, boundary_after, boundary_at, boundary_before
from tests.tui.conftest import MakeApp
from tests.tui.driving import source

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
WAVE = "\U0001f44b\U0001f3fd"
FLAGS = "\U0001f1eb\U0001f1f7\U0001f1e9\U0001f1ea"
ACCENTED = "e\u0301"
JAMO = "\u1112\u1161\u11ab"
CONJUNCT = "\u0915\u094d\u0937"  # ka, virama, ssa
SYLLABLE = "\u0995\u09cb"  # ka with a vowel sign on both sides
THAI = "\u0e17\u0e35\u0e48"  # a consonant, a vowel and a tone
KEYCAP = "1\ufe0f\u20e3"


@pytest.mark.parametrize(
    ("text", "n_presses"),
    [(FAMILY, 1), (WAVE, 1), (FLAGS, 2), (ACCENTED, 1), (JAMO, 1), (CONJUNCT, 1), (SYLLABLE, 1), (THAI, 1)],
    ids=["family", "skin tone", "two flags", "accent", "Hangul letters", "conjunct", "Bengali", "Thai"],
)
async def test_an_arrow_goes_over_what_a_reader_sees_as_one(make_app: MakeApp, text: str, n_presses: int) -> None:
    async with make_app(live=False).run_test() as pilot:
        area = source(pilot)
        area.rewrite(f"a{text}b")
        area.move_cursor((0, 1))
        await pilot.press(*["right"] * n_presses)
        assert area.cursor_location == (0, 1 + len(text))
        await pilot.press(*["left"] * n_presses)
        assert area.cursor_location == (0, 1)
        await pilot.press(*["delete"] * n_presses)
        assert area.text == "ab"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (FAMILY, ""),
        (WAVE, ""),
        (FLAGS, FLAGS[:2]),
        (ACCENTED, ""),
        (JAMO, ""),
        (KEYCAP, ""),
        (CONJUNCT, CONJUNCT[:2]),
        (SYLLABLE, SYLLABLE[:1]),
        (THAI, THAI[:2]),
        ("\u3042", ""),
    ],
    ids=["family", "tone", "flags", "accent", "Hangul", "keycap", "conjunct", "Bengali", "Thai", "kana"],
)
async def test_backspace_takes_an_emoji_whole_and_a_vowel_sign_alone(make_app: MakeApp, text: str, left: str) -> None:
    async with make_app(live=False).run_test() as pilot:
        area = source(pilot)
        area.rewrite(f"x\na{text}")
        area.move_cursor(area.document.end)
        await pilot.press("backspace")
        assert area.text == f"x\na{left}"
        area.rewrite("x\ny")
        area.move_cursor((1, 0))
        await pilot.press("backspace")
        assert area.text == "xy"


async def test_rows_and_clicks_meet_no_middle_of_a_character(make_app: MakeApp) -> None:
    async with make_app(live=False).run_test() as pilot:
        area = source(pilot)
        area.rewrite(f"a{FAMILY}b\nxyzxyz")
        for column in range(7):
            area.move_cursor((1, column))
            await pilot.press("up")
            assert is_grapheme_boundary(f"a{FAMILY}b", area.cursor_location[1])
        for x in range(2, 10):
            await pilot.click("#source", offset=(x, 1))
            assert is_grapheme_boundary(f"a{FAMILY}b", area.cursor_location[1])


async def test_a_word_of_marks_is_one_word(make_app: MakeApp) -> None:
    async with make_app(live=False).run_test() as pilot:
        area = source(pilot)
        area.rewrite("\u0939\u093f\u0928\u094d\u0926\u0940 \u0645\u06cc\u200c\u0634\u0648\u062f")
        area.move_cursor((0, 0))
        await pilot.press("ctrl+right")
        assert area.cursor_location == (0, 6)
        area.move_cursor(area.document.end)
        await pilot.press("ctrl+left")
        assert area.cursor_location == (0, 7)


@given(st.text(st.sampled_from("ab \u200d\u0301\u0915\u094d\u0937\u1112\u1161" + FAMILY + WAVE + FLAGS)), st.data())
def test_moves_end_at_edges_and_always_move(text: str, data: st.DataObject) -> None:
    column = data.draw(st.integers(0, len(text)))
    before, after, at = boundary_before(text, column), boundary_after(text, column), boundary_at(text, column)
    assert all(is_grapheme_boundary(text, place) for place in (before, after, at))
    assert before < column or column == 0
    assert after > column or column == len(text)
    assert before <= at <= column
    assert column == 0 or before <= backspaced(text, column) < column
