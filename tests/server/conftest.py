"""One server for all tests of a module that leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hymt_local.engine.scripted import reply
from tests.server.serving import Served, serving
from tests.services import scripted_service


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose model answers `Bonjour`."""
    environ = {"HYMT_HOME": str(tmp_path_factory.mktemp("server-home"))}
    with serving(scripted_service(reply("Bonjour"))[0], environ=environ) as running:
        yield running
