"""The guard of these tests does see an attempt to leave the machine."""

from __future__ import annotations

import socket
import urllib.request

import pytest


@pytest.mark.parametrize("address", ["hub.example", "192.0.2.1"])
def test_the_guard_refuses_other_machines(refused_addresses: list[str], address: str) -> None:
    with pytest.raises(AssertionError, match=address):
        urllib.request.urlopen(f"http://{address}/", timeout=1)
    assert refused_addresses == [address]
    refused_addresses.clear()


def test_the_guard_refuses_datagrams(refused_addresses: list[str]) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made,
        pytest.raises(AssertionError, match=r"192\.0\.2\.1"),
    ):
        made.sendto(b"x", ("192.0.2.1", 53))
    refused_addresses.clear()
