"""The terminal UI, a consumer of the event stream like every front end. Only `run_tui` imports Textual."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hymt_local.tui.choices import ModelChoice

if TYPE_CHECKING:
    from hymt_local.application import Application
    from hymt_local.jobs import Service
    from hymt_local.language import Language

__all__ = ["ModelChoice", "run_tui"]


def run_tui(
    service: Service,
    application: Application,
    *,
    environ: Mapping[str, str],
    languages: Sequence[Language],
    models: Sequence[ModelChoice],
    current: str,
) -> int:
    """Run the terminal UI on this process's terminal until the user quits.

    Args:
        service: Translates; the caller closes it.
        application: Settings, catalog, folders and installed models.
        environ: Of the process.
        languages: What can be chosen, in the order to show it.
        models: What can be used now.
        current: Reference of the model to start with.

    Returns:
        The exit status: 0; 1 after a fault of the program, which is then shown on stderr; 128 and the number of the
        signal that ended it.
    """
    gc.disable()  # nothing made before the first frame is garbage; `HymtApp.on_ready` turns it on again
    from hymt_local.tui.terminal import examine_terminal

    terminal = examine_terminal(os.environ, input_fd=sys.stdin.fileno(), output_fd=sys.stdout.fileno())

    from hymt_local.tui.app import HymtApp
    from hymt_local.tui.compat import cell_widths_as
    from hymt_local.tui.line_breaks import unicode_line_breaks
    from hymt_local.tui.opening import open_environment

    environment = open_environment(
        service, application, environ=environ, languages=languages, models=models, terminal=terminal
    )
    try:
        with cell_widths_as(terminal.cell_widths), unicode_line_breaks():
            app = HymtApp(environment.environment, current=current, problems=environment.problems)
            app.run()
    finally:
        gc.enable()
    return app.return_code or 0
