"""Which hosts may be asked, with what credentials, and the opening of one URL.

Redirects are followed here and not by urllib: the token must not follow to another host, and offline no step may leave
this machine.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
import ssl
import string
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import hymt_local
from hymt_local.download.remote_file import RemoteFile
from hymt_local.errors import ConfigError, DownloadError

HUB = "https://huggingface.co"
MODELSCOPE = "https://www.modelscope.cn"
_MODELSCOPE_OWNERS = {"tencent": "Tencent-Hunyuan"}
_OFFLINE_VARIABLES = ("HYMT_OFFLINE", "HF_HUB_OFFLINE")
_FALSE = frozenset({"", "0", "false", "no", "off"})
"""Anything else keeps the network closed: a misspelt wish for privacy is still one."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 5
_NO_WAY = frozenset({errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL})


@dataclass(frozen=True, slots=True)
class Source:
    """A server that publishes repositories."""

    kind: Literal["hub", "modelscope"]
    endpoint: str

    @property
    def host(self) -> str:
        """Its name, for messages."""
        return urlsplit(self.endpoint).hostname or self.endpoint

    def url(self, entry: RemoteFile) -> str:
        """Return where it keeps a file."""
        if self.kind == "hub":
            return f"{self.endpoint}/{entry.repo}/resolve/{quote(entry.revision, safe='')}/{quote(entry.name)}"
        return f"{self.endpoint}/models/{modelscope_id(entry.repo)}/resolve/master/{quote(entry.name)}"


@dataclass(frozen=True, slots=True)
class Network:
    """What the user allows and configured."""

    hub: str = HUB
    modelscope: str = MODELSCOPE
    """Empty: it is not asked."""
    token: str | None = field(default=None, repr=False)
    offline: bool = False
    """No host but this machine is contacted."""
    hub_cache: Path | None = None
    """Where other programs keep what they downloaded from the hub."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], *, offline: bool = False) -> Network:
        """Read HF_ENDPOINT, MODELSCOPE_ENDPOINT, HF_TOKEN, the cache folders, and the two variables for offline use.

        Raises:
            ConfigError: an endpoint is no http address, or the token has characters that no token has.
        """
        token = environ.get("HF_TOKEN", "").strip() or None
        if token and not (token.isascii() and token.isprintable() and " " not in token):
            raise ConfigError("HF_TOKEN has characters that no token has", hint="copy the token again")
        return cls(
            hub=_endpoint("HF_ENDPOINT", environ.get("HF_ENDPOINT") or HUB),
            modelscope=_endpoint("MODELSCOPE_ENDPOINT", environ.get("MODELSCOPE_ENDPOINT", MODELSCOPE)),
            token=token,
            offline=offline or any(environ.get(name, "").strip().lower() not in _FALSE for name in _OFFLINE_VARIABLES),
            hub_cache=_hub_cache(environ),
        )

    def sources(self) -> tuple[Source, ...]:
        """Return the servers that may be asked, in order; offline only those on this machine.

        Raises:
            DownloadError: offline, and none is on this machine.
        """
        configured = [Source("hub", self.hub)]
        if self.modelscope:
            configured.append(Source("modelscope", self.modelscope))
        allowed = tuple(source for source in configured if not self.offline or is_loopback(source.endpoint))
        if not allowed:
            raise offline_error(configured[0].host)
        return allowed

    def check(self, url: str) -> None:
        """Refuse a URL that must not be opened, before any socket or name lookup.

        Raises:
            DownloadError: offline and not on this machine, or not http.
        """
        parts = _web_address(url)
        if parts is None:
            raise DownloadError(
                f"refused to open {_without_password(url)[:80]!r}: not a web address",
                hint="a server led there: try again, or another HF_ENDPOINT",
            )
        if self.offline and not is_loopback(url):
            raise offline_error(str(parts.hostname))

    def token_for(self, url: str) -> str | None:
        """Return the token if this URL may see it: over https, or on this machine."""
        return self.token if urlsplit(url).scheme == "https" or is_loopback(url) else None

    def open(self, url: str, *, headers: Mapping[str, str], timeout_s: float) -> HTTPResponse:
        """Send a GET, follow redirects, and return the answer whatever its status.

        Raises:
            DownloadError: a step leads where it must not.
            OSError: no answer (urllib's URLError among them).
        """
        token = self.token_for(url)
        for _ in range(_MOST_REDIRECTS + 1):
            self.check(url)
            response = _send(url, headers=_with_token(headers, token), timeout_s=timeout_s)
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or not location:
                return response
            response.close()
            target = _joined(url, quote(location, safe=string.punctuation))
            self.check(target)
            _check_redirect(url, target)
            token = token if _origin(target) == _origin(url) else None
            url = target
        raise DownloadError(f"{urlsplit(url).hostname} redirects in circles", hint="try again, or another HF_ENDPOINT")


def offline_error(host: str) -> DownloadError:
    """Return the refusal to contact a host."""
    return DownloadError(
        f"offline: {host} was not contacted",
        hint="unset HYMT_OFFLINE and HF_HUB_OFFLINE and set `offline = false` to download",
    )


def is_loopback(url: str) -> bool:
    """Tell by the name alone whether a URL stays on this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def modelscope_id(repo: str) -> str:
    """Return the id that ModelScope gives to a repository of the hub."""
    owner, _, name = repo.partition("/")
    return f"{_MODELSCOPE_OWNERS.get(owner.lower(), owner)}/{name}"


def explain(url: str, error: BaseException) -> str:
    """Return who did not answer, behind which proxy, and how, in a clause."""
    proxy = _proxy_of(url)
    behind = f" behind the proxy {proxy}" if proxy else ""
    return f"{urlsplit(url).hostname or url}{behind} {_what_happened(error)}"


def _proxy_of(url: str) -> str | None:
    """Return host and port of the proxy that the system's settings put before a server; never its password."""
    parts = urlsplit(url)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or is_loopback(url) or urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return re.sub(r"^[a-z0-9+.-]+://|/.*$", "", _without_password(proxy)).rpartition("@")[2]


def _what_happened(error: BaseException) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return "did not answer in time"
    if isinstance(reason, OSError) and reason.strerror:
        return f"cannot be reached ({reason.strerror})"
    return f"broke the connection ({str(reason) or type(reason).__name__})"


def is_cut_off(error: BaseException) -> bool:
    """Tell whether this machine found no way to the server at all: no network, or nobody knows its name."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return isinstance(reason, socket.gaierror) or (isinstance(reason, OSError) and reason.errno in _NO_WAY)


def is_certificate_error(error: BaseException) -> bool:
    """Tell whether the server's certificate was refused: trying again does not help."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return isinstance(reason, ssl.SSLCertVerificationError)


def _send(url: str, *, headers: Mapping[str, str], timeout_s: float) -> HTTPResponse:
    request = urllib.request.Request(
        url, headers={"User-Agent": f"hymt-local/{hymt_local.__version__}", "Accept-Encoding": "identity", **headers}
    )
    opener = urllib.request.OpenerDirector()  # without the handlers that follow redirects and raise on statuses
    opener.add_handler(urllib.request.HTTPHandler())
    if not is_loopback(url):
        opener.add_handler(urllib.request.ProxyHandler())
        opener.add_handler(urllib.request.HTTPSHandler())
    elif urlsplit(url).scheme == "https":
        opener.add_handler(urllib.request.HTTPSHandler())
    response = opener.open(request, timeout=timeout_s)
    assert isinstance(response, HTTPResponse)
    return response


def _with_token(headers: Mapping[str, str], token: str | None) -> Mapping[str, str]:
    return {**headers, "Authorization": f"Bearer {token}"} if token else headers


def _check_redirect(url: str, target: str) -> None:
    insecure = urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https"
    if insecure and not is_loopback(target):
        raise DownloadError(
            f"{urlsplit(url).hostname} redirects from https to an unencrypted address", hint="check HF_ENDPOINT"
        )


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts: SplitResult = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _web_address(url: str) -> SplitResult | None:
    """Take a URL apart; None when it is no http address of a host that can exist, or brings a password along."""
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
        is_name = ":" in host or bool(host.encode("idna"))
    except ValueError:  # UnicodeError too: labels of names that are empty or too long
        return None
    is_sound = is_name and not any(character.isspace() for character in host) and port != 0 and "@" not in parts.netloc
    return parts if is_sound and parts.scheme in {"http", "https"} else None


def _joined(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError:  # brackets that hold no address; what it is then, `check` refuses
        return location


def _without_password(url: str) -> str:
    return re.sub(r"//[^/]*@", "//", url)


def _endpoint(variable: str, value: str) -> str:
    if not value:
        return ""
    parts = _web_address(value)
    if parts is None or parts.query or parts.fragment:
        hint = "give it as https://HOST, or unset it; a token belongs into HF_TOKEN"
        raise ConfigError(f"{variable} is not a web address", hint=hint)
    return value.rstrip("/")


def _hub_cache(environ: Mapping[str, str]) -> Path | None:
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(variable):
            return _expanded(environ[variable])
    if environ.get("HF_HOME"):
        home = _expanded(environ["HF_HOME"])
    else:
        home = _expanded(environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return home / "hub" if home else None


def _expanded(folder: str, *below: str) -> Path | None:
    try:
        return Path(folder, *below).expanduser()
    except RuntimeError:  # nothing says where home is
        return None
