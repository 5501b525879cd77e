"""`hymt web`: a browser gets the address with its code, and a terminal without one gets it in print."""

from __future__ import annotations

import re
import webbrowser

import pytest

from hymt_local.cli import web
from hymt_local.cli.app import run
from tests.server.serving import TOKEN, Served, server_file


@pytest.fixture
def opened(demo_served: Served, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that were given to a browser; the server of the tests passes for the user's own."""
    addresses: list[str] = []

    def open_(address: str) -> bool:
        addresses.append(address)
        return True

    monkeypatch.setattr(web, "find_server", lambda paths: server_file(demo_served))
    monkeypatch.setattr(webbrowser, "open", open_)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("DISPLAY", ":0")
    return addresses


def test_a_browser_is_opened_with_a_code_that_is_good_once(
    opened: list[str], demo_served: Served, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run(["web"]) == 0
    (address,) = opened
    assert capsysbinary.readouterr().out == b""
    assert TOKEN not in address
    code = address.partition("#code=")[2]
    key = demo_served.ask("POST", "/v1/session", {"code": code}, token=None).json["token"]
    assert demo_served.ask("GET", "/v1/languages", token=key).status == 200
    assert demo_served.ask("POST", "/v1/session", {"code": code}, token=None).status == 401


@pytest.mark.parametrize("way", ["--print", "no screen"])
def test_without_a_browser_the_address_is_printed(
    opened: list[str], way: str, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    if way == "no screen":
        monkeypatch.delenv("DISPLAY")
        monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert run(["web", "--print"] if way == "--print" else ["web"]) == 0
    assert re.fullmatch(rb"http://127\.0\.0\.1:\d+/#code=[\w-]+\n", capsysbinary.readouterr().out)
    assert opened == []
