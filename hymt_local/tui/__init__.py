"""The terminal UI, a consumer of the event stream like every front end. Only `run_tui` imports Textual."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hymt_local.tui.choices import ModelChoice

if TYPE_CHECKING:
    from hymt_local.config import Settings
    from hymt_local.jobs import Service
    from hymt_local.language import Language

__all__ = ["ModelChoice", "run_tui"]


def run_tui(
    service: Service,
    *,
    settings: Settings,
    languages: Sequence[Language],
    models: Sequence[ModelChoice],
    current: str,
    copy_file: Path,
) -> int:
    """Run the terminal UI on this process's terminal until the user quits.

    Args:
        service: Translates; the caller closes it.
        settings: Start values of languages, live translation and theme.
        languages: What can be chosen, in the order to show it.
        models: What can be used now.
        current: Reference of the model to start with.
        copy_file: Always holds the last copied translation.

    Returns:
        The exit status: 0, or 1 after a fault of the program, which is then shown on stderr.
    """
    from hymt_local.tui.terminal import examine_terminal

    terminal = examine_terminal(os.environ, input_fd=sys.stdin.fileno(), output_fd=sys.stdout.fileno())

    from hymt_local.tui.app import HymtApp
    from hymt_local.tui.compat import cell_widths_as
    from hymt_local.tui.languages import default_target
    from hymt_local.tui.paste_shield import paste_shield

    with cell_widths_as(terminal.cell_widths), paste_shield():
        app = HymtApp(
            service,
            settings=settings,
            languages=languages,
            models=models,
            current=next((model for model in models if model.ref == current), ModelChoice(current, current, "")),
            target_lang=default_target(os.environ, languages),
            copy_file=copy_file,
            terminal=terminal,
        )
        app.run()
    return app.return_code or 0
