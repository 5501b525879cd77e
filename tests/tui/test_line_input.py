"""Fields of one line: search, paths, settings."""

from __future__ import annotations

import pytest
from textual.events import Key, Paste
from textual.widgets import Input

from hymt_local.tui.compat import TYPED_CHARACTERS
from tests.tui.conftest import MakeApp
from tests.tui.driving import screen_text

OPENERS = {"languages": ("f2",), "file": ("ctrl+o",), "history": ("alt+3", "slash"), "setting": ("alt+5", "enter")}
HOSTILE = "one \x1b]0;pwned\x07 \u009b2J \x08 two\x00 \u202e three"


@pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS)
async def test_no_control_that_is_pasted_or_held_reaches_the_terminal(
    make_app: MakeApp, opener: tuple[str, ...]
) -> None:
    async with make_app().run_test() as pilot:
        await pilot.press(*opener)
        await pilot.pause()
        field = pilot.app.focused
        assert isinstance(field, Input)
        pilot.app.post_message(Paste(HOSTILE))
        await pilot.pause()
        assert "pwned" in field.value
        for value in (field.value, HOSTILE, "bad \udcff name", "a\tb\nc"):
            field.value = value
            await pilot.pause()
            drawn = screen_text(pilot.app)
            assert drawn.encode()
            assert not {"\x1b", "\x07", "\u009b", "\x08", "\x00", "\u202e", "\t"} & set(drawn)


@pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS)
async def test_joiners_and_special_spaces_can_be_typed(make_app: MakeApp, opener: tuple[str, ...]) -> None:
    async with make_app().run_test() as pilot:
        await pilot.press(*opener)
        await pilot.pause()
        field = pilot.app.focused
        assert isinstance(field, Input)
        field.value = ""
        typed = "".join(f"x{character}" for character in sorted(TYPED_CHARACTERS))
        for character in typed:
            pilot.app.post_message(Key("x" if character == "x" else f"u{ord(character):x}", character))
        await pilot.pause()
        assert field.value == typed


async def test_a_paste_takes_the_first_line_that_says_something(make_app: MakeApp) -> None:
    async with make_app().run_test() as pilot:
        await pilot.press("f2")
        pilot.app.post_message(Paste("\r\n \r\nger\tman\r\nmore"))
        await pilot.pause()
        assert isinstance(pilot.app.focused, Input)
        assert pilot.app.focused.value == "ger man"
        pilot.app.post_message(Paste("\n"))
        await pilot.pause()
        assert pilot.app.focused.value == "ger man"
