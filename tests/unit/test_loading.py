"""Loading with a second chance: fewer layers after a failure, never after the user's own stop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from hymt_local.engine import llama
from hymt_local.engine.base import Backend
from hymt_local.engine.echo import EchoBackend
from hymt_local.engine.options import LlamaOptions
from hymt_local.errors import EngineLoadError, EngineMemoryError, ModelFileError
from hymt_local.loading import LlamaOrders, StepDown, open_ordered, open_stepping_down

FILE = Path("model.gguf")


class FakeGpu:
    """Loads only what has few enough layers."""

    def __init__(self, *, room: int) -> None:
        self.room = room
        self.tried: list[int] = []

    def opener(self, path: Path, options: LlamaOptions) -> Callable[[Callable[[float], bool]], Backend]:
        def open_it(on_progress: Callable[[float], bool]) -> Backend:
            self.tried.append(options.gpu_layers)
            if not on_progress(0.5):
                raise EngineLoadError("loading was given up")
            if options.gpu_layers > self.room:
                raise EngineLoadError("out of memory")
            return EchoBackend()

        return open_it


def load(monkeypatch: pytest.MonkeyPatch, *, layers: int, room: int, goes_on: bool = True) -> FakeGpu:
    gpu = FakeGpu(room=room)
    monkeypatch.setattr(llama, "open_llama_backend", gpu.opener)
    options = LlamaOptions(gpu_layers=layers)
    open_stepping_down(FILE, options, on_progress=lambda fraction: goes_on).close()
    return gpu


@pytest.mark.parametrize(("room", "tried"), [(99, [33]), (30, [33, 28]), (25, [33, 28, 23]), (0, [33, 28, 23, 0])])
def test_fewer_layers_are_tried_until_it_loads(monkeypatch: pytest.MonkeyPatch, room: int, tried: list[int]) -> None:
    assert load(monkeypatch, layers=33, room=room).tried == tried


def test_each_step_is_in_the_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load(monkeypatch, layers=33, room=30)
    assert caplog.messages == ["out of memory with 33 layers on the GPU, trying 28"]


def test_what_does_not_load_on_the_cpu_either_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineLoadError, match="out of memory"):
        load(monkeypatch, layers=2, room=-1)


def test_the_cpu_alone_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(room=-1)
    monkeypatch.setattr(llama, "open_llama_backend", gpu.opener)
    with pytest.raises(EngineLoadError):
        open_stepping_down(FILE, LlamaOptions(), on_progress=lambda fraction: True)
    assert gpu.tried == [0]


def test_a_load_that_the_user_gave_up_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineLoadError, match="given up"):
        load(monkeypatch, layers=33, room=0, goes_on=False)


def test_a_bad_file_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def opener(path: Path, options: LlamaOptions) -> Callable[[Callable[[float], bool]], Backend]:
        raise ModelFileError("truncated")

    monkeypatch.setattr(llama, "open_llama_backend", opener)
    with pytest.raises(ModelFileError):
        open_stepping_down(FILE, LlamaOptions(gpu_layers=9), on_progress=lambda fraction: True)


def test_without_memory_the_layers_go_first_then_half_of_the_context_each_time() -> None:
    steps = StepDown(LlamaOptions(gpu_layers=1, context_length=3000, slots=16))
    tried = []
    while steps.step_down(EngineMemoryError("no room")):
        tried.append((steps.options.gpu_layers, steps.options.context_length, steps.options.slots))
    assert tried == [(0, 3000, 16), (0, 1500, 1), (0, 1024, 1)]


def test_a_shorter_context_does_not_mend_a_file_that_llama_cpp_refuses() -> None:
    assert not StepDown(LlamaOptions()).step_down(EngineLoadError("unknown pre-tokenizer"))


@pytest.mark.parametrize("name", ["model.gguf", "mod\udcffel.gguf"])
def test_an_order_names_the_file_and_all_options(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    opened: list[tuple[Path, LlamaOptions]] = []
    monkeypatch.setattr(llama, "open_llama_backend", lambda path, options: opened.append((path, options)))
    options = LlamaOptions(context_length=77, kv_type="q8_0", prefix_dir=Path("prefix"), name="m")
    order = LlamaOrders(Path(name), options).order
    assert order.factory == "hymt_local.loading:open_ordered"
    open_ordered(order.arguments)
    assert opened == [(Path(name), options)]
