"""On a terminal of few rows every dialog still shows what is asked, what is typed and what can be chosen."""

from __future__ import annotations

import pytest
from textual.widgets import OptionList

from hymt_local.memory.history import History, Translation
from hymt_local.paths import Paths
from hymt_local.tui.dialogs import QuestionDialog
from tests.tui.conftest import MakeApp
from tests.tui.driving import app_of, rows, screen_text, until

SIZES = [(40, 12), (20, 5)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("opener", [("f2",), ("ctrl+o",)], ids=["languages", "file"])
async def test_a_picker_shows_its_field_and_a_choice(
    make_app: MakeApp, opener: tuple[str, ...], size: tuple[int, int]
) -> None:
    async with make_app().run_test(size=size) as pilot:
        await pilot.press(*opener)
        await pilot.pause()
        assert "Type to search" in screen_text(pilot.app)
        choices = pilot.app.screen.query_one(OptionList)
        assert pilot.app.screen.find_widget(choices).visible_region.height >= min(2, size[1] - 3)
        highlighted = choices.highlighted_option
        assert highlighted is not None
        assert str(highlighted.prompt).split()[0][:10] in screen_text(pilot.app)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("view", range(2, 6))
async def test_a_list_gets_most_of_the_rows(make_app: MakeApp, view: int, size: tuple[int, int]) -> None:
    async with make_app().run_test(size=size) as pilot:
        await pilot.press(f"alt+{view}")
        await pilot.pause()
        screen = app_of(pilot).screen
        assert screen.find_widget(screen.query_one("#rows")).visible_region.height >= size[1] // 2


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_the_help_page_shows_a_key(make_app: MakeApp, size: tuple[int, int]) -> None:
    async with make_app().run_test(size=size) as pilot:
        await pilot.press("f1")
        await pilot.pause()
        assert "F5" in screen_text(pilot.app)


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_a_question_shows_itself_and_its_answers(make_app: MakeApp, size: tuple[int, int]) -> None:
    app = make_app()
    async with app.run_test(size=size) as pilot:
        app.push_screen(QuestionDialog(app.environment.wording, title="Remove it?", text="a\nb\nc\nd\ne\nf\ng"))
        await pilot.pause()
        assert "Remove it?" in screen_text(app)
        assert "Y or Enter" in screen_text(app)


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_the_palette_shows_its_field_and_an_action(make_app: MakeApp, size: tuple[int, int]) -> None:
    async with make_app().run_test(size=size) as pilot:
        await pilot.press("ctrl+p")
        await until(pilot, lambda: "Alternatives" in screen_text(pilot.app))
        assert "Type to search" in screen_text(pilot.app)
        await pilot.press(*"swap")
        await until(pilot, lambda: "Swap" in screen_text(pilot.app))


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_a_message_is_seen(make_app: MakeApp, size: tuple[int, int]) -> None:
    async with make_app().run_test(size=size) as pilot:
        await pilot.press("f4")
        await until(pilot, lambda: "There is no" in screen_text(pilot.app))


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        (80, ["F5", "F2", "F3", "F4", "F1", "Ctrl+Q"]),
        (60, ["F5", "F2", "F3", "F4", "F1"]),
        (40, ["F5", "F2", "F1"]),
        (20, ["F1"]),
    ],
)
async def test_the_footer_shows_whole_keys_and_help_to_the_last(
    make_app: MakeApp, columns: int, keys: list[str]
) -> None:
    async with make_app().run_test(size=(columns, 20)) as pilot:
        await pilot.pause()
        footer = screen_text(pilot.app).rstrip("\n").split("\n")[-1]
        assert [
            word for word in footer.split() if word[0] in "FC" and word[-1].isalnum() and len(word) in {2, 6}
        ] == keys
        assert "…" not in footer


async def test_forty_columns_have_room_for_what_a_row_is_about(make_app: MakeApp, paths: Paths) -> None:
    past = History(paths.database)
    past.add(Translation("Where is the station?", "Où est la gare ?", "en", "fr", "demo"))
    past.close()
    async with make_app().run_test(size=(100, 20)) as pilot:
        wide = {}
        for view in (3, 4, 5):
            await pilot.press(f"alt+{view}")
            await until(pilot, lambda: len(rows(pilot)) > 0)
            wide[view] = rows(pilot)
        await pilot.resize_terminal(40, 20)
        await until(pilot, lambda: rows(pilot) != wide[5])
        assert "source_lang       unset" in screen_text(pilot.app)
        assert "5 Settings" in screen_text(pilot.app), "the tab in front is never cut off"
        await pilot.press("alt+4")
        await until(pilot, lambda: rows(pilot) != wide[4])
        assert "1.1 GB" in screen_text(pilot.app)
        await pilot.press("alt+3")
        await until(pilot, lambda: "en → fr Where is the stat" in screen_text(pilot.app))
