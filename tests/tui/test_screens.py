"""Whole screens as text, at the two sizes that matter: what a person would see."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from textual.pilot import Pilot

from hymt_local.application import Application
from hymt_local.events import Failed, ModelLoading, Origin, SegmentDone, TextDelta, TokenUsage
from hymt_local.memory.history import History, Translation
from hymt_local.paths import Paths
from hymt_local.tui.compat import cell_widths_as
from hymt_local.tui.terminal import Terminal
from hymt_local.tui.views import View
from tests.machines import machine
from tests.tui.conftest import XTERM, MakeApp
from tests.tui.driving import app_of, at_rest, paste, screen_text, status, until
from tests.tui.fakes import NOT_COVERED, FakeClock, FakeService, answer, finished, started
from tests.tui.screens import PAST

SIZES = [(80, 24), (120, 40)]
ENGLISH = "Good morning! Where is the train station?\n\nI would like a table for two, please."
FRENCH = "Bonjour ! Où est la gare ?\n\nJe voudrais une table pour deux, s’il vous plaît."
# UDHR, article 1, of which many translations exist: long enough to wrap in every layout.
TRANSLATED = {
    "zh": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    "ar": (
        "يولد جميع الناس أحراراً متساوين في الكرامة والحقوق. "
        "وقد وهبوا عقلاً وضميراً وعليهم أن يعامل بعضهم بعضاً بروح الإخاء."
    ),
    "my": "လူတိုင်းသည် တူညီ လွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့် လည်းကောင်း၊ တူညီလွတ်လပ်သော အခွင့်အရေးများဖြင့် လည်းကောင်း၊ မွေးဖွားလာသူများ ဖြစ်သည်။",
}


class TextFile(SingleFileSnapshotExtension):
    """One reviewable text file per screen."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.fixture
def screen(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(TextFile)


async def draw(pilot: Pilot[None], screen: SnapshotAssertion, name: str) -> None:
    """Compare the screen at both sizes."""
    for columns, rows in SIZES:
        await pilot.resize_terminal(columns, rows)
        await pilot.pause()
        assert screen_text(pilot.app) == screen(name=f"{name}_{columns}x{rows}")


async def test_a_run_from_the_empty_window_to_the_end(
    make_app: MakeApp, service: FakeService, clock: FakeClock, screen: SnapshotAssertion
) -> None:
    async with make_app(model=1).run_test(size=SIZES[0]) as pilot:
        await draw(pilot, screen, "1_empty")
        await paste(pilot, ENGLISH)
        await until(pilot, lambda: len(service.jobs) == 1)
        job = service.job
        job.put(started(job.request))
        job.put(ModelLoading("demo", 0.4))
        await until(pilot, lambda: bool(clock.pending))
        clock.advance(0.05)
        await draw(pilot, screen, "2_loading")
        usage = TokenUsage(prompt_tokens=20, output_tokens=9, decode_s=0.3)
        job.put(SegmentDone(0, ENGLISH.split("\n")[0], FRENCH.split("\n")[0], Origin.MODEL, usage))
        job.put(SegmentDone(1, "", "", Origin.SOURCE))
        job.put(TextDelta(2, "Je voudrais une"))
        await until(pilot, lambda: bool(clock.pending))
        clock.advance(0.05)
        await draw(pilot, screen, "3_streaming")
        job.put(finished(job.request, FRENCH))
        await until(pilot, lambda: "Translated" in status(pilot))
        await draw(pilot, screen, "4_translated")


@pytest.mark.parametrize("target_lang", TRANSLATED)
async def test_other_scripts(
    make_app: MakeApp, service: FakeService, screen: SnapshotAssertion, target_lang: str
) -> None:
    with cell_widths_as(XTERM):
        app = make_app(target_lang=target_lang, terminal=Terminal(cell_widths=XTERM))
        async with app.run_test(size=SIZES[0]) as pilot:
            await paste(pilot, ENGLISH)
            await until(pilot, lambda: len(service.jobs) == 1)
            answer(service.job, TRANSLATED[target_lang])
            await until(pilot, lambda: "Translated" in status(pilot))
            await draw(pilot, screen, target_lang)


async def test_an_error(make_app: MakeApp, service: FakeService, screen: SnapshotAssertion) -> None:
    async with make_app(model=1).run_test(size=SIZES[0]) as pilot:
        await paste(pilot, ENGLISH)
        await until(pilot, lambda: len(service.jobs) == 1)
        service.job.put(started(service.job.request))
        service.job.put(Failed(NOT_COVERED))
        await until(pilot, lambda: NOT_COVERED.message in status(pilot))
        await pilot.pause()
        assert screen_text(pilot.app) == screen


@pytest.mark.parametrize(
    "keys", [("f2",), ("f2", "f2", *"ara"), ("f9",), ("f1",)], ids=["into", "from", "model", "help"]
)
async def test_a_dialog(make_app: MakeApp, screen: SnapshotAssertion, keys: tuple[str, ...]) -> None:
    async with make_app().run_test(size=SIZES[0]) as pilot:
        await pilot.press(*keys)
        await pilot.pause()
        drawn = screen_text(pilot.app)
        assert drawn == screen


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("view", [View.DOCUMENTS, View.HISTORY, View.MODELS, View.SETTINGS])
async def test_a_view(
    make_app: MakeApp,
    screen: SnapshotAssertion,
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
    view: View,
    language: str,
) -> None:
    monkeypatch.setattr(Application, "probe_machine", lambda self: machine(16, 6))
    monkeypatch.setattr("hymt_local.tui.history_screen.day_text", lambda seconds: "2026-11-30 21:07")
    monkeypatch.setattr(Paths, "config_file", Path("config.toml"))
    history = History(paths.database)
    for source, target, source_lang, target_lang in PAST:
        history.add(Translation(source, target, source_lang, target_lang, "demo"))
    history.close()
    async with make_app(ui_language=language).run_test(size=SIZES[0]) as pilot:
        await pilot.press(f"alt+{view.number}")
        await until(pilot, lambda: app_of(pilot).view is view)
        await at_rest(pilot)
        if view is View.SETTINGS:  # two of them: the picture is not about how many there are
            await pilot.press("slash", *"theme")
            await pilot.press("enter")
        await pilot.press("down", "down")
        await at_rest(pilot)
        await draw(pilot, screen, view)


@pytest.mark.parametrize("size", [(20, 5), (40, 10), (60, 14)])
async def test_a_small_terminal_keeps_what_counts(
    make_app: MakeApp, service: FakeService, screen: SnapshotAssertion, size: tuple[int, int]
) -> None:
    async with make_app().run_test(size=size) as pilot:
        await paste(pilot, ENGLISH)
        await until(pilot, lambda: len(service.jobs) == 1)
        answer(service.job, FRENCH)
        await until(pilot, lambda: "Translated" in status(pilot))
        await pilot.pause()
        drawn = screen_text(pilot.app)
        assert drawn == screen
        assert "gare" in drawn


async def test_dark_light_and_sixteen_colour_themes_have_the_colours_we_use(make_app: MakeApp) -> None:
    async with make_app().run_test() as pilot:
        for theme in ("textual-light", "ansi-dark", "solarized-light", "nord"):
            pilot.app.theme = theme
            await pilot.pause()
            assert "Ready" in status(pilot)
