"""The settings view: every setting with its origin, checked while it is typed, written at once, followed at once."""

from __future__ import annotations

import tomllib

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from hymt_local.config import setting_names
from hymt_local.paths import Paths
from hymt_local.tui.keymap import load_keymap
from hymt_local.tui.views import View
from tests.tui.conftest import MakeApp
from tests.tui.driving import app_of, detail, languages, notice, paste, rows, status, target, until
from tests.tui.fakes import FakeService, answer


def written(paths: Paths) -> dict[str, object]:
    return tomllib.loads(paths.config_file.read_text())


async def open_setting(pilot: Pilot[None], name: str) -> None:
    await pilot.press("alt+5")
    await until(pilot, lambda: app_of(pilot).view is View.SETTINGS and len(rows(pilot)) > 0)
    app_of(pilot).screen.choose_row(name)  # type: ignore[attr-defined]
    await pilot.pause()


async def type_value(pilot: Pilot[None], value: str) -> None:
    await pilot.press("enter")
    await until(pilot, lambda: len(pilot.app.screen.query("#value")) == 1)
    pilot.app.screen.query_one("#value", Input).value = value
    await pilot.pause()


async def test_every_setting_is_listed_with_value_and_origin(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, paths: Paths
) -> None:
    monkeypatch.setenv("HYMT_LIVE_PAUSE_MS", "900")
    paths.config_dir.mkdir(parents=True)
    paths.config_file.write_text('theme = "nord"\n')
    async with make_app().run_test(size=(120, 60)) as pilot:
        await open_setting(pilot, "live_pause_ms")
        lines = {row.split()[0]: row for row in rows(pilot)}
        assert list(lines) == list(setting_names())
        assert lines["live_pause_ms"].split()[1:] == ["900", "environment"]
        assert lines["theme"].split()[1:] == ["nord", "file"]
        assert lines["target_lang"].split()[1:] == ["fr", "command", "line"]
        assert lines["seed"].split()[1:] == ["0", "default"]
        assert "50 – 10000" in detail(pilot)
        assert "HYMT_LIVE_PAUSE_MS" in detail(pilot)


async def test_a_wrong_value_is_told_while_it_is_typed_and_never_written(make_app: MakeApp, paths: Paths) -> None:
    async with make_app().run_test(size=(120, 40)) as pilot:
        await open_setting(pilot, "temperature")
        await type_value(pilot, "7")
        problem = pilot.app.screen.query_one("#problem", Static)
        assert "expected `float` <= 2.0" in str(problem.render())
        await pilot.press("enter")
        assert len(pilot.app.screen.query("#value")) == 1
        pilot.app.screen.query_one("#value", Input).value = "0.7"
        await pilot.pause()
        assert str(problem.render()) == ""
        await pilot.press("enter")
        await until(pilot, lambda: "temperature is written" in notice(pilot))
        assert written(paths) == {"temperature": 0.7}
        await pilot.press("delete")
        await until(pilot, lambda: written(paths) == {})


async def test_a_switch_is_turned_by_enter_and_followed_at_once(
    make_app: MakeApp, paths: Paths, service: FakeService
) -> None:
    async with make_app().run_test(size=(120, 40)) as pilot:
        await open_setting(pilot, "live")
        await pilot.press("enter")
        await until(pilot, lambda: written(paths) == {"live": False})
        await pilot.press("alt+1")
        await until(pilot, lambda: "Ready: F5 translates" in status(pilot))


async def test_a_theme_is_chosen_from_the_list_and_shown_at_once(make_app: MakeApp, paths: Paths) -> None:
    async with make_app().run_test(size=(120, 40)) as pilot:
        await open_setting(pilot, "theme")
        await type_value(pilot, "no-such-theme")
        assert "unknown theme" in str(pilot.app.screen.query_one("#problem", Static).render())
        pilot.app.screen.query_one("#value", Input).value = ""
        await pilot.press("down", "enter")
        await until(pilot, lambda: "theme" in written(paths))
        assert pilot.app.theme == written(paths)["theme"]


async def test_a_theme_of_the_palette_is_kept(make_app: MakeApp, paths: Paths) -> None:
    async with make_app().run_test(size=(120, 40)) as pilot:
        assert not paths.config_file.exists()
        pilot.app.theme = "nord"
        await until(pilot, lambda: paths.config_file.exists())
    assert written(paths) == {"theme": "nord"}


async def test_a_value_that_a_flag_overrides_is_called_so(make_app: MakeApp, paths: Paths) -> None:
    async with make_app().run_test(size=(120, 40)) as pilot:
        await open_setting(pilot, "target_lang")
        await type_value(pilot, "de")
        await pilot.press("enter")
        await until(pilot, lambda: "command line wins" in notice(pilot))
        assert written(paths) == {"target_lang": "de"}


async def test_the_search_looks_at_names_and_meanings(make_app: MakeApp) -> None:
    async with make_app().run_test(size=(120, 40)) as pilot:
        await open_setting(pilot, "theme")
        await pilot.press("slash", *"milliseconds")
        await until(pilot, lambda: [row.split()[0] for row in rows(pilot)] == ["live_pause_ms"])


async def test_no_color_wins_over_the_theme(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with make_app(theme="nord").run_test() as pilot:
        assert pilot.app.theme == "ansi-dark"


class TestKeymap:
    async def test_the_users_keys_work_and_are_shown(
        self, make_app: MakeApp, paths: Paths, service: FakeService
    ) -> None:
        paths.config_dir.mkdir(parents=True)
        paths.keymap_file.write_text('translate = "f10"\n')
        async with make_app(live=False).run_test() as pilot:
            assert "F10 Translate" in str(pilot.app.screen.query_one("#keys", Static).render())
            await pilot.press("h", "i", "f5")
            assert service.jobs == []
            await pilot.press("f10")
            await until(pilot, lambda: len(service.jobs) == 1)

    @pytest.mark.parametrize("text", ["no_such_action = 'f5'", "translate = 3", "translate = ''", "]["])
    async def test_a_wrong_file_costs_a_message_and_nothing_else(
        self, make_app: MakeApp, paths: Paths, text: str
    ) -> None:
        paths.config_dir.mkdir(parents=True)
        paths.keymap_file.write_text(text)
        async with make_app().run_test(size=(160, 30)) as pilot:
            await until(pilot, lambda: "keymap.toml" in notice(pilot))

    async def test_the_template_changes_nothing_and_names_every_action(self, make_app: MakeApp, paths: Paths) -> None:
        async with make_app().run_test(size=(120, 40)) as pilot:
            await open_setting(pilot, "theme")
            await pilot.press("k")
            await until(pilot, lambda: "Keys of your own" in notice(pilot))
        assert load_keymap(paths.keymap_file).own == {}
        lines = paths.keymap_file.read_text().splitlines()[1:]
        paths.keymap_file.write_text("\n".join(line.removeprefix("# ") for line in lines if '= ""' not in line))
        own = load_keymap(paths.keymap_file).own
        assert own["translate"] == "f5,ctrl+t,ctrl+enter"
        assert own["models.remove"] == "delete"


class TestLanguages:
    async def test_the_program_speaks_chinese(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app(ui_language="zh").run_test() as pilot:
            assert languages(pilot) == ("检测语言", "法语 · Français")
            assert "就绪" in status(pilot)
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "Bonjour")
            await until(pilot, lambda: target(pilot).shown == "Bonjour")
            assert "已翻译" in status(pilot)
            for view in ("2", "3", "4", "5"):
                await pilot.press(f"alt+{view}")
                await pilot.pause()

    async def test_the_text_of_the_source_pane_comes_back_at_the_next_start(
        self, make_app: MakeApp, paths: Paths
    ) -> None:
        async with make_app(live=False).run_test() as pilot:
            await paste(pilot, "unsaved\nwork")
            await pilot.press("ctrl+q")
        assert paths.unsaved_text.read_text() == "unsaved\nwork"
        assert paths.unsaved_text.stat().st_mode & 0o777 == 0o600
        async with make_app(live=False).run_test() as pilot:
            assert "when the program ended" in status(pilot)
            assert pilot.app.screen.query_one("#source").text == "unsaved\nwork"  # type: ignore[attr-defined]
            await pilot.press("ctrl+l")
        assert not paths.unsaved_text.exists()
