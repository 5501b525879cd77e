"""The offline guarantee: while it holds, no socket of this process reaches beyond this machine, whoever opens it.

It is held by an audit hook of the interpreter: every connection, datagram and name lookup made through Python's socket
module passes it, those of third-party packages too. What native code does without Python it cannot see; llama.cpp's
CPU and GPU backends open no sockets.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager

from hymt_local.errors import DownloadError, HymtError
from hymt_local.paths import Paths
from hymt_local.regular_file import read_regular

VARIABLES = ("HYMT_OFFLINE", "HF_HUB_OFFLINE")
INHERITED_VARIABLE = "HF_HUB_OFFLINE"
"""Set while the guard holds: child processes and huggingface-hub read it."""
_FALSE = frozenset({"", "0", "false", "no", "off"})
"""Anything else closes the network: a misspelt wish for privacy is still one."""
_LOOKUPS = frozenset({"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"})
_TRANSFERS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_LOCAL_FAMILIES = frozenset(getattr(socket, name) for name in ("AF_UNIX", "AF_NETLINK") if hasattr(socket, name))


def is_offline(environ: Mapping[str, str]) -> bool:
    """Tell whether the variables or the settings file ask for it; a file that cannot be read does.

    Cheap: no package beyond the standard library is loaded, and no file but the settings is read.
    """
    if any(environ.get(name, "").strip().lower() not in _FALSE for name in VARIABLES):
        return True
    if "HYMT_OFFLINE" in environ and environ["HYMT_OFFLINE"].strip():
        return False  # a variable wins over the file
    try:
        text = read_regular(Paths.from_environment(environ).config_file).decode("utf-8-sig")
        import tomllib  # only here: most users have no such file

        return tomllib.loads(text).get("offline", False) is not False
    except FileNotFoundError:
        return False
    except (OSError, ValueError, RecursionError, HymtError):
        return True


@contextmanager
def guarded(environ: MutableMapping[str, str]) -> Iterator[None]:
    """Hold the guarantee inside the context if `environ` and settings ask for it.

    Hooks cannot be taken away from the interpreter: afterwards it lets everything pass.
    """
    if not is_offline(environ):
        yield
        return
    before = environ.get(INHERITED_VARIABLE)
    environ[INHERITED_VARIABLE] = "1"
    guard = NetworkGuard()
    sys.addaudithook(guard)
    try:
        yield
    finally:
        guard.is_closed = False
        if before is None:
            environ.pop(INHERITED_VARIABLE, None)
        else:
            environ[INHERITED_VARIABLE] = before


class NetworkGuard:
    """An audit hook that refuses what would leave this machine, with DownloadError; any thread."""

    def __init__(self) -> None:
        self.is_closed = True

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        """Look at one event of the interpreter."""
        if not event.startswith("socket.") or not self.is_closed:
            return
        if event in _LOOKUPS:
            _check_host(arguments[0])
        elif event in _TRANSFERS:
            connection, address = arguments[0], arguments[-1]
            if getattr(connection, "family", None) not in _LOCAL_FAMILIES and address is not None:
                _check_host(address[0] if isinstance(address, tuple) and address else address)


def _check_host(host: object) -> None:
    name = host.decode("ascii", errors="replace") if isinstance(host, bytes | bytearray) else host
    if name is None or (isinstance(name, str) and _is_this_machine(name)):
        return
    raise DownloadError(
        f"offline: {str(name)[:80]} was not contacted",
        hint="unset HYMT_OFFLINE and HF_HUB_OFFLINE, and `hymt config set offline false`, to allow it",
    )


def _is_this_machine(name: str) -> bool:
    if name.lower() in {"", "localhost"}:
        return True
    import ipaddress

    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback or address.is_unspecified
