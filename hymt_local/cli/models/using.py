"""`hymt models use`: choose the default model, for all languages or for one pair."""

from __future__ import annotations

import os

import click

from hymt_local.application import Application, open_application
from hymt_local.cli import output
from hymt_local.cli.diagnostics import print_note
from hymt_local.config import Layer, variable_name, write_setting


@click.command(name="use")
@click.argument("ref", metavar="MODEL")
@click.option(
    "--for",
    "pair",
    metavar="PAIR",
    help="For one language pair only: en-zh, or *-zh for all languages into Chinese.",
)
def use_model(ref: str, pair: str | None) -> int:
    """Choose the default model.

    MODEL is the name of an installed one, as `hymt models list` shows it. `auto` goes back to the newest real model, or
    to the demo when there is none; with --for it takes the pair's own model away.
    """
    app = open_application(os.environ)
    if pair is not None:
        return _use_for_pair(app, ref, pair)
    model = app.store.default() if ref == "auto" else app.store.resolve(ref)
    write_setting(app.paths.config_file, "model", None if ref == "auto" else model.ref)
    output.write_text(f"{model.ref}\n")
    if app.resolved.origins["model"] is Layer.ENVIRONMENT:
        print_note(f"{variable_name('model')} is set and wins over config.toml")
    return 0


def _use_for_pair(app: Application, ref: str, pair: str) -> int:
    from hymt_local.pairs import check_spoken, parse_pair

    languages = parse_pair(pair)
    models = {key: value for key, value in app.settings.pair_models.items() if key != str(languages)}
    if ref != "auto":
        model = app.store.resolve(ref)
        check_spoken(languages, model.spec)
        models[str(languages)] = model.ref
    write_setting(app.paths.config_file, "pair_models", models or None)
    output.write_text(f"{languages}\t{models.get(str(languages), 'auto')}\n")
    return 0
