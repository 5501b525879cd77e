"""Who may use the server: the owner's token, named clients with keys and limits, one-time codes of pages.

Keys are kept as SHA-256 digests only; a lookup compares with all of them in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hymt_local.config import write_atomically
from hymt_local.errors import AccessError, StoreError, UsageError
from hymt_local.server.limits import ClientAccount, ClientLimits

TOKEN_BYTES = 32
OWNER = "owner"
CODE_LIFE_S = 300.0
MAX_CODES = 32
MAX_PAGES = 64
"""Sessions of the web page that are remembered; the oldest goes."""


@dataclass(frozen=True, slots=True)
class Client:
    """Who sends a request."""

    name: str
    limits: ClientLimits = field(default_factory=ClientLimits)
    is_owner: bool = False
    """The user of this machine, with the token of `server.json`: may stop and configure the server."""
    origin: str | None = None
    """Of a paired extension: its key is worth nothing elsewhere."""


class StoredClient(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One client in `clients.json`."""

    name: str
    key_sha256: str
    origin: str | None = None
    requests_per_minute: int | None = None
    characters_per_minute: int | None = None
    characters_per_request: int | None = None
    burst: int = 10

    def client(self) -> Client:
        """Return it as requests see it."""
        limits = ClientLimits(
            self.requests_per_minute, self.characters_per_minute, self.characters_per_request, self.burst
        )
        return Client(self.name, limits, origin=self.origin)


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
                self._clients = msgspec.json.decode(self._path.read_bytes(), type=tuple[StoredClient, ...])
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
        if not client.name.strip() or client.name == OWNER or any(known.name == client.name for known in self.read()):
            raise UsageError(
                f"the client name {client.name!r} is taken or empty", hint="`hymt clients list` shows them"
            )
        self.write([*self.read(), client])

    def remove(self, name: str) -> None:
        """Remove one client; its key is worth nothing from then on.

        Raises:
            UsageError: there is none of that name.
        """
        rest = [client for client in self.read() if client.name != name]
        if len(rest) == len(self.read()):
            raise UsageError(f"no client is called {name!r}", hint="`hymt clients list` shows them")
        self.write(rest)


class Clients:
    """Recognizes clients by their tokens. Belongs to the server's loop.

    Args:
        token: The owner's.
        file: Named clients.
        clock: Seconds, monotonic.
    """

    def __init__(self, token: str, file: ClientFile, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._owner_digest = digest(token)
        self._file = file
        self._clock = clock
        self._pages: dict[str, Client] = {}
        self._codes: dict[str, _Code] = {}
        self._accounts: dict[Client, ClientAccount] = {}

    def identify(self, token: str | None, *, origin: str | None = None) -> Client | None:
        """Return whose token it is, or None. An extension's key holds only with its own origin."""
        if not token:
            return None
        presented = digest(token)
        found = None
        for known, client in self._known().items():
            if hmac.compare_digest(known, presented):  # all are compared: the time says nothing
                found = client
        return found if found is not None and found.origin in {None, origin} else None

    def account(self, client: Client) -> ClientAccount:
        """Return what the client has left."""
        if client not in self._accounts:
            self._accounts[client] = ClientAccount(client.limits, self._clock)
        return self._accounts[client]

    def allowed_origins(self) -> frozenset[str]:
        """Return the origins of paired extensions, and of those that a code was made for."""
        self._drop_old_codes()
        waiting = (code.client.origin for code in self._codes.values())
        return frozenset(origin for origin in (*waiting, *(each.origin for each in self._file.read())) if origin)

    def new_code(self, *, name: str = "page", origin: str | None = None) -> str:
        """Return a code that is good for one `redeem` within five minutes: for the web page, or an extension."""
        self._drop_old_codes()
        while len(self._codes) >= MAX_CODES:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(16)
        self._codes[digest(code)] = _Code(Client(name, origin=origin), self._clock() + CODE_LIFE_S)
        return code

    def redeem(self, code: str, *, origin: str | None) -> str:
        """Return a token for a code, which is used up. An extension's is kept for good, a page's until the server ends.

        Raises:
            AccessError: unknown, used, too old, or of another origin.
        """
        self._drop_old_codes()
        found = self._codes.pop(digest(code), None)
        if found is None or found.client.origin not in {None, origin}:
            raise AccessError("this code is not valid (any more)", hint="`hymt ps --url` prints a new address")
        token = secrets.token_urlsafe(TOKEN_BYTES)
        if found.client.origin is None:
            while len(self._pages) >= MAX_PAGES:
                del self._pages[next(iter(self._pages))]
            self._pages[digest(token)] = found.client
        else:
            rest = [each for each in self._file.read() if each.name != found.client.name]
            stored = StoredClient(name=found.client.name, key_sha256=digest(token), origin=found.client.origin)
            self._file.write([*rest, stored])
        return token

    def _known(self) -> Mapping[str, Client]:
        named = {each.key_sha256: each.client() for each in self._file.read()}
        return {self._owner_digest: Client(OWNER, is_owner=True), **self._pages, **named}

    def _drop_old_codes(self) -> None:
        now = self._clock()
        self._codes = {key: code for key, code in self._codes.items() if code.expires_at > now}


@dataclass(frozen=True, slots=True)
class _Code:
    client: Client
    expires_at: float


def digest(token: str) -> str:
    """Return what is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def new_client(client: StoredClient) -> tuple[StoredClient, str]:
    """Return the client with a new key's digest, and the key, which is nowhere else."""
    key = secrets.token_urlsafe(TOKEN_BYTES)
    return msgspec.structs.replace(client, key_sha256=digest(key)), key
