"""Everything around the screens that they use and do not own, passed in from the outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hymt_local.config import Settings
from hymt_local.language import Language
from hymt_local.tui.choices import ModelChoice
from hymt_local.tui.clock import Clock
from hymt_local.tui.terminal import Terminal

if TYPE_CHECKING:  # jobs bring the whole core with them, which nothing before the first translation needs
    from hymt_local.jobs import Service


@dataclass(frozen=True, slots=True)
class Environment:
    """What a screen is built from."""

    service: Service
    settings: Settings
    languages: Sequence[Language]
    """What can be chosen, in the order to show it."""
    models: Sequence[ModelChoice]
    copy_file: Path
    """Always holds the last copied translation."""
    terminal: Terminal
    clock: Clock
    search_path: str | None = None
    """Where clipboard tools are looked for; None means the process's `PATH`."""
