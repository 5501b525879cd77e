"""Quantization: the bits are llama.cpp's, and a type that was silently replaced is reported."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hymt_convert.conversion import ConversionRequest, convert
from hymt_convert.quantize import (
    FILE_TYPES,
    NEEDS_IMATRIX,
    main_tensor_type,
    quantization_name,
    quantize_file,
)
from hymt_convert.verify import read_file_facts, read_metadata
from hymt_local.errors import EngineError, EngineUnavailableError, StoreError, UnsupportedModelError, UsageError
from tests.convert import toy_checkpoint as toy

pytestmark = pytest.mark.llama

DIVISIBLE = toy.Shape(
    hidden_size=256,
    intermediate_size=256,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    num_hidden_layers=1,
)
"""Every row has a multiple of 256 values, as K-quants need."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("divisible")
    toy.write_checkpoint(folder / "toy", DIVISIBLE)
    return convert(ConversionRequest(folder / "toy", folder, ("F32",))).files[0].path


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of 64, 96 and 128 values."""
    folder = tmp_path_factory.mktemp("narrow")
    toy.write_checkpoint(folder / "toy")
    return convert(ConversionRequest(folder / "toy", folder, ("F32",))).files[0].path


def test_the_types_are_llama_cpps() -> None:
    import llama_cpp

    assert {getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{name}") for name in FILE_TYPES} == set(FILE_TYPES.values())


@pytest.mark.parametrize("text", ["q4_k_m", "Q4_K", "q4_k"])
def test_names_are_understood_in_any_case(text: str) -> None:
    assert quantization_name(text) == "Q4_K_M"


@pytest.mark.parametrize("text", ["", "Q4", "F16 ", "int8"])
def test_other_names_are_refused_with_those_that_exist(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        quantization_name(text)
    assert "Q4_K_M" in caught.value.hint


@pytest.mark.parametrize("name", ["Q8_0", "Q6_K", "Q4_K_M", "IQ4_XS", "Q4_0", "IQ3_M"])
def test_most_matrices_have_the_type_asked_for(base: Path, tmp_path: Path, name: str) -> None:
    report = quantize_file(base, tmp_path / "out.gguf", name)
    types = list(read_file_facts(report.path).tensor_types.values())
    assert max(set(types) - {"F32"}, key=types.count) == main_tensor_type(name)
    assert report.fallbacks == {}
    assert read_metadata(report.path)["general.file_type"] == FILE_TYPES[name]


def test_the_bits_are_those_of_the_library_called_directly(base: Path, tmp_path: Path) -> None:
    import llama_cpp

    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    previous, data = llama_cpp.llama_log_callback(), ctypes.c_void_p()
    llama_cpp.llama_log_get(ctypes.byref(previous), ctypes.byref(data))
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    try:
        parameters = llama_cpp.llama_model_quantize_default_params()
        parameters.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M
        direct = tmp_path / "direct.gguf"
        assert llama_cpp.llama_model_quantize(bytes(base), bytes(direct), ctypes.byref(parameters)) == 0
    finally:
        llama_cpp.llama_log_set(previous, data)
    ours = quantize_file(base, tmp_path / "ours.gguf", "Q4_K_M").path
    assert ours.read_bytes() == direct.read_bytes()


def test_a_type_that_no_row_can_have_is_an_error_and_leaves_nothing(narrow: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"Q4_K_M is not possible for this model: llama.cpp fell back to Q5_0"
    ):
        quantize_file(narrow, tmp_path / "out.gguf", "Q4_K_M")
    assert list(tmp_path.iterdir()) == []


def test_tensors_that_got_another_type_are_reported(tmp_path: Path) -> None:
    shape = toy.Shape(hidden_size=256, intermediate_size=96, num_attention_heads=4, head_dim=64, num_hidden_layers=1)
    toy.write_checkpoint(tmp_path / "toy", shape)
    file = convert(ConversionRequest(tmp_path / "toy", tmp_path, ("Q4_K_M",))).files[0]
    assert set(file.fallbacks) == {"blk.0.ffn_down.weight"}  # the only one with rows of 96
    assert read_file_facts(file.path).tensor_types["blk.0.ffn_down.weight"] == file.fallbacks["blk.0.ffn_down.weight"]


@pytest.mark.parametrize("name", sorted(NEEDS_IMATRIX)[:2])
def test_llama_cpps_own_reason_is_in_the_error(base: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(EngineError, match=f"could not quantize to {name}: this quantization requires an imatrix"):
        quantize_file(base, tmp_path / "out.gguf", name)
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_is_not_gguf_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "in.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(EngineError, match="could not quantize to Q8_0"):
        quantize_file(tmp_path / "in.gguf", tmp_path / "out.gguf", "Q8_0")
    assert [path.name for path in tmp_path.iterdir()] == ["in.gguf"]


def test_a_missing_target_folder_is_an_error(base: Path, tmp_path: Path) -> None:
    with pytest.raises((StoreError, EngineError)):
        quantize_file(base, tmp_path / "missing" / "out.gguf", "Q8_0")


def test_an_interrupt_ends_the_child_and_leaves_nothing(base: Path, tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize_file(base, tmp_path / "out.gguf", "Q8_0", on_step=interrupt)
    assert list(tmp_path.iterdir()) == []


def _python_that(code: str, tmp_path: Path) -> str:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{code}\n")
    path.chmod(0o755)
    return str(path)


def test_a_crash_of_the_quantizer_is_an_error(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(sys, "executable", _python_that("echo 'GGML_ASSERT(false) failed'; kill -ABRT $$", tmp_path))
    with pytest.raises(EngineError, match=rf"GGML_ASSERT\(false\) failed \(status -{signal.SIGABRT:d}\)"):
        quantize_file(base, tmp_path / "out" / "out.gguf", "Q8_0")
    assert list((tmp_path / "out").iterdir()) == []


def test_modules_in_the_current_folder_are_not_imported(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("llama_cpp", "numpy", "gguf"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the current folder')")
    monkeypatch.chdir(tmp_path)
    assert quantize_file(base, tmp_path / "out.gguf", "Q8_0").path.exists()


def test_a_library_that_does_not_load_is_an_error(base: Path, tmp_path: Path) -> None:
    (tmp_path / "llama_cpp.py").write_text("raise OSError('libllama.so: cannot open shared object file')")
    code = (
        "import sys; from pathlib import Path; from hymt_convert.quantize import quantize_file\n"
        "from hymt_local.errors import EngineUnavailableError\n"
        "try: quantize_file(Path(sys.argv[1]), Path(sys.argv[2]), 'Q8_0')\n"
        "except EngineUnavailableError as error: print(error)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(base), str(tmp_path / "out.gguf")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "llama-cpp-python cannot be loaded: libllama.so: cannot open shared object file\n"
    assert EngineUnavailableError.exit_status == 4
