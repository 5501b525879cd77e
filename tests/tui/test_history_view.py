"""The history view: what was translated is found, restored, changed, forgotten and exported."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static

from hymt_local.errors import StoreError
from hymt_local.memory.history import PAGE_ENTRIES, History, Translation
from hymt_local.memory.phrase_cache import PhraseCache
from hymt_local.paths import Paths
from hymt_local.tui.panes import SourceArea
from hymt_local.tui.recorder import is_later_state
from hymt_local.tui.views import View
from tests.tui.conftest import MakeApp
from tests.tui.driving import app_of, at_rest, languages, notice, paste, rows, screen_text, source, target, until
from tests.tui.fakes import FakeService, answer


def remember(paths: Paths, *pairs: tuple[str, str]) -> None:
    history = History(paths.database)
    for text, translated in pairs:
        history.add(Translation(text, translated, "en", "fr", "demo"))
    history.close()


async def open_history(pilot: Pilot[None], *, count: int) -> None:
    await pilot.press("alt+3")
    await until(pilot, lambda: app_of(pilot).view is View.HISTORY and len(rows(pilot)) == count)


async def test_a_finished_translation_is_there_with_both_texts(make_app: MakeApp, service: FakeService) -> None:
    async with make_app().run_test(size=(120, 30)) as pilot:
        await paste(pilot, "Hello")
        await until(pilot, lambda: len(service.jobs) == 1)
        answer(service.job, "Bonjour")
        await until(pilot, lambda: target(pilot).shown == "Bonjour")
        await at_rest(pilot)
        await open_history(pilot, count=1)
        assert "Hello" in rows(pilot)[0]
        assert "Bonjour" in str(pilot.app.screen.query_one("#detail", Static).render())


async def test_what_is_typed_in_one_go_leaves_one_entry(make_app: MakeApp, service: FakeService) -> None:
    async with make_app(live=False).run_test() as pilot:
        for count, typed in enumerate(["Good", " morning", " all"], start=1):
            await paste(pilot, typed)
            await pilot.press("f5")
            await until(pilot, lambda count=count: len(service.jobs) == count)  # type: ignore[misc]
            answer(service.job, f"Bonjour {count}")
            await until(pilot, lambda count=count: target(pilot).shown == f"Bonjour {count}")  # type: ignore[misc]
            await at_rest(pilot)
        await open_history(pilot, count=1)
        assert "Good morning all" in rows(pilot)[0]


async def test_nothing_is_kept_when_the_setting_is_off(make_app: MakeApp, service: FakeService, paths: Paths) -> None:
    async with make_app(history=False).run_test() as pilot:
        await paste(pilot, "Hello")
        await until(pilot, lambda: len(service.jobs) == 1)
        answer(service.job, "Bonjour")
        await until(pilot, lambda: target(pilot).shown == "Bonjour")
        await at_rest(pilot)
    assert not paths.database.exists()
    assert not paths.unsaved_text.exists()


async def test_enter_shows_an_entry_again_without_translating(
    make_app: MakeApp, service: FakeService, paths: Paths
) -> None:
    remember(paths, ("Hello", "Bonjour"), ("Bye", "Salut"))
    async with make_app(target_lang="de").run_test() as pilot:
        await open_history(pilot, count=2)
        await pilot.press("down", "enter")
        await until(pilot, lambda: app_of(pilot).view is View.TRANSLATE)
        assert (source(pilot).text, target(pilot).shown) == ("Hello", "Bonjour")
        assert languages(pilot) == ("English", "French · Français")
    assert service.jobs == []


async def test_the_search_finds_either_side_in_any_case(make_app: MakeApp, paths: Paths) -> None:
    remember(paths, ("Hello", "Bonjour"), ("Bye", "Salut"))
    async with make_app().run_test() as pilot:
        await open_history(pilot, count=2)
        await pilot.press("slash", *"SALUT")
        await until(pilot, lambda: len(rows(pilot)) == 1)
        assert "Bye" in rows(pilot)[0]
        pilot.app.screen.query_one(Input).value = "nothing like it"
        await until(pilot, lambda: "Nothing found" in screen_text(pilot.app))
        assert rows(pilot) == []


async def test_an_edit_wins_from_then_on(make_app: MakeApp, paths: Paths) -> None:
    remember(paths, ("Hello", "Bonjour"))
    async with make_app().run_test() as pilot:
        await open_history(pilot, count=1)
        await pilot.press("e")
        await until(pilot, lambda: len(pilot.app.screen.query("#dialog-text")) == 1)
        pilot.app.screen.query_one(SourceArea).rewrite("Salut")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "wins from now on" in notice(pilot))
        await until(pilot, lambda: any("✎" in row for row in rows(pilot)))
    cache = PhraseCache(paths.database)
    assert cache.edited("Hello", source_lang="en", target_lang="fr") == "Salut"
    cache.close()


@pytest.mark.parametrize(("answered", "left"), [("y", 1), ("escape", 2)])
async def test_deleting_asks_first(make_app: MakeApp, paths: Paths, answered: str, left: int) -> None:
    remember(paths, ("Hello", "Bonjour"), ("Bye", "Salut"))
    async with make_app().run_test() as pilot:
        await open_history(pilot, count=2)
        await pilot.press("delete")
        await until(pilot, lambda: len(pilot.app.screen.query(".dialog-question")) == 1)
        await pilot.press(answered)
        await at_rest(pilot)
        await until(pilot, lambda: len(rows(pilot)) == left)
    history = History(paths.database)
    assert history.count() == left
    history.close()


@pytest.mark.parametrize(("key", "then"), [("e", ("x", "ctrl+s")), ("delete", ("y",))])
async def test_a_change_that_cannot_be_written_is_not_called_done(
    make_app: MakeApp, paths: Paths, monkeypatch: pytest.MonkeyPatch, key: str, then: tuple[str, ...]
) -> None:
    def refuse(*_: object) -> None:
        raise StoreError("the disk is full", hint="make room")

    remember(paths, ("Hello", "Bonjour"))
    monkeypatch.setattr(History, "edit", refuse)
    monkeypatch.setattr(History, "delete", refuse)
    async with make_app().run_test() as pilot:
        await open_history(pilot, count=1)
        await pilot.press(key)
        await until(pilot, lambda: len(pilot.app.screen.query("#dialog")) == 1)
        await pilot.press(*then)
        await until(pilot, lambda: "the disk is full" in notice(pilot))
        await at_rest(pilot)
        assert "the disk is full" in notice(pilot)
        assert len(rows(pilot)) == 1


async def test_only_one_page_is_read_until_more_is_asked_for(make_app: MakeApp, paths: Paths) -> None:
    remember(paths, *((f"text {number}", "x") for number in range(PAGE_ENTRIES + 3)))
    async with make_app().run_test() as pilot:
        await open_history(pilot, count=PAGE_ENTRIES + 1)
        assert "more" in rows(pilot)[-1]
        pilot.app.screen.query_one(OptionList).highlighted = PAGE_ENTRIES
        await pilot.press("enter")
        await until(pilot, lambda: len(rows(pilot)) == PAGE_ENTRIES + 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("out.tsv", "source_lang\ttarget_lang\tsource\ttarget\nen\tfr\ta\\tb\\nc\td\n"),
        ("out.jsonl", '"source":"a\\tb\\nc","target":"d"'),
    ],
)
async def test_the_export_has_everything_that_is_found(
    make_app: MakeApp, paths: Paths, tmp_path: Path, name: str, expected: str
) -> None:
    remember(paths, ("a\tb\nc", "d"))
    async with make_app().run_test() as pilot:
        await open_history(pilot, count=1)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: len(pilot.app.screen.query("#dialog")) == 1)
        pilot.app.screen.query_one(Input).value = str(tmp_path / name)
        await pilot.press("enter")
        await until(pilot, lambda: "1 entries written" in notice(pilot))
    assert expected in (tmp_path / name).read_text()


async def test_the_phrase_cache_is_the_other_half(make_app: MakeApp, paths: Paths) -> None:
    cache = PhraseCache(paths.database)
    cache.put("signature", "one", target="un")
    cache.close()
    async with make_app().run_test() as pilot:
        await pilot.press("alt+3")
        await until(pilot, lambda: "phrase cache" in notice(pilot))
        await pilot.press("f7")
        await until(pilot, lambda: len(rows(pilot)) == 1)
        assert "one" in rows(pilot)[0]


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("Hello", "Hello wor", True),
        ("Hello world", "Hello", True),
        ("Hallo world", "Hello world", True),
        ("Hello world", "Where is the station?", False),
        ("", "x", True),
    ],
)
def test_which_text_is_a_later_state_of_another(old: str, new: str, is_same: bool) -> None:
    def state(text: str) -> Translation:
        return Translation(text, "", "en", "fr", "m")

    assert is_later_state(state(old), state(new)) is is_same
