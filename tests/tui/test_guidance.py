"""Style, context and terms: asked for in one dialog, kept as settings, told to models that take them."""

from __future__ import annotations

import tomllib

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from hymt_local.events import ModelLoaded, TokenUsage
from hymt_local.paths import Paths
from hymt_local.segment import Guidance, GuidanceKind, Term
from hymt_local.tui.guidance_dialog import GuidanceDialog, parsed_terms
from hymt_local.tui.panes import SourceArea
from hymt_local.tui.views import View
from tests.tui.conftest import MODELS, MakeApp
from tests.tui.driving import app_of, at_rest, detail, languages, paste, screen_text, status, until
from tests.tui.fakes import FakeService, answer, finished, started

DEMO = 1


async def open_dialog(pilot: Pilot[None]) -> GuidanceDialog:
    await pilot.press("alt+g")
    await until(pilot, lambda: isinstance(pilot.app.screen, GuidanceDialog) and pilot.app.screen.is_mounted)
    await pilot.pause()
    assert isinstance(pilot.app.screen, GuidanceDialog)
    return pilot.app.screen


async def test_what_is_said_is_told_shown_kept_and_translates_again(
    make_app: MakeApp, service: FakeService, paths: Paths
) -> None:
    async with make_app().run_test(size=(120, 40)) as pilot:
        await paste(pilot, "The cat sleeps")
        await until(pilot, lambda: len(service.jobs) == 1)
        answer(service.job, "Le chat dort")
        dialog = await open_dialog(pilot)
        await pilot.press(*"formal", "tab", *"Tale", "tab")
        dialog.query_one("#guidance-terms", SourceArea).rewrite("cat = minou\n")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: len(service.jobs) == 2)
        assert service.job.request.guidance == Guidance((Term("cat", "minou"),), "Tale", "formal")
        assert "formal · terms: 1 · context" in languages(pilot)[1]
        written = tomllib.loads(paths.config_file.read_text())
        assert written == {"style": "formal", "context": "Tale", "terms": {"cat": "minou"}}
    service.jobs.clear()
    async with make_app().run_test(size=(120, 40)) as pilot:
        assert "formal" in languages(pilot)[1]
        dialog = await open_dialog(pilot)
        dialog.query_one("#guidance-style", Input).value = ""
        dialog.query_one("#guidance-context", SourceArea).rewrite("")
        dialog.query_one("#guidance-terms", SourceArea).rewrite("")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: tomllib.loads(paths.config_file.read_text()) == {})


async def test_a_line_that_is_no_term_is_told_and_nothing_is_lost(make_app: MakeApp, paths: Paths) -> None:
    async with make_app().run_test(size=(80, 24)) as pilot:
        dialog = await open_dialog(pilot)
        dialog.query_one("#guidance-terms", SourceArea).rewrite("cat = chat\nonly a word")
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert "only a word" in str(dialog.query_one("#problem", Static).render())
        await pilot.press("escape")
        await pilot.pause()
        assert not paths.config_file.exists()


async def test_a_model_that_cannot_be_told_says_so_and_is_asked_without(
    make_app: MakeApp, service: FakeService
) -> None:
    async with make_app(model=DEMO, style="formal").run_test(size=(120, 40)) as pilot:
        assert "formal" not in languages(pilot)[1]
        dialog = await open_dialog(pilot)
        shown = screen_text(pilot.app)
        assert "Demo phrasebook translates the text alone; Hy-MT2 can be told more" in shown
        assert shown.count("was not trained to take this") == 3
        fields = [len(dialog.query(f"#guidance-{kind}")) for kind in GuidanceKind]
        assert fields == [0, 0, 1], "only what is set can be taken back"
        await pilot.press("escape")
        await paste(pilot, "Hello")
        await until(pilot, lambda: len(service.jobs) == 1)
        assert service.job.request.guidance == Guidance()
        await pilot.press("f9", "up", "enter")
        await until(pilot, lambda: len(service.jobs) == 2)
        assert service.job.request.model == MODELS[0].ref
        assert service.job.request.guidance == Guidance(style="formal")
        assert "formal" in languages(pilot)[1]


async def test_in_the_settings_enter_opens_the_same_dialog(make_app: MakeApp, paths: Paths) -> None:
    async with make_app().run_test(size=(120, 40)) as pilot:
        await pilot.press("alt+5")
        await until(pilot, lambda: app_of(pilot).view is View.SETTINGS)
        await pilot.pause()
        app_of(pilot).screen.choose_row("terms")  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, GuidanceDialog))
        await pilot.pause()
        await pilot.press(*"casual", "ctrl+s")
        await until(pilot, lambda: paths.config_file.exists())
        app_of(pilot).screen.choose_row("style")  # type: ignore[attr-defined]
        await until(pilot, lambda: "casual" in detail(pilot))


@pytest.mark.parametrize(
    ("text", "terms", "wrong"),
    [
        ("a = b\n\n c=d ", [("a", "b"), ("c", "d")], []),
        ("a = b\na = c", [("a", "c")], []),
        ("f(x) = y = z", [("f(x)", "y = z")], []),
        ("a\n= b\nc =", [], ["a", "= b", "c ="]),
    ],
)
def test_a_term_stands_in_each_line(text: str, terms: list[tuple[str, str]], wrong: list[str]) -> None:
    found, bad = parsed_terms(text)
    assert ([(term.source, term.target) for term in found], bad) == (terms, wrong)


@pytest.mark.parametrize(
    ("loaded", "shown"),
    [
        (ModelLoaded("m", 4096, n_gpu_layers=20, n_layers=33, gpu="X"), "GPU 20/33"),
        (ModelLoaded("m", 4096, n_layers=33), "CPU"),
    ],
    ids=["offloaded", "processor"],
)
async def test_the_status_line_says_where_the_layers_are(
    make_app: MakeApp, service: FakeService, loaded: ModelLoaded, shown: str
) -> None:
    async with make_app().run_test(size=(120, 40)) as pilot:
        await paste(pilot, "Hello")
        await until(pilot, lambda: len(service.jobs) == 1)
        job = service.job
        job.put(started(job.request))
        job.put(loaded)
        usage = TokenUsage(prompt_tokens=30, reused_tokens=10, output_tokens=60, prompt_s=0.5, decode_s=1.5)
        job.put(finished(job.request, "Bonjour", usage=usage))
        await until(pilot, lambda: "Translated" in status(pilot))
        await at_rest(pilot)
        details = str(app_of(pilot).translate_screen.query_one("#status-details", Static).render())
        assert details == f"reads 40/s · writes 40/s · reused 33% · {shown} · RAM 50 MiB"
