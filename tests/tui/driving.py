"""Driving the app in tests: wait for conditions instead of time, read the screen as text."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import App
from textual.events import Paste
from textual.pilot import Pilot
from textual.widgets import Static

from hymt_local.tui.app import HymtApp
from hymt_local.tui.panes import SourceArea, TargetArea

MOST_ROUNDS = 200


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Let the app work until the condition holds; fails when it has nothing left to do that could change that."""
    for _ in range(MOST_ROUNDS):
        if condition():
            return
        await pilot.pause()
    raise AssertionError(f"never happened; the screen:\n{screen_text(pilot.app)}")


async def paste(pilot: Pilot[None], text: str) -> None:
    """Paste as a terminal does, by one event to the app."""
    pilot.app.post_message(Paste(text))
    await pilot.pause()


def app_of(pilot: Pilot[None]) -> HymtApp:
    assert isinstance(pilot.app, HymtApp)
    return pilot.app


def source(pilot: Pilot[None]) -> SourceArea:
    return app_of(pilot).translate_screen.query_one(SourceArea)


def target(pilot: Pilot[None]) -> TargetArea:
    return app_of(pilot).translate_screen.query_one(TargetArea)


def status(pilot: Pilot[None]) -> str:
    """Return the status area as text: state, advice, model."""
    screen = app_of(pilot).translate_screen
    return "\n".join(
        str(screen.query_one(selector, Static).render())
        for selector in ("#status-state", "#status-advice", "#status-model")
    )


def languages(pilot: Pilot[None]) -> tuple[str, str]:
    """Return what the language bar shows."""
    screen = app_of(pilot).translate_screen
    texts = [str(screen.query_one(selector, Static).render()) for selector in ("#source-language", "#target-language")]
    return texts[0], texts[1]


def screen_text(app: App[None]) -> str:
    """Return what the compositor draws, row by row, without trailing spaces."""
    rows = [strip.text.rstrip() for strip in app.screen._compositor.render_strips(app.size)]
    return "\n".join(rows) + "\n"
