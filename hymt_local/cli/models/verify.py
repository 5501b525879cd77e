"""`hymt models verify`: are the files what they should be?"""

from __future__ import annotations

import importlib

import click


@click.command(
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
