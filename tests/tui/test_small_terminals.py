"""On a terminal of few rows every dialog still shows what is asked, what is typed and what can be chosen."""

from __future__ import annotations

import pytest
from textual.widgets import OptionList

from hymt_local.tui.dialogs import QuestionDialog
from tests.tui.conftest import MakeApp
from tests.tui.driving import app_of, screen_text

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
