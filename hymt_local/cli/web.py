"""`hymt web`: open the web page in the browser, with a key of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import click

from hymt_local.background_server import start_server
from hymt_local.cli import output
from hymt_local.paths import Paths
from hymt_local.server_call import ask
from hymt_local.server_file import find_server


@click.command(name="web")
@click.option("--print", "only_prints", is_flag=True, help="Print the address instead: for another browser.")
def web_command(only_prints: bool) -> int:
    """Open the web page in the browser.

    Starts the server in the background unless one runs. The address is good for one visit within five minutes; the page
    then has a key of its own, which it forgets with its tab.
    """
    paths = Paths.from_environment(os.environ)
    server = find_server(paths) or start_server(paths, os.environ)
    address = f"{server.url}/#code={ask(server, 'POST', '/v1/handover')['code']}"
    if only_prints or not _open(address, os.environ):
        output.write_text(f"{address}\n")
    return 0


def _open(address: str, environ: Mapping[str, str]) -> bool:
    """Open a browser with windows; one that would take over the terminal is none."""
    has_screen = sys.platform in {"win32", "darwin"} or any(environ.get(x) for x in ("DISPLAY", "WAYLAND_DISPLAY"))
    if not has_screen:
        return False
    import webbrowser  # looks through the whole PATH for browsers

    return webbrowser.open(address)
