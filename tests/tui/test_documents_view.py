"""The documents view on the real service: queued, translated, paused and resumed, failures listed and retried."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from hymt_local.application import open_application
from hymt_local.engine.scripted import Behaviour, Echo, Hang, ScriptedBackend, reply
from hymt_local.jobs import LocalService
from hymt_local.language import LANGUAGES
from hymt_local.tui.app import HymtApp
from hymt_local.tui.opening import open_environment
from hymt_local.tui.terminal import Terminal
from hymt_local.tui.views import View
from tests.services import scripted_model
from tests.tui.conftest import KITTY, MODELS
from tests.tui.driving import app_of, detail, notice, rows, until
from tests.tui.fakes import FakeClock

Start = Callable[..., HymtApp]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a maker of apps whose model behaves as told."""
    services: list[LocalService] = []

    def make(*behaviour: Behaviour) -> HymtApp:
        model = scripted_model(ScriptedBackend(*behaviour, context_length=10_000))
        services.append(LocalService(lambda ref: model, cache_path=None))
        opened = open_environment(
            services[-1],
            open_application(os.environ, flags={"source_lang": "en", "target_lang": "fr"}),
            environ=os.environ,
            languages=LANGUAGES,
            models=MODELS,
            terminal=Terminal(cell_widths=KITTY),
            clock=FakeClock(),
            search_path="",
        )
        return HymtApp(opened.environment, current="echo")

    yield make
    for service in services:
        service.close()


@pytest.fixture
def document(tmp_path: Path) -> Path:
    file = tmp_path / "notes.txt"
    file.write_text("One line.\n\nAnother line.\n")
    return file


async def add(pilot: Pilot[None], file: Path) -> None:
    await pilot.press("alt+2")
    await until(pilot, lambda: app_of(pilot).view is View.DOCUMENTS)
    await pilot.press("ctrl+o")
    await until(pilot, lambda: len(pilot.app.screen.query("#dialog")) == 1)
    pilot.app.screen.query_one(Input).value = str(file)
    await pilot.press("enter")
    await until(pilot, lambda: len(rows(pilot)) > 0)


async def test_a_document_is_translated_beside_its_source(start: Start, document: Path) -> None:
    async with start(Echo(str.upper)).run_test(size=(120, 30)) as pilot:
        await add(pilot, document)
        await until(pilot, lambda: "✓ done" in rows(pilot)[0])
        assert "notes.txt" in rows(pilot)[0]
        assert str(document.with_name("notes.fr.txt")) in detail(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: "OSC 52" in notice(pilot))
        assert pilot.app.clipboard == str(document.with_name("notes.fr.txt"))
    assert document.with_name("notes.fr.txt").read_text() == "ONE LINE.\n\nANOTHER LINE.\n"


async def test_what_waits_is_paused_and_goes_on_where_it_was(start: Start, document: Path) -> None:
    async with start(Echo(str.upper), Hang(), Echo(str.upper)).run_test(size=(120, 30)) as pilot:
        await add(pilot, document)
        await until(pilot, lambda: "%" in rows(pilot)[0])
        await pilot.press("p")
        await until(pilot, lambda: "paused" in rows(pilot)[0])
        assert "P goes on" in notice(pilot)
        await pilot.press("p")
        await until(pilot, lambda: "✓ done" in rows(pilot)[0])
    assert document.with_name("notes.fr.txt").read_text() == "ONE LINE.\n\nANOTHER LINE.\n"


async def test_failures_are_listed_with_their_place_and_tried_again(start: Start, document: Path) -> None:
    document.write_text("Hello there.\n")
    async with start(reply(""), reply(""), reply("Bonjour.")).run_test(size=(120, 30)) as pilot:
        await add(pilot, document)
        await until(pilot, lambda: "incomplete" in rows(pilot)[0] or "failed" in rows(pilot)[0])
        assert "Hello there." in detail(pilot)
        await pilot.press("r")
        await until(pilot, lambda: "✓ done" in rows(pilot)[0])
    assert document.with_name("notes.fr.txt").read_text() == "Bonjour.\n"


async def test_a_refused_document_says_why(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "broken.json"
    file.write_text("{]")
    async with start(Echo()).run_test(size=(120, 30)) as pilot:
        await add(pilot, file)
        await until(pilot, lambda: "failed" in rows(pilot)[0])
        assert "R tries again" in detail(pilot)
    assert not (tmp_path / "broken.fr.json").exists()


async def test_leaving_stops_what_runs_and_a_removed_row_is_gone(start: Start, document: Path) -> None:
    async with start(Hang()).run_test(size=(120, 30)) as pilot:
        await add(pilot, document)
        await pilot.press("x")
        await until(pilot, lambda: rows(pilot) == [])
        await add(pilot, document)
    assert not document.with_name("notes.fr.txt").exists()
