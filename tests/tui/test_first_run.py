"""The first start on a real terminal: the demo works, a real model is offered, comes meanwhile, and takes over."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hymt_local.paths import Paths
from tests.download.fake_hub import FakeHub
from tests.toy_models import write_toy_model
from tests.tui.pty_program import READY, Program

pytestmark = pytest.mark.pty

REPO, NAME, REF = "tencent/Hy-MT2-1.8B-GGUF", "Hy-MT2-1.8B-Q4_K_M.gguf", "Hy-MT2-1.8B:Q4_K_M"
CATALOG = """\
schema = 1
[[models]]
id = "Hy-MT2-1.8B"
title = "Hy-MT2 1.8B"
family = "dense-1_8B"
licence = "Apache-2.0"
template_set = "mt2"
gguf_repo = "{repo}"
files = [{{ quantization = "Q4_K_M", name = "{name}", size_bytes = {size}, sha256 = "{sha256}" }}]
[[models]]
id = "Hy-MT2-7B"
title = "nothing to fetch, however fast this machine is"
family = "dense-7B"
licence = "Apache-2.0"
template_set = "mt2"
[[models]]
id = "Hy-MT2-30B-A3B"
title = "nothing either"
family = "moe-30B"
licence = "Apache-2.0"
template_set = "mt2"
"""
F5, CTRL_G, CTRL_Q, ALT_1, ALT_4 = b"\x1b[15~", b"\x07", b"\x11", b"\x1b1", b"\x1b4"


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    server = FakeHub()
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def content(tmp_path: Path, hub: FakeHub, paths: Paths) -> bytes:
    """Publish a toy as the model that suits every machine."""
    data = write_toy_model(tmp_path / "toy.gguf").read_bytes()
    hub.add(REPO, NAME, data)
    paths.config_dir.mkdir(parents=True)
    sha256 = hashlib.sha256(data).hexdigest()
    paths.catalog_file.write_text(CATALOG.format(repo=REPO, name=NAME, size=len(data), sha256=sha256))
    return data


@pytest.fixture
def app(content: bytes, hub: FakeHub, tmp_path: Path) -> Iterator[Program]:
    environ = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "MODELSCOPE_ENDPOINT": "",
        "HF_HUB_CACHE": str(tmp_path / "cache"),
        "HYMT_TARGET_LANG": "fr",
    }
    program = Program(command=[sys.executable, "-m", "hymt_local"], environ=environ)
    yield program
    program.close()


def test_the_demo_works_while_the_model_comes_that_then_takes_over(
    content: bytes, hub: FakeHub, app: Program, paths: Paths
) -> None:
    hub.stall_after = len(content) // 2
    app.read_until(READY)
    app.read_until(b"Ctrl+G downloads it")
    app.send(CTRL_G)
    app.read_until(b"Accept the Apache License 2.0?")
    app.send(b"y")
    app.read_while(lambda: not hub.stalled.is_set())
    app.send(ALT_1 + b"Where is the station?" + F5)
    app.read_until("Où est la gare".encode())
    app.send(ALT_4)
    app.read_until(b"memory free")
    hub.released.set()
    app.read_until(f"{REF} translates from now on".encode())
    app.send(CTRL_Q)
    assert app.wait() == 0
    assert (paths.models_dir / NAME).read_bytes() == content


def test_who_leaves_during_the_download_finds_a_part_and_no_process(
    content: bytes, hub: FakeHub, app: Program, paths: Paths
) -> None:
    hub.stall_after = len(content) // 2
    app.read_until(b"Ctrl+G downloads it")
    app.send(CTRL_G)
    app.read_until(b"Accept the Apache License 2.0?")
    app.send(b"y")
    app.read_while(lambda: not hub.stalled.is_set())
    app.send(CTRL_Q)
    assert app.wait() == 0
    (part,) = paths.models_dir.glob("*.part")
    assert 0 < part.stat().st_size < len(content)
