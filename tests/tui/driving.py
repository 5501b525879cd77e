"""Driving the app in tests: wait for conditions instead of time, read the screen as text."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.app import App
from textual.events import Paste
from textual.pilot import Pilot
from textual.widgets import OptionList, Static

from hymt_local.tui.app import HymtApp
from hymt_local.tui.list_screen import NO_ROWS
from hymt_local.tui.panes import SourceArea, TargetArea
from hymt_local.tui.view_screen import ViewScreen

MOST_ROUNDS = 200
LONGEST_WAIT_S = 20
"""Threads have a say too: a condition may need more than the app's own rounds."""
SHORT_GROUPS = frozenset({"record", "memory", "page", "copy", "judge", "verify"})
"""Workers that end by themselves."""


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Let the app work until the condition holds; fails when it has nothing left to do that could change that."""
    deadline = time.monotonic() + LONGEST_WAIT_S
    rounds = 0
    while rounds < MOST_ROUNDS or time.monotonic() < deadline:
        if condition():
            return
        rounds += 1
        await pilot.pause()
    raise AssertionError(f"never happened; the screen:\n{screen_text(pilot.app)}")


async def at_rest(pilot: Pilot[None]) -> None:
    """Let every worker that needs nothing more from the test come to its end."""
    for _ in range(MOST_ROUNDS):
        waiting = [worker for worker in pilot.app.workers if not worker.is_finished and worker.group in SHORT_GROUPS]
        if not waiting:
            return
        await pilot.app.workers.wait_for_complete(waiting)
        await pilot.pause()


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


def notice(pilot: Pilot[None]) -> str:
    """Return the state line and the advice of the view in front."""
    screens = [screen for screen in pilot.app.screen_stack if isinstance(screen, ViewScreen)]
    shown = [screens[-1].query_one(selector, Static) for selector in ("#status-state", "#status-advice")]
    return "\n".join(str(widget.render()) for widget in shown)


def rows(pilot: Pilot[None]) -> list[str]:
    """Return the rows of the list in front."""
    screens = [screen for screen in pilot.app.screen_stack if isinstance(screen, ViewScreen)]
    options = screens[-1].query_one("#rows", OptionList).options
    return [str(option.prompt) for option in options if option.id != NO_ROWS]


def detail(pilot: Pilot[None]) -> str:
    """Return what is known of the row under the cursor."""
    screens = [screen for screen in pilot.app.screen_stack if isinstance(screen, ViewScreen)]
    return str(screens[-1].query_one("#detail", Static).render())


def languages(pilot: Pilot[None]) -> tuple[str, str]:
    """Return what the language bar shows."""
    screen = app_of(pilot).translate_screen
    texts = [str(screen.query_one(selector, Static).render()) for selector in ("#source-language", "#target-language")]
    return texts[0], texts[1]


def screen_text(app: App[None]) -> str:
    """Return what the compositor draws, row by row, without trailing spaces."""
    rows = [strip.text.rstrip() for strip in app.screen._compositor.render_strips(app.size)]
    return "\n".join(rows) + "\n"
