"""The offline guarantee: what asks for it, what it refuses, and that nothing in this interpreter gets around it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hymt_local.errors import DownloadError
from hymt_local.offline import NetworkGuard, guarded, is_offline
from hymt_local.paths import Paths

INTERNET = SimpleNamespace(family=socket.AF_INET)
ELSEWHERE = "192.0.2.1"  # reserved for documentation: nobody is there


def environ(home: Path, **variables: str) -> dict[str, str]:
    return {"HYMT_HOME": str(home), **variables}


def configure(home: Path, text: str | bytes) -> None:
    file = Paths.under(home).config_file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)


# What asks for it


@pytest.mark.parametrize("name", ["HYMT_OFFLINE", "HF_HUB_OFFLINE"])
@pytest.mark.parametrize(("value", "offline"), [("1", True), ("true", True), ("yse", True), ("0", False), ("", False)])
def test_variables_ask_for_it(tmp_path: Path, name: str, value: str, offline: bool) -> None:
    assert is_offline(environ(tmp_path, **{name: value})) == offline


@pytest.mark.parametrize(
    ("text", "offline"),
    [
        ("offline = true\n", True),
        ("\ufeffoffline = true\r\n", True),
        ("offline = false\n", False),
        ("model = 'demo'\n", False),
        ("", False),
        ("offline = 'maybe'\n", True),
        ("offline = \n", True),
        (b"\xff", True),
    ],
)
def test_the_settings_file_asks_for_it_and_a_broken_one_does(tmp_path: Path, text: str | bytes, offline: bool) -> None:
    configure(tmp_path, text)
    assert is_offline(environ(tmp_path)) == offline


def test_our_variable_wins_over_the_file(tmp_path: Path) -> None:
    configure(tmp_path, "offline = true\n")
    assert not is_offline(environ(tmp_path, HYMT_OFFLINE="0"))


def test_without_any_settings_the_network_is_open(tmp_path: Path) -> None:
    assert not is_offline(environ(tmp_path))


# What it refuses


@pytest.mark.parametrize("host", [ELSEWHERE, "10.0.0.1", "huggingface.co", "2001:db8::1", "::ffff:10.0.0.1", b"x.org"])
@pytest.mark.parametrize("event", ["socket.connect", "socket.sendto", "socket.sendmsg"])
def test_other_machines_are_refused(event: str, host: object) -> None:
    with pytest.raises(DownloadError, match=r"offline: .* was not contacted"):
        NetworkGuard()(event, (INTERNET, (host, 443)))


@pytest.mark.parametrize("event", ["socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"])
def test_names_of_other_machines_are_not_looked_up(event: str) -> None:
    with pytest.raises(DownloadError, match="huggingface"):
        NetworkGuard()(event, ("huggingface.co", 443, 0, 0, 0))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST", "::ffff:127.0.0.1", "::1%lo"]
)
def test_this_machine_is_allowed(host: str) -> None:
    NetworkGuard()("socket.connect", (INTERNET, (host, 8080)))
    NetworkGuard()("socket.getaddrinfo", (host, 8080, 0, 0, 0))


def test_what_cannot_leave_the_machine_is_allowed(tmp_path: Path) -> None:
    guard = NetworkGuard()
    guard("socket.connect", (SimpleNamespace(family=socket.AF_UNIX), str(tmp_path / "socket")))
    guard("socket.getaddrinfo", (None, 8080, 0, 0, 0))
    guard("socket.sendmsg", (INTERNET, None))
    guard("open", ("huggingface.co",))


def test_an_unknown_kind_of_address_is_refused() -> None:
    with pytest.raises(DownloadError):
        NetworkGuard()("socket.connect", (SimpleNamespace(family=99), (2, 1234)))


# While it holds


def test_it_holds_inside_the_context_only_and_children_are_told(tmp_path: Path) -> None:
    variables = environ(tmp_path, HYMT_OFFLINE="1")
    with guarded(variables):
        assert variables["HF_HUB_OFFLINE"] == "1"
        with socket.socket() as connection, pytest.raises(DownloadError):
            connection.connect((ELSEWHERE, 9))
        with pytest.raises(DownloadError):
            socket.getaddrinfo("huggingface.co", 443)
    assert "HF_HUB_OFFLINE" not in variables
    assert socket.getaddrinfo(ELSEWHERE, 443)  # a number, which needs no lookup


def test_a_variable_of_the_users_is_left_as_it_was(tmp_path: Path) -> None:
    variables = environ(tmp_path, HF_HUB_OFFLINE="true")
    with guarded(variables):
        pass
    assert variables["HF_HUB_OFFLINE"] == "true"


def test_nothing_is_changed_when_nothing_asks_for_it(tmp_path: Path) -> None:
    variables = environ(tmp_path)
    with guarded(variables):
        assert "HF_HUB_OFFLINE" not in variables


@pytest.mark.parametrize(
    "attempt",
    [
        "import socket; socket.create_connection(('192.0.2.1', 9), timeout=1)",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9))",
        "import socket; socket.socket().connect_ex(('192.0.2.1', 9))",
        "import _socket; _socket.socket().connect(('192.0.2.1', 9))",
        "import urllib.request; urllib.request.urlopen('http://192.0.2.1/', timeout=1)",
        "import asyncio; asyncio.run(asyncio.open_connection('192.0.2.1', 9))",
        "import http.client; http.client.HTTPSConnection('huggingface.co', timeout=1).request('GET', '/')",
        "import huggingface_hub; huggingface_hub.HfApi().model_info('tencent/Hy-MT2-7B')",
    ],
    ids=["connect", "datagram", "connect_ex", "_socket", "urllib", "asyncio", "http.client", "huggingface-hub"],
)
def test_no_way_out_of_this_interpreter_is_open(tmp_path: Path, attempt: str) -> None:
    program = f"import os\nfrom hymt_local.offline import guarded\nwith guarded(os.environ):\n    {attempt}\n"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "HYMT_OFFLINE": "1"},
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "offline" in done.stderr.splitlines()[-1].lower()
