"""Where things live: configuration, data, cache and state of one user. Nothing is created before it is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hymt_local.errors import ConfigError

APPLICATION = "hymt"
HOME_VARIABLE = "HYMT_HOME"


@dataclass(frozen=True, slots=True)
class Paths:
    """The four folders of one user and the files in them."""

    config_dir: Path
    data_dir: Path
    cache_dir: Path
    state_dir: Path

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Paths:
        """Return the system's usual folders, or four folders under `$HYMT_HOME` when that is set.

        All are absolute: what is recorded of a model file must hold in every working directory.

        Raises:
            ConfigError: `$HYMT_HOME` names a user who does not exist, or the system knows no home folder.
        """
        home = environ.get(HOME_VARIABLE)
        if home:
            return cls.under(_expanded(home))
        from platformdirs import PlatformDirs  # only needed without $HYMT_HOME

        dirs = PlatformDirs(APPLICATION, appauthor=False)
        try:
            return cls(dirs.user_config_path, dirs.user_data_path, dirs.user_cache_path, dirs.user_state_path)
        except RuntimeError as error:
            raise ConfigError(str(error), hint=f"set {HOME_VARIABLE} to a folder of yours") from error

    @classmethod
    def under(cls, home: Path) -> Paths:
        """Return the four folders below one folder."""
        return cls(home / "config", home / "data", home / "cache", home / "state")

    @property
    def config_file(self) -> Path:
        """The user's settings, TOML."""
        return self.config_dir / "config.toml"

    @property
    def catalog_file(self) -> Path:
        """The user's additions to the catalog, same schema as models.toml."""
        return self.config_dir / "models.toml"

    @property
    def keymap_file(self) -> Path:
        """The user's own keys of the terminal UI, TOML."""
        return self.config_dir / "keymap.toml"

    @property
    def unsaved_text(self) -> Path:
        """What stood in the source pane when the terminal UI ended."""
        return self.state_dir / "unsaved.txt"

    @property
    def database(self) -> Path:
        """The SQLite file: phrase cache and history, later memory and terms."""
        return self.data_dir / "memory.sqlite3"

    @property
    def models_dir(self) -> Path:
        """Model files and their manifests."""
        return self.data_dir / "models"

    @property
    def log_file(self) -> Path:
        """Diagnostics; never source text above DEBUG."""
        return self.state_dir / "hymt.log"

    @property
    def clients_file(self) -> Path:
        """Who may use the resident server besides this user: names, digests of keys, limits."""
        return self.config_dir / "clients.json"

    @property
    def server_file(self) -> Path:
        """Where the resident server listens, and its token; private."""
        return self.state_dir / "server.json"

    @property
    def server_lock(self) -> Path:
        """Held by the resident server for its whole life."""
        return self.state_dir / "server.lock"

    @property
    def start_lock(self) -> Path:
        """Held by whoever starts the server in the background, until it runs."""
        return self.state_dir / "server-start.lock"

    @property
    def request_log(self) -> Path:
        """A line per request to the resident server, without text."""
        return self.state_dir / "requests.log"

    @property
    def last_translation(self) -> Path:
        """The last text copied in the terminal UI, for terminals without a clipboard."""
        return self.state_dir / "last-translation.txt"


def _expanded(home: str) -> Path:
    try:
        return Path(home).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError(f"{HOME_VARIABLE} = {home!r}: {error}", hint="name the folder in full") from error
