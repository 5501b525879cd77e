"""Commands below `hymt convert`, which itself takes a checkpoint: `hymt convert verify FILE` and the like."""

from __future__ import annotations

import importlib
from typing import Any

import click

SUBCOMMANDS = {
    "verify": ("hymt_convert.verify_command", "Check model files, and measure what quantizations cost."),
    "repair": ("hymt_convert.repair_command", "Repair the header of a model file."),
}
"""Command -> module that defines it as `<name>_command`, and its line in `hymt convert --help`."""


class CommandWithSubcommands(click.Command):
    """Runs a subcommand when the first argument names one; a folder of that name is given as `./verify`."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments, those of a subcommand by the subcommand."""
        if args and args[0] in SUBCOMMANDS:
            name = f"{info_name or self.name} {args[0]}"
            return load_subcommand(args[0]).make_context(name, args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run what the context was made for."""
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in SUBCOMMANDS.items()])


def load_subcommand(name: str) -> click.Command:
    """Import a subcommand."""
    command = getattr(importlib.import_module(SUBCOMMANDS[name][0]), f"{name}_command")
    assert isinstance(command, click.Command)
    return command
