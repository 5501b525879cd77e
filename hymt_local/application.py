"""The composition root: settings, catalog and installed models become the service that the front ends talk to."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hymt_local.config import Layer, ResolvedSettings, Settings, load_settings
from hymt_local.errors import ModelTooLargeError
from hymt_local.paths import Paths

if TYPE_CHECKING:
    from hymt_local.catalog import Catalog, ModelSpec
    from hymt_local.engine.base import Backend, BackendOpener, ModelInfo
    from hymt_local.engine.fit import FitPlan, FitWish, GpuFacts, MachineFacts
    from hymt_local.engine.host import Orders
    from hymt_local.engine.options import LlamaOptions
    from hymt_local.events import Origin, TranslationRequest
    from hymt_local.installed import InstalledModel, ModelStore
    from hymt_local.jobs import LocalService
    from hymt_local.planning import PassedTests
    from hymt_local.retries import RetryPolicy
    from hymt_local.translation_job import Service
    from hymt_local.translator import OpenModel

_logger = logging.getLogger(__name__)
_ENGINE_SETTINGS = ("threads", "context_length", "gpu_layers", "memory_check")
"""What a server has settled when it loaded its model."""
_OWN_LAYERS = frozenset({Layer.FLAG, Layer.ENVIRONMENT})


class Application:
    """Everything a front end is built from. Opening one reads the settings only, and the catalog when it is asked for.

    Args:
        paths: Where everything lies.
        resolved: The settings in force, and where they came from.
    """

    def __init__(self, paths: Paths, resolved: ResolvedSettings) -> None:
        self.paths = paths
        self.resolved = resolved

    @cached_property
    def catalog(self) -> Catalog:
        """All known models. Whoever leaves a text to the server does not need them.

        Raises:
            ConfigError: an entry of the user's catalog is wrong.
        """
        from hymt_local.catalog import load_catalog

        return load_catalog(self.paths.catalog_file)

    @cached_property
    def store(self) -> ModelStore:
        """The installed models.

        Raises:
            ConfigError: see `catalog`.
        """
        from hymt_local.installed import ModelStore

        return ModelStore(self.paths, self.catalog)

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.resolved.settings

    def open_service(self, *, starts_resident: bool = False) -> Service:
        """Return what translates: the resident server, or this process; the caller closes it.

        Args:
            starts_resident: Start the server in the background unless the settings say otherwise; without it, one that
                runs is used.
        """
        mode = self.settings.resident
        if mode == "off" or any(self.resolved.origins[name] in _OWN_LAYERS for name in _ENGINE_SETTINGS):
            return self.open_local_service()
        from hymt_local.server_file import usable_server

        may_start = mode == "on" or starts_resident
        if not may_start and usable_server(self.paths) is None:
            return self.open_local_service()
        from hymt_local.background_server import start_server
        from hymt_local.client import ResidentService

        if may_start:
            starting = ResidentService(
                lambda: usable_server(self.paths) or start_server(self.paths, os.environ),
                fall_back=self.open_local_service,
            )
            starting.prepare()
            return starting
        return ResidentService(lambda: usable_server(self.paths), fall_back=self.open_local_service)

    def open_local_service(self) -> LocalService:
        """Start the job loop of this process; the caller closes it. Models are opened when first asked for."""
        from hymt_local.jobs import LocalService  # asyncio and sqlite3: 50 ms that `--help` does not pay

        return LocalService(
            self.open_model,
            cache_path=self.paths.database if self.settings.cache else None,
            has_room=self.has_room,
            idle_unload_s=self.settings.idle_unload_s,
        )

    def has_room(self, ref: str, loaded: Sequence[ModelInfo]) -> bool:
        """Tell whether a model can be loaded beside others.

        Their weights count as taken, although the system would drop them from memory for the new ones'. Beside a model
        on a GPU there is none: what is free there the new one should have.
        """
        from hymt_local.engine.machine import probe_machine
        from hymt_local.engine.options import TINY_MODEL_BYTES

        model = self.resolve_model(ref)
        if model.path is None or model.path.stat().st_size < TINY_MODEL_BYTES:
            return True
        if any(info.n_gpu_layers for info in loaded):
            return False
        machine = probe_machine(self.paths.models_dir, with_gpus=False)
        kept_bytes = sum(info.size_bytes for info in loaded)
        rest = replace(machine, available_bytes=machine.available_bytes - kept_bytes)
        return self.plan_installed(model, rest).verdict == "good"

    def resolve_model(self, ref: str | None) -> InstalledModel:
        """Return the installed model of a reference, of the setting, or the default, in this order."""
        return self.store.resolve(ref or self.settings.model)

    def model_for(self, text: str, *, source_lang: str | None, target_lang: str) -> str | None:
        """Return the model for a text: a flag's or a variable's, else the language pair's own, else the setting."""
        is_typed = self.resolved.origins["model"] in {Layer.FLAG, Layer.ENVIRONMENT}
        if is_typed or not self.settings.pair_models:
            return self.settings.model
        from hymt_local.pairs import model_of_pair

        chosen = model_of_pair(self.settings.pair_models, source_lang=source_lang, target_lang=target_lang, text=text)
        return chosen or self.settings.model

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
            retries=_retries(self.settings),
            passed_tests=self._passed_tests(model),
        )

    def _passed_tests(self, model: InstalledModel) -> PassedTests | None:
        """Return where it is kept that a model has passed its self-test; None for one that needs none."""
        if not self.settings.self_test or model.spec.kind != "translation" or model.path is None:
            return None
        from importlib.metadata import distributions

        from hymt_local.self_test import PassedTestsFile

        found = model.path.stat()
        file = model.fingerprint or f"{model.path} {found.st_size} {found.st_mtime_ns}"
        versions = [each.version for each in distributions(name="llama-cpp-python")]  # none: the cache may do without
        way = f"{versions} gpu_layers={self.settings.gpu_layers}"
        return PassedTestsFile(self.paths.state_dir / "self-tests.json", identity=f"{file} {way}")

    def foresee(self, request: TranslationRequest) -> tuple[Origin | None, ...]:
        """Say of each segment where its target would come from now, None where it would be refused.

        No weights are read.

        Raises:
            UsageError: the request would be refused.
            ModelError: the model cannot be opened.
        """
        from hymt_local.jobs import ForgivingCache
        from hymt_local.translator import Translator

        has_cache = self.settings.cache and self.paths.database.exists()
        cache = ForgivingCache(self.paths.database) if has_cache else None
        try:
            return Translator(self.open_model(request.model), cache=cache).foresee(request)
        finally:
            if cache is not None:
                cache.close()

    def fit_wish(self) -> FitWish:
        """Return what the settings fix of how models are loaded."""
        from hymt_local.engine.fit import FitWish
        from hymt_local.engine.options import LlamaOptions, weights_place

        settings = self.settings
        return FitWish(
            context_length=settings.context_length,
            gpu_layers=None if settings.gpu_layers == "auto" else settings.gpu_layers,
            threads=settings.threads,
            kv_types=("f16",) if settings.kv_type == "auto" else (settings.kv_type,),
            slots=1 if settings.deterministic else settings.slots,
            kv_offload=settings.kv_offload,
            weights=weights_place(LlamaOptions(repack=_repack(settings.repack), use_mlock=settings.mlock)),
        )

    def probe_machine(self) -> MachineFacts:
        """Return what this machine has; GPUs are looked for unless the settings rule them out."""
        from hymt_local.engine.machine import probe_machine, query_gpus_apart

        machine = probe_machine(self.paths.models_dir, with_gpus=False)
        return machine if self.settings.gpu_layers == 0 else replace(machine, gpus=query_gpus_apart())

    def plan_installed(self, model: InstalledModel, machine: MachineFacts) -> FitPlan:
        """Return how an installed model would be loaded; it must have a file.

        Raises:
            ModelError: the file is not one that this program can run.
        """
        from hymt_local.engine.fit import facts_of_header, plan
        from hymt_local.engine.gguf_file import read_header
        from hymt_local.engine.gguf_support import check_supported

        assert model.path is not None
        header = read_header(model.path)
        check_supported(header)
        facts = facts_of_header(header, name=model.ref, context_length=model.spec.context_length)
        return plan(facts, machine, wish=self.fit_wish())

    def _opener(self, model: InstalledModel) -> BackendOpener:
        """Return what loads a model. It plans at the time of loading: a phrase from the cache needs no plan."""
        from hymt_local.engine.echo import open_echo, open_pseudo

        if model.path is None:
            return open_pseudo() if model.spec.id == "pseudo" else open_echo()
        if self._runs_inline(model, model.path):
            return functools.partial(self._open_inline, model, model.path)
        from hymt_local.engine.host import open_hosted

        return open_hosted(functools.partial(self._ordered, model, model.path), name=model.ref)

    def _runs_inline(self, model: InstalledModel, path: Path) -> bool:
        """Tell whether a model runs in this process: a tiny one has answered before another has started."""
        from hymt_local.engine.options import TINY_MODEL_BYTES

        if self.settings.engine_process != "auto":
            return self.settings.engine_process == "inline"
        return model.spec.kind != "translation" or path.stat().st_size < TINY_MODEL_BYTES

    def _open_inline(self, model: InstalledModel, path: Path, on_progress: Callable[[float], bool]) -> Backend:
        from hymt_local.engine.machine import probe_machine
        from hymt_local.loading import open_stepping_down

        machine = probe_machine(self.paths.models_dir, with_gpus=self.settings.gpu_layers != 0)  # llama.cpp loads here
        options = self._fitted_options(model, machine)
        return open_stepping_down(path, options, on_progress=on_progress)

    def _ordered(self, model: InstalledModel, path: Path, ask_gpus: Callable[[], tuple[GpuFacts, ...]]) -> Orders:
        from hymt_local.engine.machine import probe_machine
        from hymt_local.loading import LlamaOrders

        gpus = ask_gpus() if self.settings.gpu_layers != 0 else ()
        machine = replace(probe_machine(self.paths.models_dir, with_gpus=False), gpus=gpus)
        return LlamaOrders(path, self._fitted_options(model, machine))

    def _fitted_options(self, model: InstalledModel, machine: MachineFacts) -> LlamaOptions:
        """Return how to load a model on a machine.

        Raises:
            ModelTooLargeError: it does not fit, and the settings do not say to try all the same.
        """
        from hymt_local.engine.options import TINY_KV_TYPE, TINY_MODEL_BYTES, LlamaOptions

        fit = self.plan_installed(model, machine)
        is_tiny = fit.weights_bytes < TINY_MODEL_BYTES
        layers = fit.gpu_layers
        if not self.settings.memory_check:
            layers = fit.gpu_layers if self.settings.gpu_layers == "auto" else self.settings.gpu_layers
        elif fit.verdict == "no":
            raise self.too_large_error(fit, model.spec, machine=machine)
        for warning in fit.warnings:
            _logger.warning("%s: %s", model.ref, warning)
        return LlamaOptions(
            context_length=fit.context_length,
            threads=fit.threads,
            gpu_layers=layers,
            kv_type=TINY_KV_TYPE if is_tiny and self.settings.kv_type == "auto" else fit.kv_type,
            slots=fit.n_slots,
            deterministic=self.settings.deterministic,
            repack=_repack(self.settings.repack),
            use_mlock=self.settings.mlock,
            kv_offload=self.settings.kv_offload,
            tensor_split=_shares(self.settings.tensor_split),
            flash_attention=self.settings.flash_attention,
            prefix_dir=self.paths.cache_dir / "prefix",
            name=model.ref,
        )

    def too_large_error(self, fit: FitPlan, spec: ModelSpec, *, machine: MachineFacts) -> ModelTooLargeError:
        """Return the refusal of a model that does not fit; the hint names the nearest thing that does."""
        from hymt_local.recommend import candidates, nearest

        other = nearest(candidates(self.catalog, machine, wish=self.fit_wish()), machine, spec=spec)
        hint = "`hymt config set memory_check false` loads it all the same"
        if other is not None and other.ref != fit.model:
            hint = f"`hymt models pull {other.ref}` fits here; {hint}"
        return ModelTooLargeError(f"{fit.model} does not fit: {fit.warnings[-1]}", hint=hint)


def _repack(setting: str) -> bool | None:
    return None if setting == "auto" else setting == "on"


def open_application(environ: Mapping[str, str], *, flags: Mapping[str, Any] | None = None) -> Application:
    """Read paths and settings, and set the detail of this program's log.

    Raises:
        ConfigError: a setting is wrong.
        StoreError: a file exists but cannot be read.
    """
    paths = Paths.from_environment(environ)
    resolved = load_settings(paths.config_file, environ, flags=flags)
    logging.getLogger("hymt_local").setLevel(resolved.settings.log_level.upper())
    return Application(paths, resolved)


def _shares(text: str | None) -> tuple[float, ...]:
    return tuple(map(float, text.split(","))) if text else ()


def _retries(settings: Settings) -> RetryPolicy:
    from hymt_local.retries import Change, RetryPolicy

    names = [name.strip() for name in settings.retry_order.split(",")]
    return RetryPolicy(settings.attempts, tuple(dict.fromkeys(Change(name) for name in names if name)))


def _checked_metadata(model: InstalledModel) -> Mapping[str, object]:
    """Refuse a bad file before llama.cpp sees it; return its header's keys, arrays only for closed-domain models."""
    if model.path is None:
        return {}
    from hymt_local.engine.gguf_file import read_header
    from hymt_local.engine.gguf_support import check_supported

    header = read_header(model.path, arrays=model.spec.kind == "demo")
    check_supported(header)
    return header.metadata
