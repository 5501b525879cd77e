"""Servers for the clients of other translators: one with the demo model, one with an engine that changes every word."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from hymt_local.application import open_application
from hymt_local.jobs import LocalService
from tests.server.serving import Served, serving
from tests.services import echo_model


@pytest.fixture(scope="session")
def demo_served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The demo model behind the door, for all tests: loading it takes a moment, starting a server another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HYMT_HOME", str(tmp_path_factory.mktemp("demo-home")))
        app = open_application(os.environ, flags={"model": "demo"})
        with serving(LocalService(app.open_model, cache_path=None), model="demo") as served:
            yield served


@pytest.fixture(scope="session")
def loud_served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """An engine that answers in capitals: what it has translated can be told from what passed through."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HYMT_HOME", str(tmp_path_factory.mktemp("loud-home")))
        with serving(LocalService(lambda ref: echo_model(str.upper), cache_path=None)) as served:
            yield served
