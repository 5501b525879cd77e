"""`hymt models list`: what is installed, and what the catalog has besides."""

from __future__ import annotations

import os
from typing import Any

import click

from hymt_local.application import Application, open_application
from hymt_local.catalog import ModelSpec
from hymt_local.cli import output
from hymt_local.cli.diagnostics import print_note
from hymt_local.cli.models.views import installed_json, size_text
from hymt_local.errors import HymtError
from hymt_local.installed import InstalledModel


@click.command(name="list")
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
        output.write_text("\nNot installed (`hymt models pull` fetches what suits this machine, `pull ID` another):\n")
        output.write_table([_catalog_row(spec) for spec in others], header=(" ", "MODEL", "FILES", "SIZE", "LICENCE"))
    for problem in problems:
        print_note(f"{problem.message}: {problem.hint}")
    return 0


def _default(app: Application) -> tuple[str | None, list[HymtError]]:
    """Return the default's reference if it can be used, and everything that stands in somebody's way."""
    problems = list(app.store.problems())
    try:
        return app.resolve_model(None).ref, problems
    except HymtError as error:
        if error.message not in [problem.message for problem in problems]:
            problems.append(error)
        return None, problems


def _installed_row(model: InstalledModel, default: str | None) -> tuple[str, ...]:
    mark = "*" if model.ref == default else " "
    return (mark, model.ref, size_text(model.size_bytes), model.spec.kind, model.spec.licence.id)


def _catalog_row(spec: ModelSpec) -> tuple[str, ...]:
    usable = [file for file in spec.files if file.supported]
    sizes = sorted({file.size_bytes for file in usable if file.size_bytes})
    span = " to ".join(size_text(size) for size in sizes[:1] + sizes[1:][-1:]) or "convert it yourself"
    names = ", ".join(file.quantization for file in usable) or "none published"
    return (" ", spec.id, names, span, spec.licence.id)


def _as_json(
    app: Application, installed: tuple[InstalledModel, ...], *, default: str | None, problems: list[HymtError]
) -> dict[str, Any]:
    return {
        "problems": [problem.message for problem in problems],
        "installed": [installed_json(model, default=default) for model in installed],
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
