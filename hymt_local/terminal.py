"""Joins the two front ends: opens the terminal UI for a command line without text. Only the entry point knows both."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hymt_local.application import Application


def open_terminal_ui(app: Application) -> int:
    """Run the terminal UI until the user quits; returns the exit status."""
    import os

    from hymt_local.language import get_language
    from hymt_local.tui import ModelChoice, run_tui  # Textual: 150 ms that other commands do not pay

    current = app.resolve_model(None)
    choices = [ModelChoice(model.ref, model.spec.title, model.spec.kind) for model in app.store.list()]
    service = app.open_service(starts_resident=True)
    try:
        return run_tui(
            service,
            app,
            environ=os.environ,
            languages=[get_language(tag) for tag in current.spec.languages],
            models=choices,
            current=current.ref,
        )
    finally:
        service.close()
