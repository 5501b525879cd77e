"""`hymt clients`: keys and limits of other programs and people, and extensions that may talk to the server."""

from __future__ import annotations

import os

import click

from hymt_local.cli import output
from hymt_local.client_keys import ClientFile, StoredClient, new_client
from hymt_local.errors import ServerError
from hymt_local.paths import Paths
from hymt_local.server_call import ask
from hymt_local.server_file import find_server

SHARED_CHARACTERS = 4096
"""Of one request: about 1,024 tokens of a Latin script."""
SHARED_SECONDS = 300
"""For one request: 1,024 tokens on a slow machine."""


LIMITS = (
    ("requests_per_minute", "REQUESTS/MIN"),
    ("characters_per_minute", "CHARACTERS/MIN"),
    ("characters_per_request", "CHARACTERS/REQUEST"),
    ("seconds_per_request", "SECONDS/REQUEST"),
)
"""Field of a client -> its column."""


@click.group(name="clients")
def clients_command() -> None:
    """Give keys to other programs; let extensions in."""


@clients_command.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def list_clients(as_json: bool) -> int:
    """List the clients that have keys."""
    clients = _file().read()
    if as_json:
        names = ("name", "origin", *(name for name, _ in LIMITS))
        output.write_json([{name: getattr(client, name) for name in names} for client in clients])
        return 0
    rows = [
        (
            client.name,
            client.origin or "",
            *(_limit(getattr(client, name)) for name, _ in LIMITS),
        )
        for client in clients
    ]
    output.write_table(rows, header=("NAME", "ORIGIN", *(title for _, title in LIMITS)))
    return 0


@clients_command.command(name="add")
@click.argument("name")
@click.option(
    "--requests", type=click.IntRange(1), metavar="N", default=60, show_default=True, help="Requests per minute."
)
@click.option(
    "--characters",
    type=click.IntRange(1),
    metavar="N",
    default=60_000,
    show_default=True,
    help="Characters per minute.",
)
@click.option(
    "--at-once",
    type=click.IntRange(1),
    metavar="N",
    default=SHARED_CHARACTERS,
    show_default=True,
    help="Characters of one request; 4096 are about 1,024 tokens.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    metavar="S",
    default=SHARED_SECONDS,
    show_default=True,
    help="Time for one request; documents excepted.",
)
@click.option(
    "--burst",
    type=click.IntRange(1),
    metavar="N",
    default=10,
    show_default=True,
    help="Requests at once after a pause.",
)
def add_client(name: str, requests: int, characters: int, at_once: int, seconds: float, burst: int) -> int:
    """Print a new key for NAME.

    It is not kept, so it cannot be shown again.
    """
    client, key = new_client(
        StoredClient(
            name=name,
            key_sha256="",
            requests_per_minute=requests,
            characters_per_minute=characters,
            characters_per_request=at_once,
            seconds_per_request=seconds,
            burst=burst,
        )
    )
    _file().add(client)
    output.write_text(f"{key}\n")
    return 0


@clients_command.command(name="revoke")
@click.argument("name")
def revoke_client(name: str) -> int:
    """Make the key of NAME worthless."""
    _file().remove(name)
    return 0


@clients_command.command(name="pair")
@click.argument("origin")
@click.option("--name", help="What it is called in the list.  [default: the origin]")
def pair_extension(origin: str, name: str | None) -> int:
    """Let an extension in, by a code.

    ORIGIN is like chrome-extension://ID; type the code there within five minutes.
    """
    server = find_server(Paths.from_environment(os.environ))
    if server is None:
        raise ServerError("no server runs", hint="`hymt serve` starts one")
    code = ask(server, "POST", "/v1/pairing", {"origin": origin, "name": name or origin[:60]})["code"]
    output.write_text(f"{code}\n")
    return 0


def _file() -> ClientFile:
    return ClientFile(Paths.from_environment(os.environ).clients_file)


def _limit(value: float | None) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
