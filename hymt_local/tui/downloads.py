"""Downloads of models beside everything else, on worker threads, for as long as the program runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hymt_local.application import Application
from hymt_local.catalog import ModelFile, ModelSpec
from hymt_local.config import Layer, write_setting
from hymt_local.errors import CancelledError, HymtError, ModelFileError
from hymt_local.tui.environment import Environment
from hymt_local.tui.wording import Wording

if TYPE_CHECKING:
    from hymt_local.download import DownloadEvent
    from hymt_local.installed import InstalledModel

_GIGABYTE, _MEGABYTE = 1e9, 1e6


@dataclass(frozen=True, slots=True)
class Download:
    """A download as of its latest event."""

    spec: ModelSpec
    file: ModelFile
    done_bytes: int = 0
    total_bytes: int = 0
    rate_bytes_per_s: float | None = None
    eta_s: float | None = None
    is_verifying: bool = False
    waiting: str = ""
    """Why nothing moves, if nothing does."""
    error: HymtError | None = None
    """Why it ended without a model."""
    model: str = ""
    """The reference of the installed model, once it is there."""

    @property
    def ref(self) -> str:
        """What the model will be called."""
        return f"{self.spec.id}:{self.file.quantization}"

    @property
    def is_running(self) -> bool:
        """Whether there is something to stop."""
        return self.error is None and not self.model

    @property
    def fraction(self) -> float:
        """How much is here, 0.0 to 1.0."""
        return self.done_bytes / self.total_bytes if self.total_bytes else 0.0


@dataclass(slots=True)
class _Running:
    state: Download
    stop: threading.Event = field(default_factory=threading.Event)


class Downloads:
    """Starts, stops and follows downloads. Its methods are called on the program's loop.

    Args:
        environment: Folders, network settings and environment variables.
        on_change: Told of every new state, at most five times a second for each download.
    """

    def __init__(self, environment: Environment, on_change: Callable[[Download], None]) -> None:
        self._environment = environment
        self._on_change = on_change
        self._running: dict[str, _Running] = {}

    def of(self, ref: str) -> Download | None:
        """Return the download of a model, running or ended in this session."""
        running = self._running.get(ref)
        return running.state if running else None

    @property
    def running(self) -> list[Download]:
        """All that are under way."""
        return [each.state for each in self._running.values() if each.state.is_running]

    def stop(self, ref: str) -> bool:
        """Stop a download; what is here of it is continued the next time. Returns whether there was one."""
        running = self._running.get(ref)
        if running is None or not running.state.is_running:
            return False
        running.stop.set()
        return True

    def stop_all(self) -> None:
        """Stop everything, for the end of the program."""
        for running in self._running.values():
            running.stop.set()

    async def fetch(self, spec: ModelSpec, file: ModelFile) -> None:
        """Fetch, verify and register a model, and make it the default; the end is in its state."""
        state = Download(spec, file, total_bytes=file.size_bytes or 0)
        current = self.of(state.ref)
        if current is not None and current.is_running:
            return
        running = self._running[state.ref] = _Running(state)
        self._on_change(state)
        loop = asyncio.get_running_loop()

        def report(event: DownloadEvent) -> None:
            loop.call_soon_threadsafe(self._progress, running, event)

        try:
            model = await asyncio.to_thread(
                _fetch_and_register, self._environment, spec, file, report=report, stop=running.stop
            )
        except HymtError as error:
            self._change(running, replace(running.state, error=error))
        except asyncio.CancelledError:
            running.stop.set()
            raise
        else:
            self._change(running, replace(running.state, model=model.ref, done_bytes=running.state.total_bytes))

    def _progress(self, running: _Running, event: DownloadEvent) -> None:
        from hymt_local.download import DownloadProgress

        if not running.state.is_running:
            return
        if isinstance(event, DownloadProgress):
            state = replace(
                running.state,
                done_bytes=event.done_bytes,
                total_bytes=event.total_bytes,
                rate_bytes_per_s=event.rate_bytes_per_s,
                eta_s=event.eta_s,
                is_verifying=event.phase == "verify",
                waiting="",
            )
        else:
            state = replace(running.state, waiting=event.reason)
        self._change(running, state)

    def _change(self, running: _Running, state: Download) -> None:
        running.state = state
        self._on_change(state)


def _fetch_and_register(
    environment: Environment,
    spec: ModelSpec,
    file: ModelFile,
    *,
    report: Callable[[DownloadEvent], None],
    stop: threading.Event,
) -> InstalledModel:
    from hymt_local.download import fetch_model

    application = environment.application
    folder = application.paths.models_dir
    path = fetch_model(
        spec,
        file,
        folder,
        environ=environment.environ,
        offline=application.settings.offline,
        on_progress=report,
        cancel=stop,
    )
    try:
        if file.sha256 is not None:
            model = application.store.register_download(path, spec, sha256=file.sha256)
        else:
            model = application.store.import_file(path, as_id=spec.id)
    except ModelFileError as error:
        raise ModelFileError(
            f"{file.name} is what was published, but no sound model: {error.message}", hint="choose another file"
        ) from error
    _make_default(application, model.ref)
    return model


def _make_default(application: Application, ref: str) -> None:
    """Let the model be the default: the newest is, unless the settings file names another."""
    if application.resolved.origins["model"] is Layer.FILE and application.settings.model != ref:
        write_setting(application.paths.config_file, "model", ref)


def download_label(state: Download, wording: Wording) -> str:
    """Return how far a download is, in one line without its name."""
    if state.error is not None:
        return wording("download.stopped") if isinstance(state.error, CancelledError) else state.error.message
    if state.model:
        return wording("download.done")
    if state.waiting:
        return state.waiting
    unit, name = (_GIGABYTE, "GB") if state.total_bytes >= _GIGABYTE else (_MEGABYTE, "MB")
    parts = [f"{state.done_bytes / unit:.2f} / {state.total_bytes / unit:.2f} {name}"]
    if state.is_verifying:
        parts.insert(0, wording("download.checking"))
    if state.rate_bytes_per_s:
        parts.append(f"{state.rate_bytes_per_s / _MEGABYTE:.1f} MB/s")
    if state.eta_s is not None:
        parts.append(wording("download.left", time=duration_text(state.eta_s)))
    return " · ".join(parts)


def duration_text(seconds: float) -> str:
    """Return a duration as people say it."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def size_text(size_bytes: int | None) -> str:
    """Return the size of a file for people."""
    if not size_bytes:
        return "–"
    return f"{size_bytes / _GIGABYTE:.1f} GB" if size_bytes >= _GIGABYTE / 10 else f"{size_bytes / _MEGABYTE:.1f} MB"
