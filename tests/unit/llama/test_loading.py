"""Loading with llama.cpp: progress, refusals, environment and log."""

import asyncio
import logging
import os
import sys
from pathlib import Path

import pytest

from hymt_local.engine import llama
from hymt_local.engine.base import GenerationRequest, TokensGenerated
from hymt_local.engine.llama import LogSink, open_llama_backend
from hymt_local.engine.scheduler import ThreadedEngine
from hymt_local.errors import EngineLoadError, EngineMemoryError, EngineUnavailableError, ModelFileError
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
