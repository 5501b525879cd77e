"""The translate view: what each action does, and what a run shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from hymt_local.errors import ErrorReport
from hymt_local.events import (
    Failed,
    ModelLoading,
    Origin,
    Priority,
    PromptProgress,
    SegmentDone,
    TextDelta,
    TokenUsage,
)
from hymt_local.tui.terminal import Terminal
from tests.tui.conftest import MakeApp
from tests.tui.driving import languages, paste, source, status, target, until
from tests.tui.fakes import NOT_COVERED, FakeClock, FakeService, answer, finished, started


class TestAsking:
    async def test_each_translate_key_sends_the_text(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app(live=False).run_test() as pilot:
            await pilot.press("h", "i")
            for count, key in enumerate(["f5", "ctrl+t", "ctrl+enter"], start=1):
                await pilot.press(key)
                await until(pilot, lambda count=count: len(service.jobs) == count)  # type: ignore[misc]
        request = service.requests[0]
        assert (request.text, request.source_lang, request.target_lang) == ("hi", None, "fr")
        assert (request.model, request.priority) == ("Hy-MT2-1.8B:Q4_K_M", Priority.INTERACTIVE)

    async def test_settings_reach_the_request(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app(live=False, source_lang="en", cache=False, temperature=0.7, seed=3).run_test() as pilot:
            await pilot.press("x", "f5")
            await until(pilot, lambda: len(service.jobs) == 1)
        request = service.requests[0]
        assert (request.source_lang, request.use_cache) == ("en", False)
        assert request.sampling is not None
        assert (request.sampling.temperature, request.sampling.seed) == (0.7, 3)

    async def test_an_empty_pane_asks_for_text(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app().run_test() as pilot:
            await pilot.press("f5")
            assert "no text yet" in status(pilot)
        assert service.jobs == []

    async def test_the_window_paints_before_anything_is_asked_of_the_service(
        self, make_app: MakeApp, service: FakeService
    ) -> None:
        async with make_app().run_test() as pilot:
            assert "Ready" in status(pilot)
            assert languages(pilot) == ("Detect language", "French · Français")
        assert service.jobs == []


class TestARun:
    async def test_shows_loading_reading_writing_and_the_end(
        self, make_app: MakeApp, service: FakeService, clock: FakeClock
    ) -> None:
        async with make_app().run_test(size=(100, 30)) as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            seen = []
            for event in (
                started(service.job.request),
                ModelLoading("Hy-MT2-1.8B:Q4_K_M", 0.5),
                PromptProgress(0, 10, 40),
                TextDelta(0, "Bon"),
            ):
                service.job.put(event)
                await until(pilot, lambda: bool(clock.pending))
                clock.advance(0.05)
                await pilot.pause()
                seen.append(status(pilot).split("\n")[0])
            assert target(pilot).shown == "Bon"
            service.job.put(finished(service.job.request, "Bonjour"))
            await until(pilot, lambda: target(pilot).shown == "Bonjour")
            seen.append(status(pilot).split("\n")[0])
        assert [line.split(" ")[0] for line in seen] == ["Starting", "Loading", "Reading", "Translating", "Translated"]
        assert "50%" in seen[1]
        assert "10 of 40 tokens" in seen[2]
        assert "Esc cancels" in seen[3]
        assert "40 tokens/s · 60 tokens" in seen[4]

    async def test_streams_at_most_twenty_times_a_second(
        self, make_app: MakeApp, service: FakeService, clock: FakeClock
    ) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            service.job.put(started(service.job.request))
            for piece in "Bonjour":
                service.job.put(TextDelta(0, piece))
            await until(pilot, lambda: bool(clock.pending))
            assert target(pilot).shown == ""
            assert [alarm.due for alarm in clock.pending] == [0.05]
            clock.advance(0.05)
            assert target(pilot).shown == "Bonjour"

    async def test_over_a_network_it_repaints_half_as_often(
        self, make_app: MakeApp, service: FakeService, clock: FakeClock
    ) -> None:
        async with make_app(terminal=Terminal(is_remote=True)).run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            service.job.put(started(service.job.request))
            await until(pilot, lambda: [alarm.due for alarm in clock.pending] == [0.1])

    async def test_segments_in_flight_are_shown_in_order_and_between_their_own_space(
        self, make_app: MakeApp, service: FakeService, clock: FakeClock
    ) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "  one\n\ntwo\nthree")
            await until(pilot, lambda: len(service.jobs) == 1)
            job, shown = service.job, []
            for event in (
                started(job.request),
                SegmentDone(1, "", "", Origin.SOURCE),
                TextDelta(2, "DE"),
                TextDelta(0, "u"),
                TextDelta(0, "n"),
                SegmentDone(0, "one", "un", Origin.MODEL),
                TextDelta(2, "UX"),
                SegmentDone(2, "two", "deux", Origin.MODEL),
                SegmentDone(3, "three", "trois", Origin.CACHE),
            ):
                job.put(event)
                await until(pilot, lambda: bool(clock.pending))
                clock.advance(0.05)
                shown.append(target(pilot).shown)
            job.put(finished(job.request, "  un\n\ndeux\ntrois"))
            await until(pilot, lambda: "Translated" in status(pilot))
            assert "1 of 4 from the cache" in status(pilot)
        assert shown == [
            "", "", "", "  u", "  un", "  un\n\nDE", "  un\n\nDEUX", "  un\n\ndeux\n", "  un\n\ndeux\ntrois",
        ]  # fmt: skip

    async def test_the_final_text_wins_over_what_was_streamed(
        self, make_app: MakeApp, service: FakeService, clock: FakeClock
    ) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            service.job.put(started(service.job.request))
            service.job.put(TextDelta(0, "Bonsoir, le monde"))
            await until(pilot, lambda: bool(clock.pending))
            clock.advance(0.05)
            service.job.put(finished(service.job.request, "Bonjour"))
            await until(pilot, lambda: target(pilot).shown == "Bonjour")
            assert target(pilot).text == "Bonjour"

    async def test_says_when_the_text_came_from_the_cache(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "Bonjour", origin=Origin.CACHE)
            await until(pilot, lambda: "From the cache" in status(pilot))

    async def test_says_when_the_text_is_in_the_target_language(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app(source_lang="fr").run_test() as pilot:
            await paste(pilot, "Bonjour")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "Bonjour", origin=Origin.SOURCE)
            await until(pilot, lambda: "in French already" in status(pilot))

    async def test_shows_the_detected_language_with_its_confidence(
        self, make_app: MakeApp, service: FakeService
    ) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "你好")
            await until(pilot, lambda: len(service.jobs) == 1)
            service.job.put(started(service.job.request, source_lang="zh", confidence=0.87))
            await until(pilot, lambda: languages(pilot)[0] == "Chinese · 中文 · detected 87%")

    async def test_names_model_and_kind_and_shows_the_banner_for_the_demo_only(self, make_app: MakeApp) -> None:
        shown = []
        for model in range(3):
            async with make_app(model=model).run_test() as pilot:
                shown.append(status(pilot).split("\n")[1:])
        banner = "Demo phrasebook: a real model translates anything: Alt+4"
        assert shown == [["", "Hy-MT2-1.8B:Q4_K_M"], [banner, "demo"], ["", "echo · test"]]


class TestGoingWrong:
    async def test_a_failure_shows_message_and_hint_and_keeps_the_text(
        self, make_app: MakeApp, service: FakeService
    ) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            service.job.put(Failed(NOT_COVERED))
            await until(pilot, lambda: NOT_COVERED.message in status(pilot))
            assert NOT_COVERED.hint in status(pilot)
            assert source(pilot).text == "Hello"
            assert target(pilot).shown == ""

    async def test_failed_segments_stay_source_text_and_are_counted(
        self, make_app: MakeApp, service: FakeService
    ) -> None:
        async with make_app().run_test(size=(120, 30)) as pilot:
            await paste(pilot, "one\ntwo")
            await until(pilot, lambda: len(service.jobs) == 1)
            job = service.job
            failed = SegmentDone(1, "two", "two", Origin.SOURCE, TokenUsage(), NOT_COVERED)
            for event in (
                started(job.request),
                SegmentDone(0, "one", "un", Origin.MODEL),
                failed,
                finished(job.request, "un\ntwo", failed=(failed,)),
            ):
                job.put(event)
            await until(pilot, lambda: "1 of 2 segments stay source text" in status(pilot))
            assert NOT_COVERED.message in status(pilot)
            assert target(pilot).shown == "un\ntwo"
            plain, marked = (target(pilot).get_line(row).spans for row in (0, 1))
            assert (len(plain), len(marked)) == (0, 1)

    async def test_an_unexpected_error_of_the_service_is_shown_and_the_text_kept(
        self, make_app: MakeApp, service: FakeService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def explode(request: object) -> None:
            raise RuntimeError("boom")

        monkeypatch.setattr(service, "submit", explode)
        async with make_app().run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: "internal error: RuntimeError('boom')" in status(pilot))
            assert source(pilot).text == "Hello"

    async def test_what_went_wrong_beside_the_translation_is_said_once(
        self, make_app: MakeApp, service: FakeService
    ) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            service.warnings = ("translations are not remembered: the disk is full",)
            answer(service.job, "Bonjour")
            await until(pilot, lambda: "the disk is full" in status(pilot))
            await pilot.press("ctrl+r")
            await until(pilot, lambda: len(service.jobs) == 2)
            answer(service.job, "Bonjour")
            await until(pilot, lambda: "Translated" in status(pilot))

    async def test_a_failure_hides_the_translation_of_an_older_text(
        self, make_app: MakeApp, service: FakeService
    ) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "Bonjour")
            await until(pilot, lambda: target(pilot).shown == "Bonjour")
            await pilot.press("f5")
            await until(pilot, lambda: len(service.jobs) == 2)
            service.job.put(Failed(ErrorReport("engine", "it broke", "", 4, 503)))
            await until(pilot, lambda: "it broke" in status(pilot))
            assert target(pilot).shown == ""


class TestStopping:
    async def test_escape_cancels_and_keeps_what_was_written(
        self, make_app: MakeApp, service: FakeService, clock: FakeClock
    ) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            service.job.put(started(service.job.request))
            service.job.put(TextDelta(0, "Bon"))
            await until(pilot, lambda: bool(clock.pending))
            clock.advance(0.05)
            await pilot.press("escape")
            await until(pilot, lambda: service.cancelled == service.jobs)
            assert "Cancelled" in status(pilot)
            assert target(pilot).shown == "Bon"

    async def test_quitting_during_a_run_cancels_it(self, make_app: MakeApp, service: FakeService) -> None:
        app = make_app()
        async with app.run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            service.job.put(started(service.job.request))
            await pilot.press("ctrl+q")
        assert service.cancelled == service.jobs
        assert app.return_code == 0

    async def test_clear_empties_both_panes_and_undo_brings_the_text_back(
        self, make_app: MakeApp, service: FakeService
    ) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "Bonjour")
            await until(pilot, lambda: target(pilot).shown == "Bonjour")
            await pilot.press("ctrl+l")
            assert (source(pilot).text, target(pilot).shown) == ("", "")
            assert languages(pilot)[0] == "Detect language"
            await pilot.press("ctrl+z")
            assert source(pilot).text == "Hello"


class TestSwap:
    async def test_swaps_languages_and_texts_without_a_run(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app(source_lang="en").run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "Bonjour")
            await until(pilot, lambda: target(pilot).shown == "Bonjour")
            await pilot.press("f3")
            assert (source(pilot).text, target(pilot).shown) == ("Bonjour", "Hello")
            assert languages(pilot) == ("French · Français", "English")
        assert len(service.jobs) == 1

    async def test_uses_the_detected_language(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "你好")
            await until(pilot, lambda: len(service.jobs) == 1)
            service.job.put(started(service.job.request, source_lang="zh"))
            service.job.put(finished(service.job.request, "Bonjour"))
            await until(pilot, lambda: target(pilot).shown == "Bonjour")
            await pilot.press("f3")
            assert languages(pilot) == ("French · Français", "Chinese · 中文")

    async def test_says_what_to_do_when_no_language_is_known(self, make_app: MakeApp) -> None:
        async with make_app().run_test() as pilot:
            await pilot.press("f3")
            assert "No language detected yet" in status(pilot)
            assert languages(pilot) == ("Detect language", "French · Français")

    async def test_translates_again_when_the_text_has_changed_since(
        self, make_app: MakeApp, service: FakeService
    ) -> None:
        async with make_app(source_lang="en").run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "Bonjour")
            await until(pilot, lambda: target(pilot).shown == "Bonjour")
            await pilot.press("!", "f3")
            await until(pilot, lambda: len(service.jobs) == 2)
        request = service.requests[1]
        assert (request.text, request.source_lang, request.target_lang) == ("Bonjour", "fr", "en")


class TestCopying:
    async def test_without_a_tool_the_file_holds_the_text_and_the_status_says_so(
        self, make_app: MakeApp, service: FakeService, copy_file: Path
    ) -> None:
        async with make_app().run_test(size=(160, 30)) as pilot:
            await paste(pilot, "hi")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "سلام\u200cها")
            await until(pilot, lambda: "Translated" in status(pilot))
            await pilot.press("f4")
            await until(pilot, lambda: "OSC 52" in status(pilot))
            assert str(copy_file) in status(pilot)
            assert pilot.app.clipboard == "سلام\u200cها"
        assert copy_file.read_text(encoding="utf-8") == "سلام\u200cها"
        assert copy_file.stat().st_mode & 0o777 == 0o600

    async def test_the_first_tool_that_works_gets_the_text(
        self, make_app: MakeApp, service: FakeService, tmp_path: Path
    ) -> None:
        tools = tmp_path / "bin"
        tools.mkdir()
        for name, script in (("wl-copy", "exit 1"), ("xclip", f"cat > {tmp_path}/clipboard"), ("xsel", "exit 1")):
            (tools / name).write_text(f"#!/bin/sh\n{script}\n")
            (tools / name).chmod(0o755)
        async with make_app(search_path=str(tools)).run_test(size=(160, 30)) as pilot:
            await paste(pilot, "hi")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "你好")
            await until(pilot, lambda: "Translated" in status(pilot))
            await pilot.press("f4")
            await pilot.app.workers.wait_for_complete()
            await until(pilot, lambda: "Copied with xclip" in status(pilot))
        assert (tmp_path / "clipboard").read_text(encoding="utf-8") == "你好"

    async def test_a_file_that_cannot_be_written_is_reported(
        self, make_app: MakeApp, service: FakeService, copy_file: Path
    ) -> None:
        copy_file.parent.write_text("a file where a folder should be")
        async with make_app().run_test(size=(200, 30)) as pilot:
            await paste(pilot, "hi")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "Bonjour")
            await until(pilot, lambda: "Translated" in status(pilot))
            await pilot.press("f4")
            await pilot.app.workers.wait_for_complete()
            await until(pilot, lambda: "no file: cannot write" in status(pilot))

    async def test_nothing_to_copy_is_said(self, make_app: MakeApp, copy_file: Path) -> None:
        async with make_app().run_test() as pilot:
            await pilot.press("f4")
            assert "no translation to copy" in status(pilot)
        assert not copy_file.exists()

    async def test_a_selection_is_copied_the_same_way(self, make_app: MakeApp, copy_file: Path) -> None:
        async with make_app(live=False).run_test() as pilot:
            await paste(pilot, "Hello")
            await pilot.press("f7", "ctrl+c")
            await pilot.app.workers.wait_for_complete()
        assert copy_file.read_text() == "Hello"
