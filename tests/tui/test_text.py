"""What the panes do with text: keys that Textual drops, hostile bytes, widths, right-to-left rows, long texts."""

from __future__ import annotations

import unicodedata

import pytest
from rich.cells import cell_len
from textual.events import Key
from textual.widgets import TextArea

from hymt_local.errors import ErrorReport
from hymt_local.events import Failed
from hymt_local.tui.compat import cell_widths_as
from hymt_local.tui.terminal import CellWidths, Terminal, with_rtl
from tests.tui.conftest import KITTY, XTERM, MakeApp
from tests.tui.driving import paste, screen_text, source, status, target, until
from tests.tui.fakes import FakeClock, FakeService, answer, finished, started

HOSTILE = "a\x1b]0;pwned\x07b\x1b[2Jc\x9b2Jd\x1b]52;c;cm0=\x07e\u202ef"


def controls_on_screen(text: str) -> list[str]:
    """Return what a terminal would obey instead of showing."""
    bidi = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    return [c for c in text if (unicodedata.category(c) == "Cc" and c != "\n") or c in bidi]


class TestTyping:
    async def test_joiners_and_wide_spaces_typed_key_by_key_stay(self, make_app: MakeApp) -> None:
        text = "می\u200cشود\u3000क्\u200dष\u00a0\u200fx\u2067y\u2069"
        async with make_app(live=False).run_test() as pilot:
            for character in text:
                pilot.app.post_message(Key(unicodedata.name(character).lower().replace(" ", "_"), character))
            await until(pilot, lambda: source(pilot).text == text)

    async def test_the_target_cannot_be_typed_into_or_undone(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "hi")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "salut")
            await until(pilot, lambda: target(pilot).shown == "salut")
            await pilot.press("tab", "x", "ctrl+z", "ctrl+x", "backspace")
            assert pilot.app.focused is target(pilot)
            assert target(pilot).text == "salut"

    async def test_the_target_has_a_cursor_that_selects(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "hi")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "salut")
            await until(pilot, lambda: target(pilot).shown == "salut")
            await pilot.press("tab", "shift+right", "shift+right")
            assert target(pilot).selected_text == "sa"

    async def test_line_ends_of_every_kind_become_line_feeds(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "a\r\nb\rc\u2028d")
            await until(pilot, lambda: len(service.jobs) == 1)
        assert service.requests[0].text == "a\nb\nc\nd"


class TestHostileBytes:
    async def test_pasted_commands_become_visible_text(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, HOSTILE)
            await until(pilot, lambda: len(service.jobs) == 1)
            assert controls_on_screen(screen_text(pilot.app)) == []
            assert "\ufffd[2Jc" in screen_text(pilot.app)
        assert "\x1b" not in service.requests[0].text

    async def test_model_output_cannot_command_the_terminal_or_the_clipboard(
        self, make_app: MakeApp, service: FakeService, clock: FakeClock
    ) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "hi")
            await until(pilot, lambda: len(service.jobs) == 1)
            service.job.put(started(service.job.request))
            service.job.put(finished(service.job.request, HOSTILE))
            await until(pilot, lambda: "pwned" in target(pilot).shown)
            assert controls_on_screen(screen_text(pilot.app)) == []
            await pilot.press("f4")
            assert controls_on_screen(pilot.app.clipboard) == []

    async def test_an_error_message_cannot_command_the_terminal(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "hi")
            await until(pilot, lambda: len(service.jobs) == 1)
            service.job.put(Failed(ErrorReport("engine", f"bad {HOSTILE}", f"[bold]hint[/bold] {HOSTILE}", 4, 503)))
            await until(pilot, lambda: "pwned" in status(pilot))
            assert controls_on_screen(screen_text(pilot.app)) == []
            assert "[bold]hint[/bold]" in status(pilot)

    async def test_text_that_looks_like_markup_stays_text(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "[red]x[/red] [@click=app.quit]y[/]")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "[blink]z[/blink]")
            await until(pilot, lambda: target(pilot).shown != "")
            assert "[@click=app.quit]y[/]" in screen_text(pilot.app)
            assert "[blink]z[/blink]" in screen_text(pilot.app)

    async def test_half_a_bidi_pair_typed_into_the_source_does_not_reach_the_row(self, make_app: MakeApp) -> None:
        async with make_app(live=False).run_test() as pilot:
            pilot.app.post_message(Key("right_to_left_isolate", "\u2067"))
            await until(pilot, lambda: source(pilot).text == "\u2067")
            assert controls_on_screen(screen_text(pilot.app)) == []


class TestLongText:
    @pytest.mark.parametrize("text", ["你好世界，" * 6_667, "A line of text.\n" * 6_250], ids=["one line", "lines"])
    async def test_a_paste_of_100_kb_arrives_whole(self, make_app: MakeApp, text: str) -> None:
        async with make_app(live=False).run_test() as pilot:
            await paste(pilot, text)
            await pilot.press("x")
            assert source(pilot).text == text + "x"

    async def test_streaming_follows_the_end_only_for_a_reader_who_is_there(
        self, make_app: MakeApp, service: FakeService
    ) -> None:
        async with make_app(live=False).run_test() as pilot:
            pane = target(pilot)
            text = "".join(f"line {row}\n" for row in range(60))
            pane.show("first\n")
            pane.show(f"first\n{text}")
            await until(pilot, lambda: pane.max_scroll_y > 0 and pane.is_vertical_scroll_end)
            pane.scroll_to(y=3, animate=False)
            await pilot.pause()
            pane.show(f"first\n{text}more\n")
            await pilot.pause()
            assert pane.scroll_offset.y == 3

    async def test_writing_leaves_a_selection_in_the_target_alone(self, make_app: MakeApp) -> None:
        async with make_app(live=False).run_test() as pilot:
            pane = target(pilot)
            pane.show("one two")
            await pilot.press("tab", "shift+right", "shift+right", "shift+right")
            pane.show("one two three")
            assert pane.selected_text == "one"


class TestWidths:
    @pytest.mark.parametrize(("widths", "cells"), [(XTERM, 2), (KITTY, 1)], ids=["xterm", "kitty"])
    async def test_borders_keep_their_column_beside_spacing_marks(
        self, make_app: MakeApp, widths: CellWidths, cells: int
    ) -> None:
        syllable = "\u0915\u093e"
        with cell_widths_as(widths):
            async with make_app(live=False, terminal=Terminal(cell_widths=widths)).run_test(size=(100, 12)) as pilot:
                await paste(pilot, syllable * 5)
                row = screen_text(pilot.app).splitlines()[2]
        pane = row[: row.index("│", 1) + 1]
        assert len(pane.replace(syllable, "x" * cells)) == 50

    async def test_emoji_that_the_terminal_does_not_join_are_drawn_as_their_base(self, make_app: MakeApp) -> None:
        text = "👩\u200d🚀 👍🏽"
        async with make_app(live=False, terminal=Terminal(cell_widths=XTERM)).run_test() as pilot:
            await paste(pilot, text)
            drawn = screen_text(pilot.app)
            assert "👩" in drawn
            assert "🚀" not in drawn
            assert "🏽" not in drawn
            assert source(pilot).text == text

    async def test_a_silent_terminal_stacks_the_panes_for_scripts_with_spacing_marks(self, make_app: MakeApp) -> None:
        stacked = []
        for target_lang in ("fr", "my"):
            app = make_app(target_lang=target_lang, terminal=Terminal(cell_widths=None))
            async with app.run_test(size=(120, 30)) as pilot:
                await pilot.pause()
                stacked.append(source(pilot).region.bottom <= target(pilot).region.y)
        assert stacked == [False, True]

    async def test_narrow_terminals_stack_the_panes(self, make_app: MakeApp) -> None:
        stacked = []
        async with make_app().run_test(size=(120, 24)) as pilot:
            for columns in (100, 99, 20):
                await pilot.resize_terminal(columns, 24)
                await pilot.pause()
                stacked.append(source(pilot).region.bottom <= target(pilot).region.y)
        assert stacked == [False, True, True]


class TestRightToLeft:
    async def test_a_terminal_that_reorders_rows_gets_fences_around_each(
        self, make_app: MakeApp, service: FakeService
    ) -> None:
        async with make_app(terminal=Terminal(cell_widths=KITTY, has_bidi=True)).run_test(size=(100, 12)) as pilot:
            await paste(pilot, "שלום")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "سلام")
            await until(pilot, lambda: target(pilot).shown == "سلام")
            row = screen_text(pilot.app).splitlines()[2]
            left, right = (part.strip() for part in row.strip("│").split("││"))
            assert [left[0], left[-1], right[0], right[-1]] == ["\u200e"] * 4
            assert isinstance(source(pilot), TextArea)
            assert (source(pilot).text, target(pilot).text) == ("שלום", "سلام")

    async def test_other_terminals_get_none(self, make_app: MakeApp) -> None:
        async with make_app(live=False).run_test() as pilot:
            await paste(pilot, "שלום")
            assert "\u200e" not in screen_text(pilot.app)


async def test_a_terminal_that_reorders_nothing_gets_right_to_left_rows_as_they_are_seen(
    make_app: MakeApp, service: FakeService
) -> None:
    async with make_app(target_lang="ar").run_test(size=(100, 12)) as pilot:
        await paste(pilot, "Hello")
        await until(pilot, lambda: len(service.jobs) == 1)
        answer(service.job, "سلام عليكم (أهلا)")
        await until(pilot, lambda: target(pilot).shown.startswith("سلام"))
        await pilot.pause()
        (row,) = [row for row in screen_text(pilot.app).splitlines() if "\ufe8d" in row or "\ufefc" in row]
        assert row.endswith("\ufeb3\ufefc\u2060\ufee1"[::-1] + " │") or "\ufeb3 │" in row
        assert cell_len(row) == 100
        assert pilot.app.clipboard == ""
        await pilot.press("f4")
        await until(pilot, lambda: "OSC 52" in status(pilot))
        assert pilot.app.clipboard == "سلام عليكم (أهلا)"


@pytest.mark.parametrize(
    ("setting", "reorders", "mode"),
    [("auto", True, "terminal"), ("auto", False, "visual"), ("off", True, "off"), ("visual", True, "visual")],
)
def test_who_orders_right_to_left_rows(setting: str, reorders: bool, mode: str) -> None:
    assert with_rtl(Terminal(has_bidi=reorders), setting).rtl == mode  # type: ignore[arg-type]
