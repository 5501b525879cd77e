"""`hymt` beside a running server: what it shows of it, and that it lets it translate."""

from __future__ import annotations

import json
import os
import plistlib
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from hymt_local.application import open_application
from hymt_local.engine.scripted import reply
from hymt_local.paths import Paths
from hymt_local.process_lock import ProcessLock
from hymt_local.server_file import write_server_file
from tests.cli.conftest import RunHymt
from tests.cli.test_imports import loaded_by
from tests.server.serving import TOKEN, Served, server_file, serving
from tests.services import scripted_service

UNUSED_ON_THE_HOT_PATH = {
    "asyncio", "email", "encodings.idna", "hashlib", "http", "huggingface_hub", "hymt_local.catalog",
    "hymt_local.engine", "hymt_local.installed", "importlib.metadata", "importlib.resources", "llama_cpp",
    "logging.config", "numpy", "platformdirs", "psutil", "rich", "sqlite3", "ssl", "starlette", "tempfile", "textual",
    "tomllib", "urllib.request", "uvicorn",
}  # fmt: skip


@pytest.fixture
def resident(paths: Paths) -> Iterator[Served]:
    """A server that this test's home knows."""
    with serving(scripted_service(reply("Bonjour"))[0]) as served:
        lock = ProcessLock(paths.server_lock)
        assert lock.acquire()
        write_server_file(paths, server_file(served))
        yield served
        paths.server_file.unlink(missing_ok=True)
        lock.release()


def test_text_is_translated_by_the_server(hymt_here: RunHymt, resident: Served) -> None:
    done = hymt_here("Hello", "-f", "en", "-t", "fr", "-m", "echo")
    assert (done.status, done.text) == (0, "Bonjour\n")
    assert 'hymt_translations_total{end="done"} 1' in resident.ask("GET", "/metrics").body.decode()


def test_a_failure_of_the_server_is_the_failure_of_the_command(hymt_here: RunHymt, resident: Served) -> None:
    done = hymt_here("Hello", "-f", "en", "-t", "fr", "-m", "echo", "--json", environ={"HYMT_RESIDENT": "auto"})
    assert json.loads(done.out)["target"] == "Bonjour"
    resident.fill_line()
    done = hymt_here("Hello", "-f", "en", "-t", "fr", "-m", "echo", "--json")
    assert (done.status, json.loads(done.out)["error"]["code"]) == (7, "busy")


def test_the_settings_keep_it_in_this_process(hymt_here: RunHymt, resident: Served) -> None:
    done = hymt_here("Hello", "-f", "en", "-t", "fr", "-m", "echo", environ={"HYMT_RESIDENT": "off"})
    assert done.text == "Hello\n"


def test_the_hot_path_loads_nothing_that_it_does_not_need(process_environ: Mapping[str, str], resident: Served) -> None:
    loaded = loaded_by(process_environ, "-m", "echo", "Hello", "-t", "fr", "-f", "en")
    assert UNUSED_ON_THE_HOT_PATH & loaded == set()
    assert resident.context.flights.n_active == 0


def test_ps_shows_the_server_and_its_models(hymt_here: RunHymt, resident: Served) -> None:
    hymt_here("Hello", "-f", "en", "-t", "fr", "-m", "echo")
    shown = hymt_here("ps").text
    assert f"http://127.0.0.1:{resident.port}  process {os.getpid()}" in shown
    assert "scripted:none  loaded, unused for now: unloads in 10 min" in shown
    state = json.loads(hymt_here("ps", "--json").out)
    assert (state["url"], state["translations"]) == (f"http://127.0.0.1:{resident.port}", 0)
    assert hymt_here("ps", "--token").text == f"{TOKEN}\n"


def test_ps_hands_a_page_over_by_a_code(hymt_here: RunHymt, resident: Served) -> None:
    address, _, code = hymt_here("ps", "--url").text.strip().partition("#code=")
    assert address == f"http://127.0.0.1:{resident.port}/"
    assert resident.ask("POST", "/v1/session", {"code": code}, token=None).status == 200


def test_unload_names_what_it_freed(hymt_here: RunHymt, resident: Served) -> None:
    assert hymt_here("unload").text == "no unused model is loaded\n"
    hymt_here("Hello", "-f", "en", "-t", "fr", "-m", "echo")
    assert hymt_here("unload").text == "unloaded scripted:none\n"
    assert json.loads(hymt_here("unload", "--json").out) == {"unloaded": []}


def test_stop_ends_the_server(hymt_here: RunHymt, paths: Paths, process_environ: Mapping[str, str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "hymt_local", "serve", "-m", "echo", "--port", "0"],
        env=dict(process_environ),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"http://127.0.0.1:")
    assert hymt_here("stop").text == f"stopped process {process.pid}\n"
    assert process.wait(10) == 0
    process.stdout.close()
    assert not paths.server_file.exists()


@pytest.mark.parametrize(
    ("arguments", "status", "shown"),
    [
        (["ps"], 1, "no server runs\n"),
        (["ps", "--json"], 1, "null\n"),
        (["stop"], 0, "no server runs\n"),
        (["unload"], 0, "no server runs\n"),
    ],
)
def test_without_a_server_each_says_so(hymt_here: RunHymt, arguments: list[str], status: int, shown: str) -> None:
    done = hymt_here(*arguments)
    assert (done.status, done.text) == (status, shown)


def test_clients_get_keys_that_work_until_they_are_revoked(hymt_here: RunHymt, resident: Served) -> None:
    key = hymt_here("clients", "add", "laptop", "--requests", "5").text.strip()
    assert resident.ask("GET", "/v1/models", token=key).status == 200
    (listed,) = json.loads(hymt_here("clients", "list", "--json").out)
    assert (listed["name"], listed["requests_per_minute"], listed["characters_per_request"]) == ("laptop", 5, 4096)
    assert key not in hymt_here("clients", "list").text
    assert hymt_here("clients", "add", "laptop").status == 2
    assert hymt_here("clients", "revoke", "laptop").status == 0
    assert resident.ask("GET", "/v1/models", token=key).status == 401
    assert hymt_here("clients", "revoke", "laptop").status == 2


def test_an_extension_is_let_in_by_a_code(hymt_here: RunHymt, resident: Served) -> None:
    code = hymt_here("clients", "pair", "moz-extension://x-y").text.strip()
    origin = {"Origin": "moz-extension://x-y"}
    assert resident.ask("POST", "/v1/session", {"code": code}, token=None, headers=origin).status == 200
    assert hymt_here("clients", "pair", "not an origin").status == 2


def test_serve_refuses_to_send_text_beyond_this_machine_in_the_clear(hymt_here: RunHymt) -> None:
    done = hymt_here("serve", "--listen", "0.0.0.0")
    assert (done.status, "plain text" in done.err) == (2, True)
    assert hymt_here("serve", "--tls-key", __file__).status == 2


def test_a_taken_port_is_named(hymt_here: RunHymt) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        done = hymt_here("serve", "--port", str(port))
    assert (done.status, str(port) in done.err) == (7, True)


def test_units_are_printed_and_installed_for_this_user(
    hymt_here: RunHymt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "ListenStream=127.0.0.1:4968" in hymt_here("serve", "--print-unit", "systemd").text
    agent = plistlib.loads(hymt_here("serve", "--print-unit", "launchd").text.encode())
    assert agent["ProgramArguments"][0] == sys.executable
    assert not list(tmp_path.rglob("hymt*"))
    done = hymt_here("serve", "--install-unit", "--print-unit", "systemd")
    assert "systemctl --user" in done.text
    assert sorted(path.name for path in tmp_path.rglob("hymt.*")) == ["hymt.service", "hymt.socket"]


def test_the_demo_translates_through_the_server_too(hymt_here: RunHymt, resident: Served) -> None:
    assert open_application(os.environ).settings.resident == "auto"
    assert "Bonjour" in hymt_here("demo", "-m", "demo").text
