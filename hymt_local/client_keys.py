"""The clients of the resident server that have keys of their own: a private file, in which only digests are kept."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from pathlib import Path

import msgspec

from hymt_local.config import write_atomically
from hymt_local.errors import StoreError, UsageError
from hymt_local.regular_file import read_regular

TOKEN_BYTES = 32
OWNER = "owner"
"""The name of the user of this machine, who is no client in the file."""
PAGE = "page"
"""The name of the sessions of the web page, which are not in the file either."""
MAX_NAME_CHARACTERS = 60
_HINT = "`hymt clients list` shows them"


class StoredClient(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One client in `clients.json`."""

    name: str
    key_sha256: str
    origin: str | None = None
    requests_per_minute: int | None = None
    characters_per_minute: int | None = None
    characters_per_request: int | None = None
    seconds_per_request: float | None = None
    burst: int = 10


class ClientFile:
    """The file of named clients; read anew when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._clients: tuple[StoredClient, ...] = ()

    def read(self) -> tuple[StoredClient, ...]:
        """Return all clients.

        Raises:
            StoreError: the file cannot be read or is not what this program writes.
        """
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._seen, self._clients = None, ()
            return ()
        seen = (status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            try:
                self._clients = msgspec.json.decode(read_regular(self._path), type=tuple[StoredClient, ...])
            except (msgspec.DecodeError, OSError) as error:
                raise StoreError(
                    f"cannot read {self._path}: {error}", hint="move it away, and add the clients again"
                ) from error
            self._seen = seen
        return self._clients

    def write(self, clients: Iterable[StoredClient]) -> None:
        """Replace all clients.

        Raises:
            StoreError: the file cannot be written.
        """
        write_atomically(self._path, msgspec.json.format(msgspec.json.encode(list(clients)), indent=2).decode() + "\n")

    def add(self, client: StoredClient) -> None:
        """Add one client.

        Raises:
            UsageError: the name is taken, or is not one.
        """
        check_name(client.name)
        if any(known.name == client.name for known in self.read()):
            raise UsageError(f"the client name {client.name!r} is taken", hint=_HINT)
        self.write([*self.read(), client])

    def remove(self, name: str) -> None:
        """Remove one client; its key is worth nothing from then on.

        Raises:
            UsageError: there is none of that name.
        """
        rest = [client for client in self.read() if client.name != name]
        if len(rest) == len(self.read()):
            raise UsageError(f"no client is called {name!r}", hint=_HINT)
        self.write(rest)


def check_name(name: str) -> None:
    """Refuse a name that says nothing, that is somebody else's, or that would garble lists and logs.

    Raises:
        UsageError: it is such a name.
    """
    if name.strip() in {"", OWNER, PAGE}:
        raise UsageError(f"the client name {name!r} is taken or empty", hint=_HINT)
    if not name.isprintable() or len(name) > MAX_NAME_CHARACTERS:
        raise UsageError(
            f"{name[:MAX_NAME_CHARACTERS]!r} is no name of a client",
            hint=f"at most {MAX_NAME_CHARACTERS} characters, all of them visible",
        )


def digest(token: str) -> str:
    """Return what is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def new_client(client: StoredClient) -> tuple[StoredClient, str]:
    """Return the client with a new key's digest, and the key, which is nowhere else."""
    key = secrets.token_urlsafe(TOKEN_BYTES)
    return msgspec.structs.replace(client, key_sha256=digest(key)), key
