"""Servers that several tests share: none of them changes anything in one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hymt_local.application import open_application
from hymt_local.engine.scripted import reply
from hymt_local.jobs import LocalService
from tests.server.serving import Served, serving
from tests.services import echo_model, scripted_service


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose model answers `Bonjour`."""
    environ = {"HYMT_HOME": str(tmp_path_factory.mktemp("server-home"))}
    with serving(scripted_service(reply("Bonjour"))[0], environ=environ) as running:
        yield running


@pytest.fixture(scope="session")
def demo_served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with the demo model, for what real clients send."""
    environ = {"HYMT_HOME": str(tmp_path_factory.mktemp("demo-home"))}
    app = open_application(environ, flags={"model": "demo"})
    with serving(LocalService(app.open_model, cache_path=None), model="demo", environ=environ) as running:
        yield running


@pytest.fixture(scope="session")
def loud_served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose engine answers in capitals: what was translated can be told from what passed through."""
    environ = {"HYMT_HOME": str(tmp_path_factory.mktemp("loud-home"))}
    with serving(LocalService(lambda ref: echo_model(str.upper), cache_path=None), environ=environ) as running:
        yield running
