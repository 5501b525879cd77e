"""`hymt ps`, `hymt stop`, `hymt unload`: what the resident server of this user does, and how it ends."""

from __future__ import annotations

import os
import time
from typing import Any

import click

from hymt_local.background_server import running_server, stop_server
from hymt_local.cli import output
from hymt_local.paths import Paths
from hymt_local.server_call import ask
from hymt_local.server_file import ServerFile, find_server

NOT_RUNNING = 1


@click.command(name="ps")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object; null when none runs.")
@click.option("--token", "shows_token", is_flag=True, help="Print the token of this user, for other programs.")
@click.option("--url", "shows_url", is_flag=True, help="Print an address of the web page that is good for one visit.")
def ps_command(as_json: bool, shows_token: bool, shows_url: bool) -> int:
    """Show the server that runs.

    Its address, its models in memory, and its work. The exit status is 1 when none runs.
    """
    paths = Paths.from_environment(os.environ)
    server = find_server(paths)
    if server is None:
        output.write_text("null\n" if as_json else "no server runs\n")
        return NOT_RUNNING
    if shows_token:
        output.write_text(f"{server.token}\n")
    elif shows_url:
        code = ask(server, "POST", "/v1/handover")["code"]
        output.write_text(f"{server.url}/#code={code}\n")
    else:
        _show(server, ask(server, "GET", "/v1/status"), as_json=as_json)
    return 0


@click.command(name="stop")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def stop_command(as_json: bool) -> int:
    """Stop the server.

    Translations under way are cancelled.
    """
    paths = Paths.from_environment(os.environ)
    server = running_server(paths)
    if server is not None:
        stop_server(paths, server)
    if as_json:
        output.write_json({"stopped": None if server is None else server.pid})
    else:
        output.write_text("no server runs\n" if server is None else f"stopped process {server.pid}\n")
    return 0


@click.command(name="unload")
@click.argument("model", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def unload_command(model: str | None, as_json: bool) -> int:
    """Free the memory of the server's models.

    MODEL, or all of them. A model that translates now stays; the next translation loads a freed one again.
    """
    server = find_server(Paths.from_environment(os.environ))
    unloaded = [] if server is None else ask(server, "POST", "/v1/unload", {"model": model})["unloaded"]
    if as_json:
        output.write_json({"unloaded": unloaded})
    elif unloaded:
        output.write_text("".join(f"unloaded {name}\n" for name in unloaded))
    else:
        output.write_text("no server runs\n" if server is None else "no unused model is loaded\n")
    return 0


def _show(server: ServerFile, state: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.write_json({"url": server.url, **state})
        return
    up_s = max(0, round(time.time() - server.started_at))
    lines = [f"{server.url}  process {state['pid']}, version {state['version']}, up {_duration(up_s)}"]
    lines.append(f"{state['translations']} translation(s) under way")
    lines += [f"{model['name']}  {_stay(model)}" for model in state["models"]] or ["no model is loaded"]
    output.write_text("".join(f"{line}\n" for line in lines))


def _stay(model: dict[str, Any]) -> str:
    if model["is_used"]:
        return "in use"
    rest_s = model["unloads_in_s"]
    return "loaded" if rest_s is None else f"loaded, unused for now: unloads in {_duration(round(rest_s))}"


def _duration(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
