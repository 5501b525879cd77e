"""Sizes, keys and closings that overtake each other: screens come to rest, and none ends the program."""

from __future__ import annotations

import pytest
from textual.events import Resize
from textual.geometry import Size
from textual.screen import Screen

from tests.tui.conftest import MakeApp
from tests.tui.driving import app_of

ROUNDS = 30


@pytest.mark.parametrize("keys", [(), ("f1",), ("f2",), ("ctrl+p",), ("alt+2",), ("alt+5",)], ids=" ".join)
async def test_two_sizes_under_way_do_not_bring_each_other_forth(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]
) -> None:
    taken: list[Size] = []
    take = Screen._screen_resized

    def count(screen: Screen[object], size: Size) -> None:
        taken.append(size)
        take(screen, size)

    monkeypatch.setattr(Screen, "_screen_resized", count)
    async with make_app().run_test(size=(100, 30)) as pilot:
        await pilot.press(*keys)
        taken.clear()
        for size in (Size(43, 12), Size(100, 30), Size(60, 20)):
            pilot.app.screen.post_message(Resize(size, size))
            pilot.app.screen.call_later(lambda: None)  # what stands between them keeps them apart
        for _ in range(ROUNDS):
            await pilot.pause()
        assert set(taken) == {Size(100, 30)}
        assert len(taken) < ROUNDS // 3


async def test_a_screen_closed_at_once_leaves_the_program_alive(make_app: MakeApp) -> None:
    async with make_app().run_test(size=(100, 30)) as pilot:
        app = app_of(pilot)
        for open_it in (app.action_command_palette, app.action_help):
            for _ in range(3):
                open_it()
                app.pop_screen()
            await pilot.pause()
        open_palette = app.action_command_palette
        open_palette()
        open_palette()
        await pilot.pause()
        assert app.is_running


@pytest.mark.parametrize(
    "keys", [(), ("f1",), ("f2",), ("f3",), ("ctrl+p",), ("ctrl+o",), ("alt+5", "enter")], ids=" ".join
)
async def test_the_program_ends_from_everywhere(make_app: MakeApp, keys: tuple[str, ...]) -> None:
    async with make_app().run_test(size=(100, 30)) as pilot:
        await pilot.press(*keys)
        await pilot.press("ctrl+q")
    assert app_of(pilot)._exit
