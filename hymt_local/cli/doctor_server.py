"""What `hymt doctor` says of the resident server: whether one runs, which one, and whether it answers."""

from __future__ import annotations

from hymt_local import __version__
from hymt_local.application import Application
from hymt_local.cli.check import Check
from hymt_local.errors import HymtError, ServerError
from hymt_local.process_lock import is_locked
from hymt_local.server_call import ask
from hymt_local.server_file import ServerFile, find_server

NAME = "server"
SILENCE_S = 5.0
"""A healthy one answers within milliseconds, whatever it translates."""
STARTED_BY = {
    "auto": "the terminal UI and `hymt web` start it, `hymt serve` keeps it",
    "on": "every command starts it",
    "off": "`resident = off`: everything runs in its own process",
}


def check_server(app: Application) -> Check:
    """Ask the server how it is; none is fine.

    Raises:
        ServerError: it does not answer, or something else does.
    """
    server = find_server(app.paths)
    if server is not None:
        return _judged(app, server)
    if is_locked(app.paths.server_lock):
        return Check(
            NAME,
            "warn",
            f"a process holds {app.paths.server_lock}, and no server of this version says where it is",
            "it starts, stops, or is of another version: try again in a moment, or end that process",
        )
    return Check(NAME, "ok", f"none runs; {STARTED_BY[app.settings.resident]}")


def _judged(app: Application, server: ServerFile) -> Check:
    answer = ask(server, "GET", "/health", silence_s=SILENCE_S)
    if not isinstance(answer, dict) or answer.get("status") != "ok":
        raise ServerError(f"the server at {server.url} is not well: {answer!r}", hint="`hymt stop` and `hymt serve`")
    found = f"{server.url}, process {server.pid}, version {server.version}, healthy"
    if server.version != __version__:
        fix = f"this is version {__version__}, which does not use it: `hymt stop`, and start it again"
        return Check(NAME, "warn", found, fix)
    try:
        ask(server, "GET", "/ready", silence_s=SILENCE_S)
    except HymtError as error:
        return Check(NAME, "warn", f"{found}, but not ready: {error.message}", error.hint)
    if app.settings.resident == "off":
        return Check(NAME, "ok", f"{found}, ready; commands do not use it (`resident = off`)")
    return Check(NAME, "ok", f"{found}, ready; {_loaded(server)}")


def _loaded(server: ServerFile) -> str:
    models = ask(server, "GET", "/v1/status", silence_s=SILENCE_S)["models"]
    return "in memory: " + ", ".join(model["name"] for model in models) if models else "no model in memory"
