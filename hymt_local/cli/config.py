"""`hymt config`: show settings with their origin, change them, print paths and the schema."""

from __future__ import annotations

import os
from typing import Any

import click

from hymt_local.application import open_application
from hymt_local.cli import output
from hymt_local.cli.diagnostics import print_note
from hymt_local.cli.translate import AUTO
from hymt_local.config import Layer, load_settings, setting_names, settings_schema, variable_name, write_setting
from hymt_local.language import match_language
from hymt_local.paths import Paths


@click.group(name="config")
def config_command() -> None:
    """Show and change settings."""


@config_command.command(name="show")
@click.option("--origin", is_flag=True, help="Also say where each value came from.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def show_config(origin: bool, as_json: bool) -> int:
    """Print every setting and its value.

    Options beat HYMT_ variables (HYMT_TARGET_LANG for target_lang), and these beat config.toml.
    """
    app = open_application(os.environ)
    values = {name: getattr(app.settings, name) for name in setting_names()}
    origins = app.resolved.origins
    if as_json:
        output.write_json({name: {"value": values[name], "origin": origins[name].value} for name in values})
        return 0
    rows = [
        (name, _shown(values[name]), *([_place(app.paths, name, origins[name])] if origin else [])) for name in values
    ]
    output.write_table(rows, header=("SETTING", "VALUE", *(["ORIGIN"] if origin else [])))
    return 0


@config_command.command(name="set", context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("value")
def set_config(name: str, value: str) -> int:
    """Change one setting in config.toml.

    `unset` as VALUE takes the setting NAME out of the file. `hymt config show` lists the names, `hymt config schema`
    says what each takes. Comments in the file stay.
    """
    paths = Paths.from_environment(os.environ)
    unset = value == "unset"
    is_language = name == "target_lang" or (name == "source_lang" and value != AUTO)
    if is_language and not unset:
        value = match_language(value)
    write_setting(paths.config_file, name, None if unset else value)
    resolved = load_settings(paths.config_file, os.environ)
    output.write_text(f"{name} = {_shown(getattr(resolved.settings, name))}\n")
    if resolved.origins[name] is Layer.ENVIRONMENT:
        print_note(f"{variable_name(name)} is set and wins over config.toml")
    return 0


@config_command.command(name="path")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def show_paths(as_json: bool) -> int:
    """Print where settings, models, database and log live.

    HYMT_HOME puts all of them into one folder.
    """
    paths = Paths.from_environment(os.environ)
    places = {
        "config": paths.config_file,
        "catalog": paths.catalog_file,
        "database": paths.database,
        "models": paths.models_dir,
        "cache": paths.cache_dir,
        "log": paths.log_file,
    }
    if as_json:
        output.write_json({name: str(path) for name, path in places.items()})
    else:
        output.write_table([(name, str(path)) for name, path in places.items()], header=("WHAT", "PATH"))
    return 0


@config_command.command(name="schema")
def show_schema() -> int:
    """Print each setting's type, range and meaning, as JSON Schema."""
    output.write_json(settings_schema())
    return 0


def _shown(value: Any) -> str:
    if value is None or value in ("", {}):
        return "(unset)"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _place(paths: Paths, name: str, layer: Layer) -> str:
    match layer:
        case Layer.FILE:
            return str(paths.config_file)
        case Layer.ENVIRONMENT:
            return variable_name(name)
        case _:
            return layer.value
