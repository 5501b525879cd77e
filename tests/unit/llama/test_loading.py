"""Loading with llama.cpp: progress, refusals, environment and log."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hymt_local.engine import llama
from hymt_local.engine.base import GenerationRequest, TokensGenerated
from hymt_local.engine.llama import LogSink, open_llama_backend
from hymt_local.engine.options import KvType, LlamaOptions
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.errors import ConfigError, EngineLoadError, EngineMemoryError, EngineUnavailableError, ModelFileError
from tests.llama_backends import PROMPT, open_toy, play
from tests.toy_models import ToyGeometry, ToyModel, write_toy_model

pytestmark = pytest.mark.llama


def test_loading_reports_progress_and_can_be_given_up(tmp_path: Path) -> None:
    path = write_toy_model(tmp_path / "toy.gguf", ToyModel(ToyGeometry(layers=8)))
    fractions: list[float] = []

    def note(fraction: float) -> bool:
        fractions.append(fraction)
        return True

    open_llama_backend(path)(note).close()
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    with pytest.raises(EngineLoadError, match="given up"):
        open_llama_backend(path)(lambda fraction: False)


def test_a_file_that_is_not_in_memory_is_read_ahead_as_the_first_part_of_loading(
    toy_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_ahead(path: Path, on_progress: Callable[[float], bool]) -> bool:
        assert path == toy_path
        return on_progress(0.5) and on_progress(1.0)

    monkeypatch.setattr(llama, "read_ahead", read_ahead)
    fractions: list[float] = []

    def note(fraction: float) -> bool:
        fractions.append(fraction)
        return True

    open_llama_backend(toy_path)(note).close()
    assert fractions[:2] == [0.45, 0.9]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    with pytest.raises(EngineLoadError, match="given up"):
        open_llama_backend(toy_path)(lambda fraction: False)


def seen_params(monkeypatch: pytest.MonkeyPatch, path: Path, options: LlamaOptions) -> tuple[Any, Any]:
    """Open a backend; return what llama.cpp was told of the model and of the context."""
    api = llama.load_library().api
    load, create = api.llama_model_load_from_file, api.llama_init_from_model
    seen: list[Any] = []

    def noting(function: Callable[[object, object], object]) -> Callable[[object, object], object]:
        def note(first: object, params: object) -> object:
            seen.append(params)
            return function(first, params)

        return note

    with monkeypatch.context() as patch:
        patch.setattr(api, "llama_model_load_from_file", noting(load))
        patch.setattr(api, "llama_init_from_model", noting(create))
        open_toy(path, options).close()
    return seen[0], seen[1]


@pytest.mark.parametrize(
    ("use_mmap", "use_mlock", "mode"), [(True, False, 1), (True, True, 3), (False, True, 2), (False, False, 0)]
)
def test_how_the_weights_are_kept_reaches_llama_cpp(
    monkeypatch: pytest.MonkeyPatch, toy_path: Path, use_mmap: bool, use_mlock: bool, mode: int
) -> None:
    model, _ = seen_params(monkeypatch, toy_path, LlamaOptions(use_mmap=use_mmap, use_mlock=use_mlock))
    assert model.load_mode == mode


@pytest.mark.parametrize(
    ("repack", "machine", "is_repacked", "mode"),
    [(None, "x86_64", False, 1), (None, "aarch64", True, 1), (True, "x86_64", True, 0), (False, "aarch64", False, 1)],
)
def test_weights_are_rearranged_where_that_pays_or_as_told(
    monkeypatch: pytest.MonkeyPatch, toy_path: Path, repack: bool | None, machine: str, is_repacked: bool, mode: int
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    model, _ = seen_params(monkeypatch, toy_path, LlamaOptions(repack=repack))
    assert (model.use_extra_bufts, model.load_mode) == (is_repacked, mode)


def test_weights_that_the_system_does_not_let_lock_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, toy_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    library = llama.load_library()
    load = library.api.llama_model_load_from_file

    def refused(name: bytes, params: object) -> object:
        library.log(3, b"warning: failed to mlock 1048576-byte buffer\n", None)
        return load(name, params)

    monkeypatch.setattr(library.api, "llama_model_load_from_file", refused)
    open_toy(toy_path, LlamaOptions(use_mlock=True)).close()
    assert "not locked in memory" in caplog.text


@pytest.mark.parametrize("layers", [0, 1, 99, -1])
def test_layers_for_a_gpu_that_is_not_there_are_computed_here(
    monkeypatch: pytest.MonkeyPatch, toy_path: Path, layers: int
) -> None:
    options = LlamaOptions(gpu_layers=layers, tensor_split=(3, 1), kv_offload=False)
    model, context = seen_params(monkeypatch, toy_path, options)
    assert (model.n_gpu_layers, [model.tensor_split[0], model.tensor_split[1]]) == (layers, [3, 1])
    assert (context.op_offload, context.offload_kqv) == (layers != 0, False)
    backend = open_toy(toy_path, options)
    assert backend.info.n_gpu_layers == 0
    assert len(play(backend, GenerationRequest(PROMPT, 3))) > 0
    backend.close()


def test_the_cache_is_kept_beside_the_layers_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, toy_path: Path
) -> None:
    assert seen_params(monkeypatch, toy_path, LlamaOptions(gpu_layers=1))[1].offload_kqv
    assert not seen_params(monkeypatch, toy_path, LlamaOptions(gpu_layers=0))[1].offload_kqv


@pytest.mark.parametrize(("is_on", "kind"), [(True, 1), (False, 0)])
def test_flash_attention_is_on_or_off_and_never_left_to_chance(
    monkeypatch: pytest.MonkeyPatch, toy_path: Path, is_on: bool, kind: int
) -> None:
    assert seen_params(monkeypatch, toy_path, LlamaOptions(flash_attention=is_on))[1].flash_attn_type == kind


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0"])
def test_a_quantized_cache_without_flash_attention_is_refused_with_a_way_out(toy_path: Path, kv_type: KvType) -> None:
    with pytest.raises(ConfigError, match="needs flash attention") as caught:
        open_toy(toy_path, LlamaOptions(kv_type=kv_type, flash_attention=False))
    assert "flash_attention" in caught.value.hint


def test_what_llama_cpp_refuses_is_an_error_with_its_reason(tmp_path: Path) -> None:
    path = write_toy_model(tmp_path / "toy.gguf", ToyModel(pre_tokenizer="unheard-of"))
    with pytest.raises(EngineLoadError, match="unknown pre-tokenizer type: 'unheard-of'"):
        open_toy(path)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", EngineMemoryError),
        ("load: error: unable to allocate CUDA0 buffer", EngineMemoryError),
        ("load: error: unknown model architecture", EngineLoadError),
    ],
)
def test_a_load_that_failed_for_want_of_memory_says_so(
    toy_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, kind: type[EngineLoadError]
) -> None:
    library = llama.load_library()

    def fail(path: bytes, params: object) -> None:
        library.log(4, line.encode() + b"\n", None)

    monkeypatch.setattr(library.api, "llama_model_load_from_file", fail)
    with pytest.raises(EngineLoadError) as caught:
        open_toy(toy_path)
    assert type(caught.value) is kind
    assert caught.value.hint


def test_a_bad_file_never_reaches_llama_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama, "load_library", lambda: pytest.fail("llama.cpp was asked"))
    (tmp_path / "page.gguf").write_text("<!DOCTYPE html><title>Sign in</title>")
    with pytest.raises(ModelFileError, match="HTML page"):
        open_toy(tmp_path / "page.gguf")


def test_without_llama_cpp_python_the_engine_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(EngineUnavailableError, match="llama-cpp-python cannot be loaded") as caught:
        llama._import_library.__wrapped__()
    assert "hymt doctor" in caught.value.hint


@pytest.mark.parametrize(
    ("given", "expected"), [({}, llama.SPIN_COUNT), ({"OMP_NUM_THREADS": "2"}, None), ({"GOMP_SPINCOUNT": "5"}, "5")]
)
def test_the_barriers_spin_shortly_unless_the_user_has_chosen(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], expected: str | None
) -> None:
    for name in list(os.environ):
        if name.startswith(("OMP_", "GOMP_", "KMP_", "GGML_")):
            monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("GGML_NO_BACKTRACE", "0")
    llama.prepare_environment()
    assert os.environ.get("GOMP_SPINCOUNT") == expected
    assert os.environ["GGML_NO_BACKTRACE"] == "0"
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)


def test_llama_cpps_log_goes_to_logging_line_by_line_and_its_end_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    sink = LogSink()
    with caplog.at_level(logging.DEBUG, logger="hymt_local.engine.llama"):
        sink(1, b"load: half a ", None)
        sink(5, "line é\nnext\n".encode(), None)
        for index in range(100):
            sink(1, f"line {index}\n".encode(), None)
    assert caplog.messages[:2] == ["load: half a line é", "next"]
    assert (len(sink.tail), sink.tail[-1]) == (llama.LOG_TAIL_LINES, "line 99")


def test_nothing_of_llama_cpp_reaches_the_terminal(toy_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    backend = open_toy(toy_path)
    play(backend, GenerationRequest(PROMPT, 5))
    backend.close()
    assert capfd.readouterr() == ("", "")


async def test_two_engines_share_the_library_and_answer_alike(toy_path: Path) -> None:
    engines = [ThreadedEngine(open_llama_backend(toy_path), name) for name in ("one", "two")]

    async def collect(engine: ThreadedEngine) -> list[int]:
        events = [event async for event in engine.generate(GenerationRequest(PROMPT, 10))]
        return [token for event in events if isinstance(event, TokensGenerated) for token in event.ids]

    first, second = await asyncio.gather(*map(collect, engines))
    assert first == second
    await asyncio.gather(*(engine.close() for engine in engines))
