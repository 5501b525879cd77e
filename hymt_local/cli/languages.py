"""`hymt languages`: what a model can translate from and into."""

from __future__ import annotations

import os

import click

from hymt_local.application import open_application
from hymt_local.catalog import parse_model_ref
from hymt_local.cli import output
from hymt_local.language import get_language


@click.command(name="languages")
@click.option("-m", "--model", metavar="MODEL", help="A model of the catalog; the default one when not given.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def languages_command(model: str | None, as_json: bool) -> int:
    """List the languages of a model.

    Each with tag, English, Chinese and native name: `--to` and `--from` take any of these.
    """
    app = open_application(os.environ)
    spec = app.catalog.get(parse_model_ref(model).id) if model else app.resolve_model(None).spec
    languages = [get_language(tag) for tag in spec.languages]
    if as_json:
        output.write_json(
            [
                {"tag": item.tag, "english": item.english, "chinese": item.chinese, "native": item.native}
                for item in languages
            ]
        )
        return 0
    rows = [(item.tag, item.english, item.chinese, item.native) for item in languages]
    output.write_table(rows, header=("TAG", "ENGLISH", "CHINESE", "NATIVE"))
    return 0
