"""`hymt mcp`: the translator as tools for agents, on standard input and output."""

from __future__ import annotations

import os
from importlib.util import find_spec

import click

from hymt_local.application import open_application
from hymt_local.cli.interruption import closing
from hymt_local.errors import UsageError


@click.command(name="mcp")
@click.option("-m", "--model", metavar="MODEL", help="Model to use when the agent names none.")
def mcp_command(model: str | None) -> int:
    """Serve tools for agents on standard input and output.

    The protocol is MCP. Agents start this themselves: their configuration needs the command `hymt` and the argument
    `mcp`. The tools are translate, detect, check, terms and languages. Ends when standard input does.
    """
    if find_spec("mcp") is None:
        raise UsageError(
            "the package `mcp` is not installed",
            hint="install it with hymt-local: `pip install 'hymt-local[mcp]'`",
        )
    app = open_application(os.environ, flags={"model": model} if model else None)
    spec = app.resolve_model(None).spec
    from hymt_local.mcp_server import build_server  # pydantic and asyncio: a second that the error above does not pay

    with closing(app.open_service()) as service:
        build_server(service, languages=spec.languages, model=app.settings.model).run("stdio")
    return 0
