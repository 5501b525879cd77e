"""Live translation: what starts a run by itself, what does not, and what becomes of the run in flight."""

from __future__ import annotations

import pytest

from hymt_local.events import TextDelta
from hymt_local.tui.live import LONGEST_PAUSE_S, MOST_CHARACTERS, LivePause, is_live_text
from tests.tui.conftest import MakeApp
from tests.tui.driving import paste, source, status, target, until
from tests.tui.fakes import FakeClock, FakeService, answer, finished, started


class TestStarting:
    async def test_typing_waits_for_a_pause(self, make_app: MakeApp, service: FakeService, clock: FakeClock) -> None:
        async with make_app(live_pause_ms=300).run_test() as pilot:
            await pilot.press("h", "i")
            clock.advance(0.29)
            await pilot.press("!")
            clock.advance(0.29)
            await pilot.pause()
            assert service.jobs == []
            clock.advance(0.01)
            await until(pilot, lambda: [request.text for request in service.requests] == ["hi!"])

    async def test_a_paste_starts_at_once(self, make_app: MakeApp, service: FakeService, clock: FakeClock) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            assert clock.pending == []

    async def test_one_character_is_not_enough(self, make_app: MakeApp, service: FakeService, clock: FakeClock) -> None:
        async with make_app().run_test() as pilot:
            await pilot.press("h", "space")
            await paste(pilot, " ")
            clock.advance(10)
            await pilot.pause()
        assert service.jobs == []

    async def test_a_very_long_text_waits_to_be_asked_for(
        self, make_app: MakeApp, service: FakeService, clock: FakeClock
    ) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "word " * (MOST_CHARACTERS // 5 + 1))
            clock.advance(10)
            await pilot.pause()
            assert "Long text: F5 translates" in status(pilot)
            assert service.jobs == []
            await pilot.press("f5")
            await until(pilot, lambda: len(service.jobs) == 1)

    async def test_another_language_starts_at_once(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "Bonjour")
            await until(pilot, lambda: target(pilot).shown == "Bonjour")
            await pilot.press("f2", *"german", "enter")
            await until(pilot, lambda: len(service.jobs) == 2)
        assert service.requests[1].target_lang == "de"

    async def test_switched_off_nothing_starts_by_itself_and_switched_on_it_catches_up(
        self, make_app: MakeApp, service: FakeService, clock: FakeClock
    ) -> None:
        async with make_app(live=False).run_test() as pilot:
            await paste(pilot, "Hello")
            await pilot.press("!")
            clock.advance(10)
            await pilot.pause()
            assert service.jobs == []
            await pilot.press("f8")
            await until(pilot, lambda: len(service.jobs) == 1)


class TestDraft:
    async def test_an_edited_text_starts_from_its_last_translation(
        self, make_app: MakeApp, service: FakeService
    ) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "Bonjour")
            await until(pilot, lambda: target(pilot).shown == "Bonjour")
            await paste(pilot, "!")
            await until(pilot, lambda: len(service.jobs) == 2)
            await pilot.press("f2", *"german", "enter")
            await until(pilot, lambda: len(service.jobs) == 3)
        assert [request.draft for request in service.requests] == [None, "Bonjour", None]


class TestTheRunInFlight:
    async def test_new_input_cancels_it_and_what_it_still_says_is_ignored(
        self, make_app: MakeApp, service: FakeService, clock: FakeClock
    ) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            first = service.job
            first.put(started(first.request))
            first.put(TextDelta(0, "Bon"))
            await until(pilot, lambda: bool(clock.pending))
            await pilot.press("!")
            await until(pilot, lambda: service.cancelled == [first])
            clock.advance(1)
            await until(pilot, lambda: len(service.jobs) == 2)
            answer(service.job, "Salut !")
            await until(pilot, lambda: target(pilot).shown == "Salut !")

    async def test_with_live_off_typing_lets_it_finish_and_marks_it_old(
        self, make_app: MakeApp, service: FakeService
    ) -> None:
        async with make_app(live=False).run_test() as pilot:
            await paste(pilot, "Hello")
            await pilot.press("f5")
            await until(pilot, lambda: len(service.jobs) == 1)
            await pilot.press("!")
            answer(service.job, "Bonjour")
            await until(pilot, lambda: target(pilot).shown == "Bonjour")
            assert service.cancelled == []
            assert target(pilot).has_class("-stale")

    async def test_the_old_translation_stays_dimmed_until_new_text_comes(
        self, make_app: MakeApp, service: FakeService, clock: FakeClock
    ) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "Bonjour")
            await until(pilot, lambda: target(pilot).shown == "Bonjour")
            assert not target(pilot).has_class("-stale")
            await paste(pilot, "!")
            await until(pilot, lambda: len(service.jobs) == 2)
            assert target(pilot).shown == "Bonjour"
            assert target(pilot).has_class("-stale")
            service.job.put(started(service.job.request))
            service.job.put(TextDelta(0, "Bonjour !"))
            await until(pilot, lambda: bool(clock.pending))
            clock.advance(0.05)
            assert target(pilot).shown == "Bonjour !"
            assert not target(pilot).has_class("-stale")

    async def test_emptying_the_source_empties_the_target(self, make_app: MakeApp, service: FakeService) -> None:
        async with make_app().run_test() as pilot:
            await paste(pilot, "hi")
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, "salut")
            await until(pilot, lambda: target(pilot).shown == "salut")
            await pilot.press("backspace", "backspace")
            await until(pilot, lambda: target(pilot).shown == "")
            assert source(pilot).text == ""

    async def test_a_slow_model_makes_the_pause_longer(
        self, make_app: MakeApp, service: FakeService, clock: FakeClock
    ) -> None:
        async with make_app(live_pause_ms=400).run_test() as pilot:
            await paste(pilot, "Hello")
            await until(pilot, lambda: len(service.jobs) == 1)
            service.job.put(started(service.job.request))
            service.job.put(finished(service.job.request, "Bonjour", elapsed_s=6.0))
            await until(pilot, lambda: target(pilot).shown == "Bonjour")
            await pilot.press("!")
            assert [alarm.due - clock.time for alarm in clock.pending] == [1.5]


class TestPause:
    def test_a_fast_model_keeps_the_pause_of_the_settings(self) -> None:
        pause = LivePause(0.4)
        pause.observe(0.8)
        assert pause.seconds == 0.4

    def test_it_grows_with_the_measured_time_and_shrinks_again(self) -> None:
        pause = LivePause(0.1)
        pause.observe(4.0)
        slow_s = pause.seconds
        pause.observe(0.4)
        assert 0.1 < pause.seconds < slow_s == 1.0

    @pytest.mark.parametrize("base_s", [0.4, 5.0])
    def test_it_is_bounded_by_the_longest_pause_or_the_settings(self, base_s: float) -> None:
        pause = LivePause(base_s)
        pause.observe(1000.0)
        assert pause.seconds == max(base_s, LONGEST_PAUSE_S)

    @pytest.mark.parametrize(
        ("text", "is_live"), [("", False), ("a", False), (" a \n", False), ("水火", True), ("x" * 20_001, False)]
    )
    def test_which_texts_are_live(self, text: str, is_live: bool) -> None:
        assert is_live_text(text) is is_live
