"""`hymt models`: list the catalog and what is installed, import a file, choose the default."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import click

from hymt_local.application import Application, open_application
from hymt_local.catalog import ModelSpec
from hymt_local.cli import output
from hymt_local.cli.diagnostics import ProgressLine, print_note
from hymt_local.config import Layer, variable_name, write_setting
from hymt_local.errors import HymtError
from hymt_local.installed import InstalledModel

GIGABYTE = 1e9


@click.group(name="models")
def models_command() -> None:
    """List and import models, choose the default."""


@models_command.command(name="list")
@click.option("--all", "show_all", is_flag=True, help="Also list the test engines (echo, pseudo).")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def list_models(show_all: bool, as_json: bool) -> int:
    """List installed models, and the rest of the catalog.

    `*` marks the default. `hymt models use` changes it.
    """
    app = open_application(os.environ)
    installed = app.store.list()
    default, problems = _default(app)
    if as_json:
        output.write_json(_as_json(app, installed, default=default, problems=problems))
        return 0
    rows = [_installed_row(model, default) for model in installed if show_all or model.spec.kind != "test"]
    output.write_table(rows, header=(" ", "MODEL", "SIZE", "KIND", "LICENCE"))
    known = {model.spec.id for model in installed}
    others = [spec for spec in app.catalog.models if spec.id not in known]
    if others:
        output.write_text("\nNot installed (`hymt models import FILE.gguf` adds a file you have):\n")
        output.write_table([_catalog_row(spec) for spec in others], header=(" ", "MODEL", "FILES", "SIZE", "LICENCE"))
    for problem in problems:
        print_note(f"{problem.message}: {problem.hint}")
    return 0


@models_command.command(name="import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--as", "as_id", metavar="ID", help="Which model it is, when the file does not tell: an id of `hymt models list`."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def import_model(file: Path, as_id: str | None, as_json: bool) -> int:
    """Check a GGUF file of a model of the catalog, and register it.

    FILE is hard-linked into the models folder, or used where it lies: it is never copied. The newest real model is the
    default until `hymt models use` names one.
    """
    app = open_application(os.environ)
    progress = ProgressLine()
    try:
        model = app.store.import_file(
            file, as_id=as_id, on_progress=lambda done, total: progress.show("hashing", done / max(total, 1))
        )
    finally:
        progress.clear()
    if as_json:
        output.write_json(_installed_json(model, default=None))
    else:
        output.write_text(f"{model.ref}\t{model.path}\n")
        _note_licence(model.spec)
    return 0


@models_command.command(name="use")
@click.argument("ref", metavar="MODEL")
def use_model(ref: str) -> int:
    """Choose the default model.

    MODEL is the name of an installed one, as `hymt models list` shows it. `auto` goes back to the newest real model, or
    to the demo when there is none.
    """
    app = open_application(os.environ)
    model = app.store.default() if ref == "auto" else app.store.resolve(ref)
    write_setting(app.paths.config_file, "model", None if ref == "auto" else model.ref)
    output.write_text(f"{model.ref}\n")
    if app.resolved.origins["model"] is Layer.ENVIRONMENT:
        print_note(f"{variable_name('model')} is set and wins over config.toml")
    return 0


@models_command.command(
    name="verify",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Check model files, whoever made them.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def verify_models(ctx: click.Context, arguments: tuple[str, ...]) -> int:
    """Do what `hymt convert verify` does; the converter is loaded only now."""
    command = importlib.import_module("hymt_convert.verify_command").verify_command
    assert isinstance(command, click.Command)
    with command.make_context("verify", list(arguments), parent=ctx.parent) as inner:
        return int(command.invoke(inner))


def _default(app: Application) -> tuple[str | None, list[HymtError]]:
    """Return the default's reference if it can be used, and everything that stands in somebody's way."""
    problems = list(app.store.problems())
    try:
        return app.resolve_model(None).ref, problems
    except HymtError as error:
        if error.message not in [problem.message for problem in problems]:
            problems.append(error)
        return None, problems


def _note_licence(spec: ModelSpec) -> None:
    if spec.licence.territory_excluded:
        places = ", ".join(spec.licence.territory_excluded)
        print_note(f"{spec.id} is under the {spec.licence.title}; not licensed in: {places}")


def _installed_row(model: InstalledModel, default: str | None) -> tuple[str, ...]:
    mark = "*" if model.ref == default else " "
    return (mark, model.ref, _size(model.size_bytes), model.spec.kind, model.spec.licence.id)


def _catalog_row(spec: ModelSpec) -> tuple[str, ...]:
    usable = [file for file in spec.files if file.supported]
    sizes = [file.size_bytes for file in usable if file.size_bytes]
    span = f"{_size(min(sizes))} to {_size(max(sizes))}" if sizes else "convert it yourself"
    names = ", ".join(file.quantization for file in usable) or "none published"
    return (" ", spec.id, names, span, spec.licence.id)


def _size(size_bytes: int) -> str:
    if not size_bytes:
        return "-"
    return f"{size_bytes / GIGABYTE:.1f} GB" if size_bytes >= GIGABYTE / 10 else f"{size_bytes / 1e6:.1f} MB"


def _as_json(
    app: Application, installed: tuple[InstalledModel, ...], *, default: str | None, problems: list[HymtError]
) -> dict[str, Any]:
    return {
        "problems": [problem.message for problem in problems],
        "installed": [_installed_json(model, default=default) for model in installed],
        "catalog": [
            {
                "id": spec.id,
                "kind": spec.kind,
                "repo": spec.repo,
                "licence": spec.licence.id,
                "territory_excluded": list(spec.licence.territory_excluded),
                "files": [
                    {
                        "quantization": file.quantization,
                        "name": file.name,
                        "size_bytes": file.size_bytes,
                        "sha256": file.sha256,
                        "supported": file.supported,
                    }
                    for file in spec.files
                ],
            }
            for spec in app.catalog.models
        ],
    }


def _installed_json(model: InstalledModel, *, default: str | None) -> dict[str, Any]:
    return {
        "ref": model.ref,
        "id": model.spec.id,
        "kind": model.spec.kind,
        "quantization": model.quantization,
        "path": str(model.path) if model.path else None,
        "size_bytes": model.size_bytes,
        "sha256": model.fingerprint if model.path else None,
        "published": model.published,
        "default": model.ref == default,
    }
