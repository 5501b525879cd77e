"""`hymt doctor`: check this machine and this installation, with a fix for each problem."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hymt_local import __version__
from hymt_local.application import open_application
from hymt_local.cli import output
from hymt_local.cli.check import Check, Status, failed_check, guarded_check
from hymt_local.cli.doctor_engine import check_compiler, engine_checks
from hymt_local.cli.doctor_server import check_server
from hymt_local.cli.doctor_store import check_database, check_fit, check_model, check_network
from hymt_local.config import unknown_variables
from hymt_local.errors import HymtError, StoreError

if TYPE_CHECKING:
    from hymt_local.engine.fit import DiskFacts

MARKS: dict[Status, str] = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
LOW_MEMORY_BYTES = 3 * 2**30
"""A 1.8B model at Q4_K_M needs 1.1 GB of weights, its context and the program."""
LOW_DISK_BYTES = 2 * 2**30


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def doctor_command(as_json: bool) -> int:
    """Check this machine and this installation.

    The exit status is 0 when everything needed works, else that of the first failure.
    """
    checks = list(run_checks())
    if as_json:
        output.write_json(
            {"version": __version__, "checks": [_as_json(check) for check in checks], "healthy": not _failures(checks)}
        )
    else:
        _print(checks)
    return _failures(checks)[0].exit_status if _failures(checks) else 0


def run_checks() -> Iterator[Check]:
    """Yield every check; one that breaks is reported, it never stops the others."""
    from hymt_local.engine.machine import probe_machine, with_idle_gpus  # psutil

    yield _python()
    yield check_compiler()
    engine = list(engine_checks())
    yield from engine
    runs = all(check.status != "fail" for check in engine)
    yield guarded_check("memory", _memory)
    yield _variables()
    try:
        app = open_application(os.environ)
        n_models = len(app.catalog.models)
    except HymtError as error:
        yield failed_check("configuration", error)
        return
    yield Check("configuration", "ok", f"{app.paths.config_file}; the catalog has {output.counted(n_models, 'model')}")
    machine = app.probe_machine() if runs else probe_machine(app.paths.models_dir, with_gpus=False)
    if app.settings.gpu_layers != 0:
        machine = with_idle_gpus(machine)
    yield guarded_check("model", lambda: check_model(app, machine))
    yield guarded_check("fit", lambda: check_fit(app, machine))
    yield guarded_check("data folder", lambda: _folder(app.paths.data_dir, machine.disk))
    yield guarded_check("phrase cache", lambda: check_database(app))
    yield guarded_check("server", lambda: check_server(app))
    yield guarded_check("network", lambda: check_network(app))
    yield _terminal()


def _python() -> Check:
    return Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def _memory() -> Check:
    import psutil

    memory = psutil.virtual_memory()
    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    found = f"{memory.available / 2**30:.1f} GiB free of {memory.total / 2**30:.1f}, {cores} physical cores"
    if memory.available < LOW_MEMORY_BYTES:
        return Check("memory", "warn", found, "close other programs before loading a real model")
    return Check("memory", "ok", found)


def _variables() -> Check:
    unknown = unknown_variables(os.environ)
    if unknown:
        return Check("environment", "warn", f"no setting reads {', '.join(unknown)}", "check the spelling")
    return Check("environment", "ok", "no unknown HYMT_ variables")


def _folder(folder: Path, disk: DiskFacts | None) -> Check:
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=existing) as probe:
            probe.write(b"x")
    except OSError as error:
        raise StoreError(
            f"cannot write in {existing}: {error.strerror or error}",
            hint="fix its permissions or free some space, or set HYMT_HOME to a folder of yours",
        ) from error
    free = shutil.disk_usage(existing).free
    found = f"{folder}, {free / 2**30:.1f} GiB free{f' ({disk.kind})' if disk else ''}"
    if free < LOW_DISK_BYTES:
        return Check("data folder", "warn", found, "a real model needs 1.2 to 8 GB")
    if disk and disk.kind == "network":
        return Check(
            "data folder", "warn", found, "models load faster from a local disk: set HYMT_HOME to a folder there"
        )
    return Check("data folder", "ok", found)


def _terminal() -> Check:
    encoding = (sys.stdout.encoding or "").lower()
    name = os.environ.get("TERM") or "no TERM"
    found = ", ".join([name, encoding or "unknown encoding", _colours(name), *_size()])
    if encoding.replace("-", "") != "utf8":
        return Check("terminal", "warn", found, "use a UTF-8 locale, for example LANG=C.UTF-8")
    if sys.stdout.isatty() and name in {"dumb", "no TERM"}:
        return Check("terminal", "warn", found, "the terminal UI has to move a cursor: set TERM=xterm-256color")
    return Check("terminal", "ok", found)


def _colours(name: str) -> str:
    if os.environ.get("NO_COLOR"):
        return "no colours (NO_COLOR)"
    if name in {"dumb", "no TERM"}:
        return "no colours"
    if os.environ.get("COLORTERM", "").casefold() in {"truecolor", "24bit"}:
        return "all colours"
    return "256 colours" if "256" in name else "16 colours"


def _size() -> Iterator[str]:
    with suppress(OSError, ValueError):  # no terminal, or nothing that has a descriptor
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        yield f"{columns} columns, {rows} rows"


def _failures(checks: list[Check]) -> list[Check]:
    return [check for check in checks if check.status == "fail"]


def _as_json(check: Check) -> dict[str, str]:
    return {"name": check.name, "status": check.status, "found": check.found, "fix": check.fix}


def _print(checks: list[Check]) -> None:
    width = max(len(check.name) for check in checks)
    lines = [f"hymt-local {__version__}"]
    for check in checks:
        lines.append(f"{MARKS[check.status]}  {check.name:<{width}}  {check.found}")
        if check.fix:
            lines.append(f"      {'':<{width}}  -> {check.fix}")
    output.write_text("".join(f"{line}\n" for line in lines))
