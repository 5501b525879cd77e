"""The engine's process is killed while a client reads a stream: the client reads on."""

from __future__ import annotations

import psutil
import pytest

from hymt_local.engine.host import FixedOrder, open_hosted
from hymt_local.engine.pipe import Order
from hymt_local.engine.process import Patience
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.jobs import LocalService
from hymt_local.translator import OpenModel
from tests.server.serving import serving
from tests.server.streams import streaming
from tests.services import a_spec

TEXT = "\n".join(f"This is line number {number} of a text that takes its time" for number in range(40))


@pytest.mark.slow
def test_a_killed_engine_costs_a_stream_nothing_but_time() -> None:
    order = Order("tests.engine_children:open_fragile", b"{}")
    opener = open_hosted(lambda ask_gpus: FixedOrder(order), name="fragile", patience=Patience(restart_s=0.01))
    model = OpenModel(
        a_spec(id="fragile", kind="test"),
        ThreadedEngine(opener, name="fragile"),
        fingerprint="f" * 64,
        quantization="none",
    )
    with serving(LocalService(lambda ref: model, cache_path=None)) as served:
        before = {child.pid for child in psutil.Process().children()}
        body = {"text": TEXT, "source_lang": "en", "target_lang": "fr"}
        with streaming(served, "/v1/translate", body) as stream:
            stream.until("token")
            (engine,) = [child for child in psutil.Process().children() if child.pid not in before]
            engine.kill()
            last = list(stream)[-1]
        assert (last.name, last.data["text"], last.data["failed"]) == ("done", TEXT, [])
        assert served.ask("POST", "/v1/unload", {}).json == {"unloaded": ["fragile"]}
        assert {child.pid for child in psutil.Process().children()} == before
