"""Putting the environment together from what the entry point has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hymt_local.application import Application, open_application
from hymt_local.config import Layer
from hymt_local.errors import ConfigError
from hymt_local.language import Language
from hymt_local.tui.choices import ModelChoice
from hymt_local.tui.clock import Clock, LoopClock
from hymt_local.tui.environment import Environment
from hymt_local.tui.keymap import Keymap, load_keymap
from hymt_local.tui.terminal import Terminal, with_rtl
from hymt_local.tui.wording import load_wording, ui_language

if TYPE_CHECKING:
    from hymt_local.jobs import Service


@dataclass(frozen=True, slots=True)
class Opened:
    """The environment, and what could not be done as the user's files say."""

    environment: Environment
    problems: tuple[ConfigError, ...]


def open_environment(
    service: Service,
    application: Application,
    *,
    environ: Mapping[str, str],
    languages: Sequence[Language],
    models: Sequence[ModelChoice],
    terminal: Terminal,
    clock: Clock | None = None,
    search_path: str | None = None,
) -> Opened:
    """Read wording and keymap; a keymap that is wrong costs a message, not the start."""
    problems: list[ConfigError] = []
    try:
        keymap = load_keymap(application.paths.keymap_file)
    except ConfigError as error:
        keymap = Keymap({})
        problems.append(error)
    environment = Environment(
        service,
        application,
        reopen=lambda: open_application(environ, flags=_typed_flags(application)),
        languages=languages,
        models=models,
        terminal=with_rtl(terminal, application.settings.rtl),
        clock=clock or LoopClock(),
        wording=load_wording(ui_language(environ, application.settings.ui_language)),
        keymap=keymap,
        environ=environ,
        search_path=search_path,
    )
    return Opened(environment, tuple(problems))


def _typed_flags(application: Application) -> dict[str, object]:
    """Return what the user typed on the command line: it stays in force for the whole session."""
    resolved = application.resolved
    return {name: getattr(resolved.settings, name) for name, layer in resolved.origins.items() if layer is Layer.FLAG}
