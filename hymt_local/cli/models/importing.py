"""`hymt models import`: take over a GGUF file that the user has."""

from __future__ import annotations

import os
from pathlib import Path

import click

from hymt_local.application import open_application
from hymt_local.cli import output
from hymt_local.cli.diagnostics import ProgressLine
from hymt_local.cli.models.views import installed_json, note_licence


@click.command(name="import")
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
        output.write_json(installed_json(model, default=None))
    else:
        output.write_text(f"{model.ref}\t{model.path}\n")
        note_licence(model.spec)
    return 0
