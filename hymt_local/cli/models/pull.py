"""`hymt models pull`: fetch a published model, verified and resumable, and make it the default."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hymt_local.application import Application, open_application
from hymt_local.catalog import Licence, ModelFile, ModelSpec, parse_model_ref
from hymt_local.cli import output
from hymt_local.cli.diagnostics import ProgressLine, end_echoed_line, print_note
from hymt_local.cli.models.fit import published_file
from hymt_local.cli.models.views import GIGABYTE, installed_json, size_text
from hymt_local.config import Layer, variable_name, write_setting
from hymt_local.errors import CancelledError, HymtError, LicenceError, ModelFileError, ModelTooLargeError
from hymt_local.installed import InstalledModel
from hymt_local.licences import AcceptedLicences

if TYPE_CHECKING:
    from hymt_local.download import DownloadEvent, DownloadProgress, DownloadWaiting
    from hymt_local.engine.fit import MachineFacts


@click.command(name="pull")
@click.argument("ref", metavar="[MODEL]", required=False)
@click.option("--accept-licence", is_flag=True, help="Accept the model's licence, for scripts.")
@click.option("--json", "as_json", is_flag=True, help="Print progress and result as JSON, an object per line.")
def pull_model(ref: str | None, accept_licence: bool, as_json: bool) -> int:
    """Download a published model, and make it the default.

    MODEL is ID or ID:QUANTIZATION of `hymt models list`; without it the one that suits this machine is fetched, as
    `hymt models fit` explains. What is here of an interrupted download is continued. The licence is shown, and asked
    for once. HF_ENDPOINT, HF_TOKEN and proxies are respected; copies in the hub's cache are used.
    """
    app = open_application(os.environ)
    try:
        _pull(app, ref, accept_licence=accept_licence, as_json=as_json)
    except HymtError as error:
        if not as_json:
            raise
        report = error.report()
        _write_line({"event": "error", "code": report.code, "message": report.message, "hint": report.hint})
        return report.exit_status
    return 0


def _pull(app: Application, ref: str | None, *, accept_licence: bool, as_json: bool) -> None:
    spec, file = _choose(app, ref)
    model = _installed(app, spec, file)
    if model is None:
        _settle_licence(app, spec, is_accepted=accept_licence)
        model = _fetch(app, spec, file, as_json=as_json)
    else:
        print_note(f"{model.ref} is installed already")
    _make_default(app, model)
    if as_json:
        _write_line({"event": "installed", **installed_json(model, default=model.ref)})
    else:
        output.write_text(f"{model.ref}\t{model.path}\n")


def _choose(app: Application, ref: str | None) -> tuple[ModelSpec, ModelFile]:
    """Return the file to fetch: the named one, else the one that suits this machine best.

    Raises:
        ModelTooLargeError: it does not fit, or nothing does.
    """
    from hymt_local.recommend import candidates, recommend

    machine = app.probe_machine()
    found = candidates(app.catalog, machine, wish=app.fit_wish())
    if ref is not None:
        wanted = parse_model_ref(ref)
        spec = app.catalog.get(wanted.id)
        if wanted.quantization is None:
            found = tuple(candidate for candidate in found if candidate.spec.id == spec.id)
            best = recommend(found, machine, is_named=True)
            file = best.file if best else published_file(spec, None)
        else:
            file = published_file(spec, wanted.quantization)
        _check_fit(app, machine, spec, file)
        return spec, file
    best = recommend(found, machine)
    if best is None:
        raise ModelTooLargeError(
            "no published model fits this machine now",
            hint="close other programs or free disk space: `hymt models fit`",
        )
    return best.spec, best.file


def _check_fit(app: Application, machine: MachineFacts, spec: ModelSpec, file: ModelFile) -> None:
    from hymt_local.engine.fit import plan
    from hymt_local.recommend import facts_of_file

    facts = facts_of_file(spec, file)
    if facts is None:
        return
    fit = plan(facts, machine, wish=app.fit_wish())
    if fit.verdict == "no" and app.settings.memory_check:
        raise app.too_large_error(fit, spec, machine=machine)
    for warning in fit.warnings:
        print_note(f"{fit.model}: {warning}")


def _installed(app: Application, spec: ModelSpec, file: ModelFile) -> InstalledModel | None:
    """Return the very file, if it is installed and as it was."""
    try:
        model = app.store.resolve(f"{spec.id}:{file.quantization}")
    except HymtError:
        return None
    return model if file.sha256 in {None, model.fingerprint} else None


def _settle_licence(app: Application, spec: ModelSpec, *, is_accepted: bool) -> None:
    """Show the licence, and go on only with consent: given before, by the option, or now.

    Raises:
        LicenceError: nobody can be asked, or the answer is no.
    """
    licence, accepted = spec.licence, AcceptedLicences(app.paths)
    if accepted.has(licence):
        return
    for line in licence_lines(spec.id, licence):
        print_note(line)
    if not is_accepted:
        hint = f"read it ({licence.url or licence.title}), then add --accept-licence"
        if not _can_ask():
            raise LicenceError(f"the {licence.title} of {spec.id} has not been accepted", hint=hint)
        if not click.confirm(f"Accept the {licence.title}?", default=True, err=True):
            raise LicenceError(
                f"the {licence.title} of {spec.id} was not accepted", hint="`hymt models list` has others"
            )
    accepted.accept(licence)


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def licence_lines(model_id: str, licence: Licence) -> list[str]:
    """Return what a user must know before a download."""
    lines = [f"{model_id} is under the {licence.title}" + (f": {licence.url}" if licence.url else "")]
    if licence.territory_excluded:
        lines.append(f"not licensed in: {', '.join(licence.territory_excluded)}")
    if licence.note:
        lines.append(licence.note)
    return lines


def _fetch(app: Application, spec: ModelSpec, file: ModelFile, *, as_json: bool) -> InstalledModel:
    from hymt_local.download import fetch_model

    reporter = Reporter(as_json=as_json)
    print_note(f"fetching {file.name} ({size_text(file.size_bytes or 0)}) into {app.paths.models_dir}")
    try:
        path = fetch_model(
            spec,
            file,
            app.paths.models_dir,
            environ=os.environ,
            offline=app.settings.offline,
            on_progress=reporter,
        )
    except KeyboardInterrupt:
        reporter.clear()
        end_echoed_line()
        raise CancelledError(
            f"the download was stopped: {_here(app, file)} of {file.name} are here",
            hint=f"`hymt models pull {spec.id}:{file.quantization}` continues it",
        ) from None
    finally:
        reporter.clear()
    return _register(app, path, spec, file)


def _here(app: Application, file: ModelFile) -> str:
    """Return how much of an unfinished download is on the disk."""
    sizes = [part.stat().st_size for part in app.paths.models_dir.glob(f".{file.name}.*.part")]
    return size_text(max(sizes, default=0))


def _register(app: Application, path: Path, spec: ModelSpec, file: ModelFile) -> InstalledModel:
    try:
        if file.sha256 is not None:
            return app.store.register_download(path, spec, sha256=file.sha256)
        return app.store.import_file(path, as_id=spec.id)
    except ModelFileError as error:
        raise ModelFileError(
            f"{file.name} is what was published, but no sound model: {error.message}", hint="choose another file"
        ) from error


def _make_default(app: Application, model: InstalledModel) -> None:
    """Let the model be the default: the newest is, unless a setting names another."""
    current, origin = app.settings.model, app.resolved.origins["model"]
    if origin is Layer.FILE and current != model.ref:
        write_setting(app.paths.config_file, "model", model.ref)
        print_note(f"{model.ref} is the default now; it was {current}")
    elif origin is Layer.ENVIRONMENT and current != model.ref:
        print_note(f"{variable_name('model')} is set and wins: {current} stays the default")


class Reporter:
    """Shows a download: a bar on a terminal, JSON lines on request, elsewhere only why nothing moves, once."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._line = ProgressLine()
        self._noted: set[str] = set()

    def __call__(self, event: DownloadEvent) -> None:
        """Take one event of the download."""
        from hymt_local.download import DownloadProgress

        is_progress = isinstance(event, DownloadProgress)
        if self._as_json:
            _write_line({"event": "progress" if is_progress else "waiting", **dataclasses.asdict(event)})
        elif isinstance(event, DownloadProgress):
            self._line.show(progress_label(event), event.done_bytes / max(event.total_bytes, 1))
        elif self._line.is_active:
            self._line.show(waiting_label(event), 0.0)
        elif event.reason not in self._noted:
            self._noted.add(event.reason)
            print_note(f"{event.reason}; trying again")

    def clear(self) -> None:
        """Erase the bar."""
        self._line.clear()


def waiting_label(event: DownloadWaiting) -> str:
    """Return why nothing moves, and for how long, in one line."""
    return event.reason if event.remaining_s is None else f"{event.reason}, trying again in {event.remaining_s:.0f} s"


def progress_label(event: DownloadProgress) -> str:
    """Return name, bytes, rate and remaining time of a download in one line."""
    unit, name = (GIGABYTE, "GB") if event.total_bytes >= GIGABYTE else (1e6, "MB")
    amount = f"{event.done_bytes / unit:.2f} of {event.total_bytes / unit:.2f} {name}"
    parts = ["checking" if event.phase == "verify" else event.name, amount]
    if event.rate_bytes_per_s:
        parts.append(f"{event.rate_bytes_per_s / 1e6:.1f} MB/s")
    if event.eta_s is not None:
        parts.append(f"{duration_text(event.eta_s)} left")
    return "  ".join(parts)


def duration_text(seconds: float) -> str:
    """Return a duration as people say it."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _write_line(value: Any) -> None:
    import msgspec

    output.write_text(msgspec.json.encode(value).decode() + "\n", raw=True)
