"""`hymt models import`: take over GGUF files that the user has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from hymt_local.application import Application, open_application
from hymt_local.cli import output
from hymt_local.cli.diagnostics import ProgressLine, print_note
from hymt_local.cli.models.views import installed_json, note_licence
from hymt_local.errors import ModelError, ModelFileError
from hymt_local.installed import InstalledModel

BLOB_PREFIX = "sha256-"
"""Ollama keeps its files under their hash."""


@click.command(name="import")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--as", "as_id", metavar="ID", help="Which model it is, when the file does not tell: an id of `hymt models list`."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def import_model(path: Path, as_id: str | None, as_json: bool) -> int:
    """Check a GGUF file of a model of the catalog, and register it.

    FILE is hard-linked into the models folder, or used where it lies: it is never copied. Of a folder all models that
    are known are taken: those of LM Studio, of Ollama and of the hub's cache too. The newest real model is the default
    until `hymt models use` names one.
    """
    app = open_application(os.environ)
    if path.is_dir():
        models = _import_folder(app, path, as_id=as_id)
        _show(models, {"models": [installed_json(model, default=None) for model in models]} if as_json else None)
    else:
        model = _import_file(app, path, as_id=as_id)
        _show([model], installed_json(model, default=None) if as_json else None)
    return 0


def _show(models: list[InstalledModel], json_value: dict[str, Any] | None) -> None:
    if json_value is not None:
        output.write_json(json_value)
        return
    for model in models:
        output.write_text(f"{model.ref}\t{model.path}\n")
        note_licence(model.spec)


def _import_file(app: Application, path: Path, *, as_id: str | None) -> InstalledModel:
    progress = ProgressLine()
    try:
        return app.store.import_file(
            path, as_id=as_id, on_progress=lambda done, total: progress.show("hashing", done / max(total, 1))
        )
    finally:
        progress.clear()


def _import_folder(app: Application, folder: Path, *, as_id: str | None) -> list[InstalledModel]:
    """Import what can be used; the rest is named with the reason.

    Raises:
        ModelFileError: there is nothing to use.
    """
    models = []
    for path in model_files(folder):
        try:
            models.append(_import_file(app, path, as_id=as_id))
        except ModelError as error:
            print_note(f"left out {path}: {error.message}")
    if not models:
        raise ModelFileError(
            f"{folder} is a directory without a model that could be used", hint="name the .gguf file in it"
        )
    return models


def model_files(folder: Path) -> Iterator[Path]:
    """Yield the GGUF files below a folder, each once however many links lead to it."""
    seen: set[tuple[int, int]] = set()
    for path in sorted(folder.rglob("*")):
        if not (path.name.lower().endswith(".gguf") or path.name.startswith(BLOB_PREFIX)) or not _is_gguf(path):
            continue
        status = path.stat()
        if (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            yield path


def _is_gguf(path: Path) -> bool:
    """Tell by the first bytes; what cannot be read is none."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            return stream.read(4) == b"GGUF"
    except OSError:
        return False
