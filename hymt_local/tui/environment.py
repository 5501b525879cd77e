"""Everything around the screens that they use and do not own, passed in from the outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hymt_local.application import Application
from hymt_local.catalog import ModelSpec
from hymt_local.config import Settings
from hymt_local.language import Language
from hymt_local.tui.choices import ModelChoice
from hymt_local.tui.clock import Clock
from hymt_local.tui.keymap import Keymap
from hymt_local.tui.terminal import Terminal
from hymt_local.tui.wording import Wording

if TYPE_CHECKING:  # jobs bring the whole core with them, which nothing before the first translation needs
    from hymt_local.jobs import Service


class Environment:
    """What all screens are built from. Only `reload` changes it.

    Args:
        service: Translates; not closed here.
        application: Settings, catalog, folders and installed models as they are now.
        reopen: Reads them again, after one of them was changed.
        languages: What can be chosen, in the order to show it.
        models: What can be used now.
        terminal: What is known of the terminal.
        clock: Time.
        wording: The language of the program itself.
        keymap: The keys in force.
        environ: Of the process: where downloads come from, which editor opens a file.
        search_path: Where clipboard tools are looked for; None means the process's `PATH`.
    """

    def __init__(
        self,
        service: Service,
        application: Application,
        *,
        reopen: Callable[[], Application],
        languages: Sequence[Language],
        models: Sequence[ModelChoice],
        terminal: Terminal,
        clock: Clock,
        wording: Wording,
        keymap: Keymap,
        environ: Mapping[str, str],
        search_path: str | None = None,
    ) -> None:
        self.service = service
        self.application = application
        self.languages = languages
        self.models = models
        self.terminal = terminal
        self.clock = clock
        self.wording = wording
        self.keymap = keymap
        self.environ = environ
        self.search_path = search_path
        self._reopen = reopen

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.application.settings

    @property
    def copy_file(self) -> Path:
        """Always holds the last copied translation."""
        return self.application.paths.last_translation

    def spec_of(self, ref: str) -> ModelSpec:
        """Return the catalog's entry of a model that can be chosen."""
        return self.application.catalog.get(ref.partition(":")[0])

    def reload(self) -> None:
        """Read the settings again.

        Raises:
            HymtError: they cannot be read; the old ones stay.
        """
        self.application = self._reopen()

    def reload_models(self) -> None:
        """Look again at what is installed."""
        self.models = installed_choices(self.application)


def installed_choices(application: Application) -> list[ModelChoice]:
    """Return the models that can be used now; the test engines only where there is nothing else to show."""
    return [ModelChoice(model.ref, model.spec.title, model.spec.kind) for model in application.store.list()]
