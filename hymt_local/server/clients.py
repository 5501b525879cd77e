"""Who may use the server: the owner's token, named clients with keys and limits, one-time codes of pages.

A lookup compares with all known digests in constant time.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hymt_local.client_keys import OWNER, PAGE, TOKEN_BYTES, ClientFile, StoredClient, check_name, digest
from hymt_local.errors import AccessError, UsageError
from hymt_local.server.limits import ClientAccount, ClientLimits

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

    def new_code(self, *, name: str = PAGE, origin: str | None = None) -> str:
        """Return a code that is good for one `redeem` within five minutes: for the web page, or an extension.

        Raises:
            UsageError: the extension's name is not one, or another client's.
        """
        if origin is not None:
            check_name(name)
            if any(each.name == name and each.origin != origin for each in self._file.read()):
                raise UsageError(f"the client name {name!r} is taken", hint="`hymt clients list` shows them")
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
        named = {each.key_sha256: _client(each) for each in self._file.read()}
        return {self._owner_digest: Client(OWNER, is_owner=True), **self._pages, **named}

    def _drop_old_codes(self) -> None:
        now = self._clock()
        self._codes = {key: code for key, code in self._codes.items() if code.expires_at > now}


@dataclass(frozen=True, slots=True)
class _Code:
    client: Client
    expires_at: float


def _client(stored: StoredClient) -> Client:
    limits = ClientLimits(
        requests_per_minute=stored.requests_per_minute,
        characters_per_minute=stored.characters_per_minute,
        characters_per_request=stored.characters_per_request,
        seconds_per_request=stored.seconds_per_request,
        burst=stored.burst,
    )
    return Client(stored.name, limits, origin=stored.origin)
