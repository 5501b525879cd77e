"""`hymt models rm`: forget a model, and delete what this program put on the disk for it."""

from __future__ import annotations

import os
import sys

import click

from hymt_local.application import Application, open_application
from hymt_local.catalog import parse_model_ref
from hymt_local.cli import output
from hymt_local.cli.diagnostics import print_note
from hymt_local.cli.models.views import size_text
from hymt_local.config import Layer, write_setting
from hymt_local.errors import CancelledError, HymtError, UsageError
from hymt_local.installed import InstalledModel


@click.command(name="rm")
@click.argument("refs", metavar="MODEL...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def remove_models(refs: tuple[str, ...], yes: bool) -> int:
    """Remove installed models.

    Only what was downloaded or linked by this program is deleted: a file that you imported stays under its own name.
    """
    app = open_application(os.environ)
    models = [app.store.find(ref) for ref in refs]
    for model in models:
        if not yes:
            _ask(model)
        deletes = app.store.remove(model)
        output.write_text(f"{model.ref}\n")
        if not deletes:
            print_note(f"{model.path} stays: it was not put there by hymt-local")
        _forget_settings(app, model)
    return 0


def _ask(model: InstalledModel) -> None:
    """Ask before anything is deleted.

    Raises:
        UsageError: nobody can be asked.
        CancelledError: the answer is no.
    """
    if not _can_ask():
        raise UsageError(f"{model.ref} is not removed without a question", hint="add --yes")
    what = f"and delete {model.path} ({size_text(model.size_bytes)})" if model.is_ours else "and keep its file"
    if not click.confirm(f"Remove {model.ref} {what}?", default=False, err=True):
        raise CancelledError(f"{model.ref} was not removed")


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _forget_settings(app: Application, model: InstalledModel) -> None:
    """Take the model out of the settings that name it: they would make every translation fail."""
    settings, file = app.settings, app.paths.config_file
    if app.resolved.origins["model"] is Layer.FILE and settings.model and _means(settings.model, model):
        write_setting(file, "model", None)
        print_note(_default_line(app))
    kept = {pair: ref for pair, ref in settings.pair_models.items() if not _means(ref, model)}
    if kept != settings.pair_models:
        write_setting(file, "pair_models", kept or None)
        print_note(f"no language pair has {model.ref} as its default any more")


def _default_line(app: Application) -> str:
    try:
        return f"the default is {app.store.default().ref} now"
    except HymtError as error:
        return f"{error.message}: {error.hint}"


def _means(ref: str, model: InstalledModel) -> bool:
    wanted = parse_model_ref(ref)
    same_id = wanted.id.casefold() == model.spec.id.casefold()
    return same_id and wanted.quantization in {None, model.quantization.upper()}
