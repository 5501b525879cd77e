"""`hymt models use`: choose the default model."""

from __future__ import annotations

import os

import click

from hymt_local.application import open_application
from hymt_local.cli import output
from hymt_local.cli.diagnostics import print_note
from hymt_local.config import Layer, variable_name, write_setting


@click.command(name="use")
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
