"""The terminal UI with everything around it faked."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hymt_local.application import Application, open_application
from hymt_local.language import LANGUAGES
from hymt_local.paths import Paths
from hymt_local.tui import translate_screen
from hymt_local.tui.app import HymtApp
from hymt_local.tui.choices import ModelChoice
from hymt_local.tui.opening import open_environment
from hymt_local.tui.terminal import CellWidths, Terminal
from tests.machines import machine
from tests.tui.fakes import FakeClock, FakeService

MODELS = (
    ModelChoice("Hy-MT2-1.8B:Q4_K_M", "Hy-MT2 1.8B", "translation"),
    ModelChoice("demo", "Demo phrasebook", "demo"),
    ModelChoice("echo", "Echo (returns the source text)", "test"),
)
XTERM = CellWidths(spacing_mark_cells=1, joins_skin_tone=False, joins_emoji=False, widens_emoji_selector=False)
KITTY = CellWidths(spacing_mark_cells=0, joins_skin_tone=True, joins_emoji=True, widens_emoji_selector=True)

MakeApp = Callable[..., HymtApp]


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def copy_file(paths: Paths) -> Path:
    return paths.last_translation


@pytest.fixture(autouse=True)
def same_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is shown of this machine be the same everywhere: 8 GB, no GPU, a program of 50 MiB."""
    monkeypatch.setattr(Application, "probe_machine", lambda self: machine(8))
    monkeypatch.setattr(translate_screen, "rss_bytes", lambda application: 50 << 20)


@pytest.fixture
def make_app(service: FakeService, clock: FakeClock) -> MakeApp:
    """Return a maker of apps; keyword arguments are settings, but for `terminal`, `model` and `search_path`."""

    def make(
        *, terminal: Terminal | None = None, model: int = 0, search_path: str = "", **settings: str | bool | int
    ) -> HymtApp:
        opened = open_environment(
            service,
            open_application(os.environ, flags={"target_lang": "fr", **settings}),
            environ=os.environ,
            languages=LANGUAGES,
            models=MODELS,
            terminal=terminal or Terminal(cell_widths=KITTY),
            clock=clock,
            search_path=search_path,
        )
        return HymtApp(opened.environment, current=MODELS[model].ref, problems=opened.problems)

    return make
