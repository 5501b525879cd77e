"""What reaches a terminal can neither command it nor reorder its surroundings."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local.sanitize import sanitize

BIDI_CONTROLS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
nasty_text = st.text(st.one_of(st.characters(), st.sampled_from(BIDI_CONTROLS + "\x1b\r\n\t\x9b\u200c")), max_size=60)


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b]0;pwned\x07", "\ufffd]0;pwned\ufffd"),
        ("\x1b[2J", "\ufffd[2J"),
        ("\x1b]52;c;cm0gLXJm\x07", "\ufffd]52;c;cm0gLXJm\ufffd"),
        ("\x9b2J", "\ufffd2J"),
        ("a\rb", "a\ufffdb"),
        ("\x00\x08\x0b\x0c\x7f", "\ufffd" * 5),
        ("\udc80", "\ufffd"),
        ("\u202egpj.exe\u202c", "gpj.exe"),
    ],
)
def test_commands_to_the_terminal_become_visible_text(hostile: str, shown: str) -> None:
    assert sanitize(hostile) == shown


@pytest.mark.parametrize(
    "text",
    [
        "a\tb\nc",
        "می\u200cشود",
        "क्\u200dष",
        "👩\u200d🚀 ❤\ufe0f",
        "\u200eabc\u200f",
        "你好，世界。",
        "\u2067עברית\u2069 and \u202barabic\u202c",
        "\u2068a \u2067b\u2069 c\u2069",
    ],
)
def test_honest_text_stays_as_it_is(text: str) -> None:
    assert sanitize(text) == text


def test_windows_line_ends_become_line_feeds() -> None:
    assert sanitize("a\r\nb\r\n") == "a\nb\n"


@pytest.mark.parametrize(
    ("text", "balanced"),
    [
        ("\u2067open", "open"),
        ("close\u2069", "close"),
        ("\u202bopen\nnext\u202c", "open\nnext"),
        ("\u2067\u202bx\u2069", "\u2067x\u2069"),
        ("\u202b\u2067x\u202c\u2069y\u202c", "\u202b\u2067x\u2069y\u202c"),
        ("\u202b\u202ex\u202c\u202c", "\u202bx\u202c"),
    ],
)
def test_directions_that_would_leak_are_removed(text: str, balanced: str) -> None:
    assert sanitize(text) == balanced


@given(nasty_text)
def test_nothing_unsafe_is_left(text: str) -> None:
    shown = sanitize(text)
    assert not [c for c in shown if unicodedata.category(c) in {"Cc", "Cs"} and c not in "\n\t"]
    for line in shown.split("\n"):
        opened = sum(line.count(c) for c in "\u202a\u202b\u2066\u2067\u2068")
        assert opened == line.count("\u202c") + line.count("\u2069")
        assert not set("\u202d\u202e") & set(line)


@given(nasty_text)
def test_a_second_time_changes_nothing(text: str) -> None:
    assert sanitize(sanitize(text)) == sanitize(text)


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Cf"])))
def test_text_without_controls_is_untouched(text: str) -> None:
    assert sanitize(text) == text
