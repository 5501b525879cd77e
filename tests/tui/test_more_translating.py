"""What the translate view does beyond translating: second target, alternatives, back-translation, files, segments."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from textual.widgets import Input, OptionList, Static

from hymt_local.errors import DocumentError, ErrorReport
from hymt_local.events import Failed, Origin, SegmentDone, TextDelta
from hymt_local.memory.phrase_cache import PhraseCache
from hymt_local.paths import Paths
from hymt_local.segment import Finding, Severity
from hymt_local.tui.direction import Direction
from hymt_local.tui.text_files import read_text_file
from hymt_local.tui.views import View
from tests.tui.conftest import MakeApp
from tests.tui.driving import app_of, at_rest, languages, notice, paste, source, status, target, until
from tests.tui.fakes import FakeClock, FakeService, answer, finished, started

DOUBT = Finding("numbers", Severity.WARNING, "the number 12 is missing")


class TestSecondTarget:
    async def test_a_text_in_the_target_language_goes_into_the_second_one_and_back(
        self, make_app: MakeApp, service: FakeService
    ) -> None:
        async with make_app(second_target="en").run_test() as pilot:
            await paste(pilot, "Bonjour à tous")
            await until(pilot, lambda: len(service.jobs) == 1)
            service.job.put(started(service.job.request, source_lang="fr"))
            await until(pilot, lambda: len(service.jobs) == 2)
            assert service.requests[1].target_lang == "en"
            assert languages(pilot)[1] == "English · second target"
            service.job.put(started(service.job.request, source_lang="fr"))
            service.job.put(finished(service.job.request, "Hello everybody"))
            await until(pilot, lambda: target(pilot).shown == "Hello everybody")
            source(pilot).rewrite("")
            await paste(pilot, "Guten Tag")
            await until(pilot, lambda: len(service.jobs) == 3)
            service.job.put(started(service.job.request, source_lang="de"))
            await until(pilot, lambda: languages(pilot)[1] == "French · Français")
        assert service.requests[-1].target_lang == "fr"

    async def test_without_one_nothing_turns(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "Bonjour")
            await until(pilot, lambda: len(service.jobs) == 1)
            service.job.put(started(service.job.request, source_lang="fr"))
            service.job.put(finished(service.job.request, "Bonjour", origin=Origin.SOURCE))
            await until(pilot, lambda: "no words" in status(pilot) or "already" in status(pilot))
        assert len(service.jobs) == 1

    def test_swapping_a_turned_direction_keeps_both_languages(self) -> None:
        direction = Direction(None, "fr", second_target="en")
        assert direction.learn("fr", 0.9)
        assert direction.effective_target == "en"
        assert direction.swap()
        assert (direction.source_lang, direction.effective_target) == ("en", "fr")


class TestSegments:
    async def test_each_one_is_selected_on_both_sides_with_origin_and_findings(
        self, make_app: MakeApp, service: FakeService
    ) -> None:
        async with make_app().run_test(size=(120, 30)) as pilot:
            await paste(pilot, "one\n\ntwo 12")
            await until(pilot, lambda: len(service.jobs) == 1)
            job = service.job
            for event in (
                started(job.request),
                SegmentDone(0, "one", "un", Origin.CACHE),
                SegmentDone(1, "", "", Origin.SOURCE),
                SegmentDone(2, "two 12", "deux", Origin.MODEL, findings=(DOUBT,)),
                finished(job.request, "un\n\ndeux"),
            ):
                job.put(event)
            await until(pilot, lambda: "Worth a look: 1 of 3 segments" in notice(pilot))
            await pilot.press("ctrl+j")
            assert notice(pilot).endswith("Segment 1 of 2 · from the cache")
            assert (source(pilot).selected_text, target(pilot).selected_text) == ("one", "un")
            await pilot.press("ctrl+j")
            assert notice(pilot).endswith("Segment 2 of 2 · from the model · the number 12 is missing")
            assert (source(pilot).selected_text, target(pilot).selected_text) == ("two 12", "deux")
            assert [bool(target(pilot).get_line(row).spans) for row in range(3)] == [False, False, True]

    async def test_before_a_translation_there_are_none(self, make_app: MakeApp) -> None:
        async with make_app().run_test() as pilot:
            await pilot.press("ctrl+j")
            assert "no segments yet" in status(pilot)


class TestOnDemand:
    async def test_alternatives_are_sampled_without_the_cache_and_the_chosen_one_stays(
        self, make_app: MakeApp, service: FakeService, paths: Paths
    ) -> None:
        async with make_app().run_test(size=(120, 30)) as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "Bonjour")
            await until(pilot, lambda: target(pilot).shown == "Bonjour")
            await at_rest(pilot)
            await pilot.press("alt+a")
            await until(pilot, lambda: len(service.jobs) == 5)
            asked = service.requests[1:]
            assert not any(request.use_cache for request in asked)
            assert len({(r.sampling.temperature, r.sampling.seed) for r in asked if r.sampling}) == 4
            for job, text in zip(service.jobs[1:], ["Bonjour", "Salut", "Salut", "Coucou"], strict=True):
                answer(job, text)
            options = pilot.app.screen.query_one(OptionList)
            await until(pilot, lambda: len([o for o in options.options if o.id]) == 3)
            await pilot.press("down", "enter")
            await until(pilot, lambda: target(pilot).shown == "Salut")
            await at_rest(pilot)
        cache = PhraseCache(paths.database)
        assert cache.edited("Hello", source_lang="en", target_lang="fr") == "Salut"
        cache.close()

    async def test_leaving_the_alternatives_cancels_them(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "Bonjour")
            await until(pilot, lambda: target(pilot).shown == "Bonjour")
            await pilot.press("alt+a")
            await until(pilot, lambda: len(service.jobs) == 5)
            await pilot.press("escape")
            await until(pilot, lambda: len(service.cancelled) == 4)
            assert target(pilot).shown == "Bonjour"

    async def test_the_translation_is_translated_back(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app().run_test(size=(120, 30)) as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "Bonjour")
            await until(pilot, lambda: target(pilot).shown == "Bonjour")
            await pilot.press("alt+r")
            await until(pilot, lambda: len(service.jobs) == 2)
            request = service.requests[1]
            assert (request.text, request.source_lang, request.target_lang) == ("Bonjour", "fr", "en")
            answer(service.job, "Good day")
            back = pilot.app.screen.query_one("#back", Static)
            await until(pilot, lambda: str(back.render()) == "Good day")

    @pytest.mark.parametrize("key", ["alt+a", "alt+r"])
    async def test_both_need_a_translation(self, make_app: MakeApp, service: FakeService, key: str) -> None:
        async with make_app(live=False).run_test() as pilot:
            await paste(pilot, "Hello")
            await pilot.press(key)
            assert "Translate the text first" in status(pilot)
        assert service.jobs == []

    async def test_retry_asks_the_model_instead_of_the_cache(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "Bonjour", origin=Origin.CACHE)
            await until(pilot, lambda: target(pilot).shown == "Bonjour")
            await pilot.press("ctrl+r")
            await until(pilot, lambda: len(service.jobs) == 2)
        assert [request.use_cache for request in service.requests] == [True, False]

    async def test_after_a_failure_retry_uses_what_was_remembered(
        self, make_app: MakeApp, service: FakeService
    ) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            service.job.put(Failed(ErrorReport("engine", "it broke", "", 4, 503)))
            await until(pilot, lambda: "it broke" in status(pilot))
            await pilot.press("ctrl+r")
            await until(pilot, lambda: len(service.jobs) == 2)
        assert service.requests[1].use_cache


async def test_an_engine_that_died_is_asked_once_more_and_the_text_is_kept(
    make_app: MakeApp, service: FakeService
) -> None:
    died = Failed(ErrorReport("engine_stopped", "the engine ended with signal 11", "try again", 4, 503))
    async with make_app().run_test() as pilot:
        await paste(pilot, "Hello")
        await until(pilot, lambda: len(service.jobs) == 1)
        service.job.put(died)
        await until(pilot, lambda: len(service.jobs) == 2)
        assert "started again" in status(pilot)
        assert service.requests[1].text == source(pilot).text == "Hello"
        service.job.put(died)
        await until(pilot, lambda: "signal 11" in status(pilot))
    assert len(service.jobs) == 2


class TestFiles:
    async def test_a_text_file_is_opened_and_its_translation_saved(
        self, make_app: MakeApp, service: FakeService, tmp_path: Path
    ) -> None:
        file = tmp_path / "letter.txt"
        file.write_text("\ufeffHello\r\nthere", encoding="utf-8")
        async with make_app().run_test() as pilot:
            await pilot.press("ctrl+o")
            await until(pilot, lambda: len(pilot.app.screen.query("#dialog")) == 1)
            pilot.app.screen.query_one(Input).value = f"{tmp_path}/let"
            await pilot.press("enter")
            await until(pilot, lambda: len(service.jobs) == 1)
            assert service.requests[0].text == "Hello\nthere"
            answer(service.job, "Bonjour")
            await until(pilot, lambda: target(pilot).shown == "Bonjour")
            await pilot.press("ctrl+s")
            await until(pilot, lambda: len(pilot.app.screen.query("#dialog")) == 1)
            pilot.app.screen.query_one(Input).value = str(tmp_path / "letter.fr.txt")
            await pilot.press("enter")
            await until(pilot, lambda: "Saved as" in notice(pilot))
        assert (tmp_path / "letter.fr.txt").read_text() == "Bonjour\n"

    async def test_a_file_with_a_structure_goes_to_the_documents(self, make_app: MakeApp, tmp_path: Path) -> None:
        (tmp_path / "page.srt").write_text("")
        async with make_app().run_test() as pilot:
            await pilot.press("ctrl+o")
            await until(pilot, lambda: len(pilot.app.screen.query("#dialog")) == 1)
            pilot.app.screen.query_one(Input).value = str(tmp_path / "page.srt")
            await pilot.press("enter")
            await until(pilot, lambda: app_of(pilot).view is View.DOCUMENTS)

    @pytest.mark.parametrize(("data", "said"), [(b"\xff\xff\xff", "is not UTF-8"), (b"a\0b", "is no text")])
    async def test_what_is_no_text_is_refused(self, make_app: MakeApp, tmp_path: Path, data: bytes, said: str) -> None:
        (tmp_path / "x.txt").write_bytes(data)
        async with make_app().run_test(size=(160, 30)) as pilot:
            await pilot.press("ctrl+o")
            await until(pilot, lambda: len(pilot.app.screen.query("#dialog")) == 1)
            pilot.app.screen.query_one(Input).value = str(tmp_path / "x.txt")
            await pilot.press("enter")
            await until(pilot, lambda: said in notice(pilot).upper() or said in notice(pilot))
            assert source(pilot).text == ""

    def test_a_pipe_is_refused_instead_of_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.txt")
        with pytest.raises(DocumentError, match="is no file"):
            read_text_file(tmp_path / "pipe.txt")

    def test_an_error_names_the_encoding_as_people_do(self, tmp_path: Path) -> None:
        (tmp_path / "x.txt").write_bytes(b"ab\xff")
        with pytest.raises(DocumentError, match=r"is not UTF-8 \(byte 2\)"):
            read_text_file(tmp_path / "x.txt")


class TestMessagesDuringARun:
    async def test_progress_leaves_a_message_time_to_be_read(
        self, make_app: MakeApp, service: FakeService, clock: FakeClock
    ) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "Good morning!")
            await until(pilot, lambda: len(service.jobs) == 1)
            service.job.put(started(service.job.request))
            await pilot.press("ctrl+c")
            said = notice(pilot)
            service.job.put(TextDelta(0, "Bon"))

            def bon() -> bool:
                clock.advance(0.05)
                return target(pilot).shown == "Bon"

            await until(pilot, bon)
            app_of(pilot).translate_screen._show_progress()
            assert notice(pilot) == said
            clock.advance(5)
            app_of(pilot).translate_screen._show_progress()
            assert "Esc cancels" in notice(pilot)


class TestLayout:
    @pytest.mark.parametrize(
        ("layout", "columns", "is_beside"),
        [("auto", 120, True), ("auto", 80, False), ("side", 80, True), ("stack", 120, False)],
    )
    async def test_the_setting_decides_where_the_panes_are(
        self, make_app: MakeApp, layout: str, columns: int, is_beside: bool
    ) -> None:
        async with make_app(layout=layout).run_test(size=(columns, 30)) as pilot:
            await pilot.pause()
            assert (source(pilot).region.y == target(pilot).region.y) is is_beside


async def test_every_view_is_reached_by_f6_and_every_action_by_the_palette(make_app: MakeApp) -> None:
    async with make_app().run_test() as pilot:
        seen = []
        for _ in View:
            await pilot.press("f6")
            await pilot.pause()
            seen.append(app_of(pilot).view)
        assert seen == [*list(View)[1:], View.TRANSLATE]
        titles = [command.title for command in app_of(pilot).get_system_commands(pilot.app.screen)]
        assert len(titles) == len(set(titles))
        assert "Settings: Change" in titles
        await pilot.press("shift+f6")
        await until(pilot, lambda: app_of(pilot).view is View.SETTINGS)
