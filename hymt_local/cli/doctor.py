"""`hymt doctor`: check this machine and this installation, with a fix for each problem."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from hymt_local import __version__
from hymt_local.application import Application, open_application
from hymt_local.cli import output
from hymt_local.config import unknown_variables
from hymt_local.errors import EngineUnavailableError, HymtError, StoreError

Status = Literal["ok", "warn", "fail"]
MARKS: dict[Status, str] = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
LOW_MEMORY_BYTES = 3 * 2**30
"""A 1.8B model at Q4_K_M needs 1.1 GB of weights, its context and the program."""
LOW_DISK_BYTES = 2 * 2**30
ENGINE_REQUIREMENT = "llama-cpp-python==0.3.36"
"""As in pyproject.toml, which a broken installation may not be able to tell."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    status: Status
    found: str
    fix: str = ""
    exit_status: int = 0


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
    yield _python()
    yield _guarded("engine", _engine)
    yield _guarded("memory", _memory)
    yield _variables()
    try:
        app = open_application(os.environ)
    except HymtError as error:
        yield _failed("configuration", error)
        return
    yield Check("configuration", "ok", str(app.paths.config_file))
    yield _guarded("model", lambda: _model(app))
    yield _guarded("data folder", lambda: _folder(app.paths.data_dir))
    yield _guarded("phrase cache", lambda: _database(app))
    yield _terminal()


def _python() -> Check:
    return Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def _engine() -> Check:
    if importlib.util.find_spec("llama_cpp") is None:
        compiler = next((c for c in ("c++", "g++", "clang++", "cl") if shutil.which(c)), None)
        fix = f"pip install {ENGINE_REQUIREMENT}"
        if compiler is None:
            fix += " (needs a C++ compiler; the README names prebuilt wheels)"
        raise EngineUnavailableError("llama-cpp-python is not installed", hint=fix)
    from importlib.metadata import version

    from hymt_local.engine.llama import load_library

    try:
        has_gpu = load_library().api.llama_supports_gpu_offload()
    except EngineUnavailableError as error:
        fix = f"pip install --force-reinstall --no-cache-dir {ENGINE_REQUIREMENT}"
        raise EngineUnavailableError(error.message, hint=fix) from error
    return Check(
        "engine", "ok", f"llama-cpp-python {version('llama-cpp-python')}, {'can use a GPU' if has_gpu else 'CPU only'}"
    )


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


def _model(app: Application) -> Check:
    from hymt_local.engine.gguf_file import check_supported, read_header

    model = app.resolve_model(None)
    for problem in app.store.problems():
        raise problem
    if model.path:
        check_supported(read_header(model.path))
    if model.spec.kind == "demo":
        return Check(
            "model",
            "warn",
            "only the demo phrasebook is installed",
            "`hymt models list` names real models and licences",
        )
    return Check("model", "ok", f"{model.ref} ({model.path or 'no file'})")


def _folder(folder: Path) -> Check:
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
    found = f"{folder}, {free / 2**30:.1f} GiB free"
    if free < LOW_DISK_BYTES:
        return Check("data folder", "warn", found, "a real model needs 1.2 to 8 GB")
    return Check("data folder", "ok", found)


def _database(app: Application) -> Check:
    if not app.paths.database.exists():
        return Check("phrase cache", "ok", "not created yet")
    from hymt_local.memory.phrase_cache import PhraseCache

    cache = PhraseCache(app.paths.database)
    try:
        return Check("phrase cache", "ok", f"{cache.stats().entries} entries in {app.paths.database}")
    finally:
        cache.close()


def _terminal() -> Check:
    encoding = (sys.stdout.encoding or "").lower()
    found = f"{os.environ.get('TERM') or 'no TERM'}, {encoding or 'unknown encoding'}"
    if encoding.replace("-", "") != "utf8":
        return Check("terminal", "warn", found, "use a UTF-8 locale, for example LANG=C.UTF-8")
    return Check("terminal", "ok", found)


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except HymtError as error:
        return _failed(name, error)
    except (ImportError, OSError) as error:  # a broken package, a vanished disk: what doctor is asked about
        return _failed(name, HymtError(f"{type(error).__name__}: {error}", hint="install hymt-local again"))


def _failed(name: str, error: HymtError) -> Check:
    return Check(name, "fail", error.message, error.hint, error.exit_status)


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
