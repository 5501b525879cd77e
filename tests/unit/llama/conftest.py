"""A toy model and a backend that has loaded it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hymt_local.engine.llama import LlamaBackend
from tests.llama_backends import open_toy
from tests.toy_models import write_toy_model


@pytest.fixture(scope="module")
def toy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_model(tmp_path_factory.mktemp("toy") / "toy.gguf")


@pytest.fixture
def backend(toy_path: Path) -> Iterator[LlamaBackend]:
    backend = open_toy(toy_path)
    yield backend
    backend.close()
