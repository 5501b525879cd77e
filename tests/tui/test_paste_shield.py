"""Escape sequences inside a paste are text, wherever the terminal cuts its input."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.events import Key, Paste

from hymt_local.tui.paste_shield import PasteFilter, ShieldedParser

START, END = "\x1b[200~", "\x1b[201~"
pieces = st.lists(st.sampled_from(["a", "\x1b", "\x1b[2J", "\x1b[20", "\x1b[A", "~", "\x11"]), max_size=6).map("".join)


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in pairwise(edges)]


@given(pieces, pieces, pieces, st.lists(st.integers(0, 200), max_size=8))
def test_only_escapes_inside_are_replaced_however_the_input_is_cut(
    before: str, pasted: str, after: str, places: list[int]
) -> None:
    paste_filter = PasteFilter()
    sent = f"{before}{START}{pasted}{END}{after}"
    seen = "".join(paste_filter.filter(part) for part in cut(sent, places))
    shielded = pasted.replace("\x1b", "\ufffd")
    assert seen == f"{before}{START}{shielded}{END}{after}"


def test_an_escape_key_is_not_held_back() -> None:
    assert PasteFilter().filter("\x1b") == "\x1b"


def test_the_parser_gives_one_paste_and_no_key_of_its_text() -> None:
    parser = ShieldedParser()
    events = [
        event for part in ("x\x1b[20", f"0~a\x1b[15~b\x1b\x11{END[:3]}", f"{END[3:]}y") for event in parser.feed(part)
    ]
    assert [event.text for event in events if isinstance(event, Paste)] == ["a\ufffd[15~b\ufffd\x11"]
    assert [event.key for event in events if isinstance(event, Key)] == ["x", "y"]


def test_alt_with_a_letter_or_digit_is_a_key_that_types_nothing() -> None:
    parser = ShieldedParser()
    keys = [event for sequence in ("\x1b1", "\x1b5", "\x1ba", "\x1br") for event in parser.feed(sequence)]
    assert [(key.key, key.character) for key in keys if isinstance(key, Key)] == [
        ("alt+1", None),
        ("alt+5", None),
        ("alt+a", None),
        ("alt+r", None),
    ]


@pytest.mark.parametrize("held", ["", "\x1b[20"])
def test_a_control_key_after_a_silence_ends_a_paste_whose_end_was_lost(held: str) -> None:
    times = iter((0.0, 0.5, 3.0, 3.1))
    paste_filter = PasteFilter(lambda: next(times))
    assert paste_filter.filter(f"{START}text{held}") == f"{START}text"
    assert paste_filter.filter("") == ""
    assert paste_filter.filter("\x11") == held.replace("\x1b", "\ufffd") + END + "\x11"
    assert paste_filter.filter("\x1b[A") == "\x1b[A"


def test_a_control_character_that_follows_at_once_is_pasted_text() -> None:
    paste_filter = PasteFilter(lambda: 5.0)
    paste_filter.filter(f"{START}text")
    assert paste_filter.filter("\x11") == "\x11"
    assert paste_filter.filter("\x1b[A") == "\ufffd[A"


@pytest.mark.parametrize("code", [1, 17, 26])
def test_escape_and_a_control_key_in_one_read_are_both_keys(code: int) -> None:
    parser = ShieldedParser()
    events = [*parser.feed(f"\x1b{chr(code)}"), *parser.feed("")]
    keys = [event.key for event in events if isinstance(event, Key) and event.key != "ctrl+@"]
    assert keys == ["escape", f"ctrl+{chr(code + 96)}"]
