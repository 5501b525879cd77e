"""Choosing languages and models, the help page, the palette: all by keyboard."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.widgets import Input, OptionList, Static

from hymt_local.tui.dialogs import PathDialog
from hymt_local.tui.help_screen import HelpScreen
from hymt_local.tui.keymap import every_command
from hymt_local.tui.picker import LanguagePicker
from tests.tui.conftest import MakeApp
from tests.tui.driving import app_of, languages, paste, screen_text, source, status, target, until
from tests.tui.fakes import FakeService


class TestLanguages:
    async def test_search_by_any_name_and_take_the_first(self, make_app: MakeApp) -> None:
        searches = {
            "german": "German · Deutsch",
            "deuts": "German · Deutsch",
            "espanol": "Spanish · Español",
            "zh-hant": "Traditional Chinese · 繁體中文",
            "fil": "Filipino",
        }
        async with make_app().run_test() as pilot:
            for typed, chosen in searches.items():
                await pilot.press("f2", *("minus" if letter == "-" else letter for letter in typed), "enter")
                assert languages(pilot) == ("Detect language", chosen)
                assert pilot.app.screen is app_of(pilot).translate_screen

    async def test_f2_again_turns_to_the_source_language(self, make_app: MakeApp) -> None:
        async with make_app().run_test() as pilot:
            await pilot.press("f2", "f2", *"jap", "enter")
            assert languages(pilot) == ("Japanese · 日本語", "French · Français")
            await pilot.press("f2", "tab", *"detect", "enter")
            assert languages(pilot) == ("Detect language", "French · Français")

    async def test_the_language_in_force_is_highlighted_and_arrows_move_from_it(self, make_app: MakeApp) -> None:
        async with make_app().run_test() as pilot:
            await pilot.press("f2", "down", "enter")
            assert languages(pilot)[1] == "Portuguese · Português"

    async def test_escape_changes_nothing(self, make_app: MakeApp) -> None:
        async with make_app().run_test() as pilot:
            await pilot.press("f2", *"german", "escape")
            assert languages(pilot) == ("Detect language", "French · Français")

    async def test_a_search_without_a_match_takes_nothing(self, make_app: MakeApp) -> None:
        async with make_app().run_test() as pilot:
            await pilot.press("f2", *"klingon", "enter")
            assert isinstance(pilot.app.screen, LanguagePicker)
            assert pilot.app.screen.query_one(OptionList).option_count == 0

    async def test_a_click_on_a_language_opens_its_side(self, make_app: MakeApp) -> None:
        async with make_app().run_test() as pilot:
            await pilot.click("#source-language")
            await pilot.press(*"korean", "enter")
            assert languages(pilot)[0] == "Korean · 한국어"

    async def test_tab_and_enter_reach_a_language_without_a_mouse(self, make_app: MakeApp) -> None:
        async with make_app().run_test() as pilot:
            await pilot.press("shift+tab", "enter", *"korean", "enter")
            assert languages(pilot)[1] == "Korean · 한국어"


async def test_another_model_translates_from_then_on(make_app: MakeApp, service: FakeService) -> None:
    async with make_app().run_test() as pilot:
        await pilot.press("f9", *"echo", "enter")
        assert "echo · test" in status(pilot)
        await paste(pilot, "hi")
        await until(pilot, lambda: len(service.jobs) == 1)
    assert service.requests[0].model == "echo"


async def test_help_names_every_action_with_its_keys(make_app: MakeApp) -> None:
    async with make_app().run_test(size=(120, 50)) as pilot:
        environment = app_of(pilot).environment
        await pilot.press("f1")
        await pilot.pause()
        page = " ".join(str(pilot.app.screen.query_one("#help-page", Static).content).split())
        for command in every_command():
            assert command.description(environment.wording) in page
            assert ", ".join(environment.keymap.shown_keys(command, environment.wording)) in page
        assert "last-translation.txt" in page
        await pilot.press("f1")
        assert not isinstance(pilot.app.screen, HelpScreen)


@pytest.mark.parametrize(("columns", "indent"), [(120, 24), (40, 2)])
async def test_what_a_key_does_stands_in_one_column_of_the_help(make_app: MakeApp, columns: int, indent: int) -> None:
    async with make_app().run_test(size=(columns, 30)) as pilot:
        await pilot.press("f1")
        await pilot.pause()
        page = pilot.app.screen.query_one("#help-page", Static)
        rows = str(page.content).split("\n\n")[0].split("\n")[1:]
        environment = app_of(pilot).environment
        keys = {", ".join(environment.keymap.shown_keys(each, environment.wording)) for each in every_command()}
        for row in rows:
            assert row[:indent].strip() == "" or any(row.startswith(each) for each in keys), row
            assert cell_len(row) <= page.content_size.width, row


async def test_the_palette_runs_any_action(make_app: MakeApp) -> None:
    async with make_app(live=False).run_test() as pilot:
        await paste(pilot, "Hello")
        await pilot.press("ctrl+p", *"clear")
        await until(pilot, lambda: "Empty both panes" in screen_text(pilot.app))
        await pilot.press("enter")
        await until(pilot, lambda: source(pilot).text == "")


async def test_the_footer_names_six_keys(make_app: MakeApp) -> None:
    async with make_app().run_test() as pilot:
        await pilot.pause()
        footer = screen_text(pilot.app).splitlines()[-1]
        assert footer.split() == [
            "F5", "Translate", "F2", "Languages", "F3", "Swap", "F4", "Copy", "F1", "Help", "Ctrl+Q", "Quit",
        ]  # fmt: skip


async def test_ctrl_c_without_a_selection_says_how_to_quit(make_app: MakeApp) -> None:
    async with make_app().run_test() as pilot:
        await pilot.press("ctrl+c")
        assert "Ctrl+Q quits" in status(pilot)
        assert pilot.app.is_running


async def test_an_unknown_theme_is_reported_and_replaced(make_app: MakeApp) -> None:
    async with make_app(theme="no-such-theme").run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "unknown theme 'no-such-theme'" in status(pilot))
        assert pilot.app.theme == "textual-dark"


async def test_a_known_theme_is_used(make_app: MakeApp) -> None:
    async with make_app(theme="nord").run_test() as pilot:
        assert pilot.app.theme == "nord"


NO_PATHS = [
    "~nosuchuser/",
    "~nosuchuser",
    "x" * 300,
    "/" + "x" * 5000,
    "a\x00b",
    "/proc/self/fd/0/x",
    "\udcff",
    "//..//",
]


class TestPaths:
    @pytest.mark.parametrize("opener", ["ctrl+o", "ctrl+s"])
    @pytest.mark.parametrize("typed", NO_PATHS, ids=lambda typed: ascii(typed[:12]))
    async def test_what_is_no_path_is_waited_out(
        self, make_app: MakeApp, opener: str, typed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.chdir(tmp_path)
        async with make_app().run_test() as pilot:
            target(pilot).show("something to save")
            await pilot.press(opener)
            for key in ("tab", "enter"):
                if isinstance(pilot.app.screen, PathDialog):
                    pilot.app.screen.query_one(Input).value = typed
                    await pilot.press(key)
            assert screen_text(pilot.app).encode()

    async def test_odd_names_take_one_row_each_and_pipes_none(
        self, make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for name in (b"a\xff.txt", b"b\nc.txt", b"d\x1b[2J.txt", b"[bold]e.txt"):
            Path(os.fsdecode(name)).touch()
        os.mkfifo("pipe.txt")
        async with make_app().run_test() as pilot:
            await pilot.press("ctrl+o")
            options = pilot.app.screen.query_one(OptionList).options
            names = [str(option.prompt).strip() for option in options]
            assert names == ["[bold]e.txt", "a\ufffd.txt", "b\ufffdc.txt", "d\ufffd[2J.txt"]

    async def test_a_folder_that_may_not_be_read_is_empty(
        self, make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        async with make_app().run_test() as pilot:
            await pilot.press("ctrl+o")
            monkeypatch.setattr(os, "stat", refuse)
            monkeypatch.setattr(os, "listdir", refuse)
            await pilot.press("slash", "x", "slash", "tab", "enter")
            assert isinstance(pilot.app.screen, PathDialog)
            assert pilot.app.screen.query_one(OptionList).option_count == 0
            monkeypatch.undo()

    async def test_an_empty_file_ends_the_run_and_leaves_nothing_of_the_older_text(
        self, make_app: MakeApp, service: FakeService, tmp_path: Path
    ) -> None:
        (tmp_path / "empty.txt").touch()
        async with make_app().run_test() as pilot:
            await paste(pilot, "Good morning!")
            await until(pilot, lambda: len(service.jobs) == 1)
            target(pilot).show("an older translation")
            await pilot.press("ctrl+o")
            pilot.app.screen.query_one(Input).value = str(tmp_path / "empty.txt")
            await pilot.press("enter")
            await until(pilot, lambda: "Opened empty.txt" in status(pilot))
            assert service.cancelled
            assert (source(pilot).text, target(pilot).shown) == ("", "")
