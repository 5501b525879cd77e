"""The composition root: settings, catalog and installed models become the service that the front ends talk to."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hymt_local.catalog import Catalog, load_catalog
from hymt_local.config import ResolvedSettings, Settings, load_settings
from hymt_local.installed import InstalledModel, ModelStore
from hymt_local.paths import Paths

if TYPE_CHECKING:
    from hymt_local.engine.base import BackendOpener
    from hymt_local.jobs import LocalService
    from hymt_local.translator import OpenModel


@dataclass(frozen=True, slots=True)
class Application:
    """Everything a front end is built from. Opening one reads small files only: no model, no database."""

    paths: Paths
    resolved: ResolvedSettings
    catalog: Catalog
    store: ModelStore

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.resolved.settings

    def open_service(self) -> LocalService:
        """Start the job loop of this process; the caller closes it. Models are opened when first asked for."""
        from hymt_local.jobs import LocalService  # asyncio and sqlite3: 50 ms that `--help` does not pay

        cache_path = self.paths.database if self.settings.cache else None
        return LocalService(self.open_model, cache_path=cache_path)

    def resolve_model(self, ref: str | None) -> InstalledModel:
        """Return the installed model of a reference, of the setting, or the default, in this order."""
        return self.store.resolve(ref or self.settings.model)

    def open_model(self, ref: str | None) -> OpenModel:
        """Return a model ready to be used; its weights are read on first use.

        Raises:
            ModelError: unknown, not installed, changed, or not a file this program can run.
        """
        from hymt_local.coverage import Coverage
        from hymt_local.engine.scheduler import ThreadedEngine
        from hymt_local.translator import OpenModel

        model = self.resolve_model(ref)
        metadata = _checked_metadata(model)
        return OpenModel(
            spec=model.spec,
            engine=ThreadedEngine(self._opener(model), name=model.ref),
            coverage=Coverage.from_metadata(metadata),
            fingerprint=model.fingerprint,
            quantization=model.quantization,
        )

    def _opener(self, model: InstalledModel) -> BackendOpener:
        from hymt_local.engine.echo import open_echo, open_pseudo

        if model.path is None:
            return open_pseudo() if model.spec.id == "pseudo" else open_echo()
        from hymt_local.engine.llama import LlamaOptions, open_llama_backend

        options = LlamaOptions(
            context_length=self.settings.context_length or model.spec.context_length,
            threads=self.settings.threads,
            gpu_layers=self.settings.gpu_layers,
            name=model.ref,
        )
        return open_llama_backend(model.path, options)


def open_application(environ: Mapping[str, str], *, flags: Mapping[str, Any] | None = None) -> Application:
    """Read paths, settings and catalog, and set the detail of this program's log.

    Raises:
        ConfigError: a setting or a catalog entry is wrong.
        StoreError: a file exists but cannot be read.
    """
    paths = Paths.from_environment(environ)
    resolved = load_settings(paths.config_file, environ, flags=flags)
    logging.getLogger("hymt_local").setLevel(resolved.settings.log_level.upper())
    catalog = load_catalog(_existing(paths.catalog_file))
    return Application(paths, resolved, catalog, ModelStore(paths, catalog))


def _existing(path: Path) -> Path | None:
    return path if path.exists() else None


def _checked_metadata(model: InstalledModel) -> Mapping[str, object]:
    """Refuse a bad file before llama.cpp sees it; return its header's keys, arrays only for closed-domain models."""
    if model.path is None:
        return {}
    from hymt_local.engine.gguf_file import check_supported, read_header

    header = read_header(model.path, arrays=model.spec.kind == "demo")
    check_supported(header)
    return header.metadata
