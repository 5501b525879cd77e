"""A model that nobody uses any more goes: after a while, or when another one needs its memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hymt_local.application import open_application
from hymt_local.engine import machine as machine_module
from hymt_local.engine.base import ModelInfo
from hymt_local.engine.fit import GIB, MachineFacts
from hymt_local.engine.scripted import Hang, ScriptedBackend, reply
from hymt_local.installed import InstalledModel
from hymt_local.jobs import LocalService
from hymt_local.translator import OpenModel
from tests.services import request, scripted_model
from tests.toy_models import write_toy_model

WAIT_S = 30.0
INFO = ModelInfo("other", "hunyuan-dense", 256, 4096, "Q4_K_M", "0" * 64)


class Two:
    """Two models, and a service that has room for one or for both."""

    def __init__(self, *, has_room: bool, cache_path: Path | None = None, idle_unload_s: float | None = None) -> None:
        self.backends = {name: ScriptedBackend(reply("Bonjour")) for name in ("a", "b")}
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.freed: list[str] = []

        def check(ref: str, loaded: Sequence[ModelInfo]) -> bool:
            self.asked.append((ref, tuple(info.name for info in loaded)))
            return has_room

        self.service = LocalService(self._open, cache_path=cache_path, has_room=check, idle_unload_s=idle_unload_s)
        self.service.when_freed = self.freed.extend

    def _open(self, ref: str | None) -> OpenModel:
        assert ref is not None
        return scripted_model(self.backends[ref], id=ref, fingerprint=ref * 64)

    def translate(self, model: str, text: str = "Hello") -> None:
        assert self.service.submit(request(text, model=model)).result(WAIT_S).text == "Bonjour"

    def n_closed(self, model: str) -> int:
        return self.backends[model].calls.n_closed


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_an_unused_model_makes_room_for_another_and_comes_back() -> None:
    two = Two(has_room=False)
    with two.service:
        two.translate("a")
        two.translate("b")
        assert (two.n_closed("a"), two.freed) == (1, ["a:none"])
        two.translate("a", "Hello again")
        assert (two.n_closed("b"), two.backends["a"].calls.n_loaded) == (1, 2)


def test_where_there_is_room_for_both_both_stay() -> None:
    two = Two(has_room=True)
    with two.service:
        two.translate("a")
        two.translate("b")
        two.translate("a")
        assert two.asked == [("b:none", ("scripted",))]
        assert two.freed == []


def test_a_model_in_use_stays() -> None:
    two = Two(has_room=False)
    hang = Hang()
    two.backends["a"] = ScriptedBackend(hang)
    with two.service:
        two.service.submit(request("Hello", model="a"))
        assert hang.started.wait(WAIT_S)
        two.translate("b")
        assert two.n_closed("a") == 0


def test_a_phrase_out_of_the_cache_needs_no_room(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite3"
    first = Two(has_room=False, cache_path=path)
    with first.service:
        first.translate("b")
    two = Two(has_room=False, cache_path=path)
    with two.service:
        two.translate("a")
        two.translate("b")
        assert two.n_closed("a") == 0


def test_a_model_is_freed_when_nobody_has_used_it_for_a_while() -> None:
    two = Two(has_room=True, idle_unload_s=0.01)
    with two.service:
        two.translate("a")
        wait_until(lambda: two.n_closed("a") == 1)
        two.translate("a", "Hello again")
        assert two.backends["a"].calls.n_loaded == 2


def test_a_negative_time_is_for_ever() -> None:
    two = Two(has_room=True, idle_unload_s=-1)
    with two.service:
        two.translate("a")
        two.translate("b")
        assert two.freed == []


@pytest.mark.parametrize(
    ("available", "other", "has_room"),
    [
        (20 * GIB, INFO, True),
        (20 * GIB, replace(INFO, size_bytes=19 * GIB), False),
        (20 * GIB, replace(INFO, n_gpu_layers=1), False),
        (GIB // 4, INFO, False),
    ],
)
def test_room_is_what_the_others_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, available: int, other: ModelInfo, has_room: bool
) -> None:
    app = open_application({"HYMT_HOME": str(tmp_path)})
    path = write_toy_model(tmp_path / "model.gguf")
    spec = next(spec for spec in app.catalog.models if spec.kind == "translation")
    monkeypatch.setattr(app.store, "resolve", lambda ref: InstalledModel(spec, "F32", path, "f" * 64))
    monkeypatch.setattr("hymt_local.engine.options.TINY_MODEL_BYTES", 0)
    monkeypatch.setattr(machine_module, "probe_machine", lambda *_, **__: MachineFacts(32 * GIB, available, 4))
    assert app.has_room("it", [other]) is has_room


def test_beside_a_tiny_model_there_is_always_room(tmp_path: Path) -> None:
    assert open_application({"HYMT_HOME": str(tmp_path)}).has_room("demo", [replace(INFO, n_gpu_layers=9)])
