"""A fake hub, a clock that does not wait, and a guard that no test reaches beyond this machine."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hymt_local.download import DownloadEvent, DownloadWaiting, Patience
from tests.download.fake_hub import FakeHub


@dataclass
class FakeClock:
    """Time that passes only by waiting."""

    seconds: float = 1000.0
    waits: list[float] = field(default_factory=list)
    on_wait: Callable[[], object] = lambda: None

    def now(self) -> float:
        return self.seconds

    def wait(self, _cancel: threading.Event, seconds: float) -> None:
        self.waits.append(seconds)
        self.seconds += seconds
        self.on_wait()

    def patience(self, **changes: Any) -> Patience:
        return Patience(now=self.now, wall_clock=self.now, wait=self.wait, **changes)


@dataclass
class Events:
    """What a download reported."""

    all: list[DownloadEvent] = field(default_factory=list)

    def __call__(self, event: DownloadEvent) -> None:
        self.all.append(event)

    @property
    def waiting(self) -> list[DownloadWaiting]:
        return [event for event in self.all if isinstance(event, DownloadWaiting)]


@pytest.fixture(autouse=True)
def refused_addresses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Refuse names and addresses of other machines; a test that tries one fails, whatever the code makes of it."""
    refused: list[str] = []
    resolve = socket.getaddrinfo

    def guard(name: str) -> None:
        method = getattr(socket.socket, name)

        def guarded(self: socket.socket, *args: Any) -> Any:
            if self.family != socket.AF_UNIX:
                _check(str(args[-1][0]), refused)
            return method(self, *args)

        monkeypatch.setattr(socket.socket, name, guarded)

    def guarded_resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
        _check(str(host), refused)
        return resolve(host, *args, **kwargs)

    for name in ("connect", "connect_ex", "sendto"):
        guard(name)
    monkeypatch.setattr(socket, "getaddrinfo", guarded_resolve)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    yield refused
    assert refused == []


def _check(host: str, refused: list[str]) -> None:
    if host != "localhost" and not _is_loopback(host):
        refused.append(host)
        raise AssertionError(f"a test tried to reach {host}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    server = FakeHub()
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def environ(hub: FakeHub, tmp_path: Path) -> dict[str, str]:
    """The fake hub is the only source, and its cache is empty."""
    return {"HF_ENDPOINT": hub.url, "MODELSCOPE_ENDPOINT": "", "HF_HUB_CACHE": str(tmp_path / "cache")}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def events() -> Events:
    return Events()
