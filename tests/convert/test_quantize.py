"""Quantization: the bits are llama.cpp's, and a type that was silently replaced is reported."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

from hymt_convert.conversion import ConversionRequest, convert
from hymt_convert.imatrix import compute_imatrix, write_imatrix
from hymt_convert.quantize import (
    FILE_TYPES,
    NEEDS_IMATRIX,
    TENSOR_TYPES,
    main_tensor_type,
    quantization_name,
    quantize_file,
    tensor_type_rule,
)
from hymt_convert.verify import read_file_facts, read_metadata
from hymt_local.engine.gguf_file import FILE_TYPES as KNOWN_FILE_TYPES
from hymt_local.errors import (
    EngineError,
    EngineUnavailableError,
    ModelFileError,
    StoreError,
    UnsupportedModelError,
    UsageError,
)
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


@pytest.fixture(scope="module")
def imatrix(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("imatrix") / "imatrix.gguf"
    texts = [[(3 + 7 * place + 31 * number) % 260 for place in range(40)] for number in range(4)]
    write_imatrix(path, compute_imatrix(base, lambda model: texts, dataset="numbers", threads=1))
    return path


def test_the_types_are_llama_cpps() -> None:
    import llama_cpp

    assert {
        name: getattr(llama_cpp, f"GGML_TYPE_{name}", value) for name, value in TENSOR_TYPES.items()
    } == TENSOR_TYPES
    assert {getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{name}") for name in FILE_TYPES} == set(FILE_TYPES.values())


def test_the_program_knows_every_type_by_the_converters_name() -> None:
    known = {number: name for number, name in KNOWN_FILE_TYPES.items() if number in FILE_TYPES.values()}
    assert known == {number: name for name, number in FILE_TYPES.items()}


@pytest.mark.parametrize("text", ["q4_k_m", "Q4_K", "q4_k"])
def test_names_are_understood_in_any_case(text: str) -> None:
    assert quantization_name(text) == "Q4_K_M"


@pytest.mark.parametrize("text", ["", "Q4", "F16 ", "int8"])
def test_other_names_are_refused_with_those_that_exist(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        quantization_name(text)
    assert "Q4_K_M" in caught.value.hint


@pytest.mark.parametrize("name", ["Q8_0", "Q4_K_M", "IQ4_XS", "IQ3_M"])
def test_most_matrices_have_the_type_asked_for(base: Path, tmp_path: Path, name: str) -> None:
    report = quantize_file(base, tmp_path / "out.gguf", name)
    types = list(read_file_facts(report.path).tensor_types.values())
    assert max(set(types) - {"F32"}, key=types.count) == main_tensor_type(name)
    assert report.fallbacks == {}
    assert read_metadata(report.path)["general.file_type"] == FILE_TYPES[name]


@contextmanager
def quiet_llama_cpp() -> Iterator[Any]:
    """Give the library with its log switched off."""
    import llama_cpp

    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    previous, data = llama_cpp.llama_log_callback(), ctypes.c_void_p()
    llama_cpp.llama_log_get(ctypes.byref(previous), ctypes.byref(data))
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    try:
        yield llama_cpp
    finally:
        llama_cpp.llama_log_set(previous, data)


def quantize_directly(source: Path, target: Path, name: str, set_up: Callable[[Any, Any], object]) -> bytes:
    """Call the library with nothing of ours around it."""
    with quiet_llama_cpp() as lib:
        parameters = lib.llama_model_quantize_default_params()
        parameters.ftype = getattr(lib, f"LLAMA_FTYPE_MOSTLY_{name}")
        kept = set_up(lib, parameters)
        assert lib.llama_model_quantize(bytes(source), bytes(target), ctypes.byref(parameters)) == 0
        del kept
    return target.read_bytes()


def tensor_bytes(path: Path) -> dict[str, tuple[str, bytes]]:
    return {tensor.name: (tensor.tensor_type.name, tensor.data.tobytes()) for tensor in GGUFReader(path).tensors}


def test_the_bits_are_those_of_the_library_called_directly(base: Path, tmp_path: Path) -> None:
    direct = quantize_directly(base, tmp_path / "direct.gguf", "Q4_K_M", lambda lib, parameters: None)
    ours = quantize_file(base, tmp_path / "ours.gguf", "Q4_K_M").path
    assert ours.read_bytes() == direct


@pytest.mark.parametrize("name", ["IQ2_XXS", "Q2_K_S", "Q4_0"])
def test_the_bits_with_an_importance_matrix_are_those_of_the_library(
    base: Path, imatrix: Path, tmp_path: Path, name: str
) -> None:
    reader = GGUFReader(imatrix)
    raw = {tensor.name: np.asarray(tensor.data) for tensor in reader.tensors}
    names = sorted(key.removesuffix(".in_sum2") for key in raw if key.endswith(".in_sum2"))
    means = {key: (raw[f"{key}.in_sum2"] / raw[f"{key}.counts"]).astype(np.float32).ravel() for key in names}

    def set_up(lib: Any, parameters: Any) -> object:
        entries = (lib.llama_model_imatrix_data * (len(names) + 1))()
        for entry, key in zip(entries, names, strict=False):
            entry.name, entry.size = key.encode(), means[key].size
            entry.data = means[key].ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        parameters.imatrix = entries
        return entries

    assert quantization_name(name, with_imatrix=True) == name
    quantize_directly(base, tmp_path / "direct.gguf", name, set_up)
    ours = quantize_file(base, tmp_path / "ours.gguf", name, imatrix=imatrix).path
    assert tensor_bytes(ours) == tensor_bytes(tmp_path / "direct.gguf")
    plain = {"file": "imatrix.gguf", "dataset": "numbers", "entries_count": len(names)}
    metadata = read_metadata(ours)
    assert {key: metadata[f"quantize.imatrix.{key}"] for key in plain} == plain


def test_an_importance_matrix_changes_the_bits(base: Path, imatrix: Path, tmp_path: Path) -> None:
    with_it = quantize_file(base, tmp_path / "with.gguf", "Q4_K_M", imatrix=imatrix).path
    without = quantize_file(base, tmp_path / "without.gguf", "Q4_K_M").path
    assert tensor_bytes(with_it)["blk.0.ffn_up.weight"] != tensor_bytes(without)["blk.0.ffn_up.weight"]
    assert tensor_bytes(with_it)["token_embd.weight"] == tensor_bytes(without)["token_embd.weight"]


if shutil.which("llama-quantize"):

    def test_the_file_is_that_of_llama_quantize(base: Path, imatrix: Path, tmp_path: Path) -> None:
        theirs = tmp_path / "theirs.gguf"
        options = ["--imatrix", imatrix.name, "--tensor-type", "attn_v=q8_0"]
        command = ["llama-quantize", *options, str(base), str(theirs), "IQ2_S"]
        subprocess.run(command, cwd=imatrix.parent, check=True, capture_output=True)
        rules = (tensor_type_rule("attn_v=q8_0"),)
        ours = quantize_file(base, tmp_path / "ours.gguf", "IQ2_S", imatrix=imatrix, rules=rules).path
        assert ours.read_bytes() == theirs.read_bytes()


def test_the_bits_with_rules_are_those_of_the_library(base: Path, tmp_path: Path) -> None:
    def set_up(lib: Any, parameters: Any) -> object:
        rules = (lib.llama_model_tensor_override * 3)()
        rules[0].pattern, rules[0].type = b"ffn_(up|gate)", lib.GGML_TYPE_Q6_K
        rules[1].pattern, rules[1].type = b"token_embd", lib.GGML_TYPE_F16
        parameters.tt_overrides = rules
        return rules

    direct = quantize_directly(base, tmp_path / "direct.gguf", "Q4_K_M", set_up)
    rules = [tensor_type_rule(text) for text in ("ffn_(up|gate)=q6_k", "token_embd=F16")]
    report = quantize_file(base, tmp_path / "ours.gguf", "Q4_K_M", rules=rules)
    assert report.path.read_bytes() == direct
    types = read_file_facts(report.path).tensor_types
    assert (types["blk.0.ffn_up.weight"], types["token_embd.weight"]) == ("Q6_K", "F16")
    assert report.fallbacks == {}


def test_the_first_rule_that_fits_decides(base: Path, tmp_path: Path) -> None:
    rules = [tensor_type_rule(text) for text in ("attn_v=q8_0", "attn=q5_k")]
    types = read_file_facts(quantize_file(base, tmp_path / "out.gguf", "Q4_K_M", rules=rules).path).tensor_types
    assert types["blk.0.attn_v.weight"] == "Q8_0"
    assert types["blk.0.attn_q.weight"] == types["blk.0.attn_output.weight"] == "Q5_K"


def test_a_rule_for_everything_may_leave_no_tensor_of_the_type_asked_for(base: Path, tmp_path: Path) -> None:
    report = quantize_file(base, tmp_path / "out.gguf", "Q4_K_M", rules=[tensor_type_rule("weight=q8_0")])
    assert set(read_file_facts(report.path).tensor_types.values()) == {"Q8_0", "F32"}


def test_a_rule_that_the_rows_do_not_allow_is_reported(narrow: Path, tmp_path: Path) -> None:
    report = quantize_file(narrow, tmp_path / "out.gguf", "Q8_0", rules=[tensor_type_rule("attn_v=q4_k")])
    assert report.fallbacks == {f"blk.{layer}.attn_v.weight": "Q5_0" for layer in range(2)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("attn_v", "not of the form NAME=TYPE"),
        ("=Q8_0", "not of the form NAME=TYPE"),
        ("attn_v=Q9", "unknown tensor type 'Q9'"),
        ("attn_v=Q4_K_M", "unknown tensor type 'Q4_K_M'"),
        ("attn_(v=Q8_0", "no regular expression"),
    ],
)
def test_a_malformed_rule_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tensor_type_rule(text)


def test_a_rule_that_fits_nothing_is_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no matrix of the model is called 'atn_v'"):
        quantize_file(base, tmp_path / "out.gguf", "Q8_0", rules=[tensor_type_rule("atn_v=Q6_K")])
    with pytest.raises(UsageError, match="no matrix of the model is called 'output_norm'"):
        quantize_file(base, tmp_path / "out.gguf", "Q8_0", rules=[tensor_type_rule("output_norm=F16")])
    assert list(tmp_path.iterdir()) == []


def test_the_importance_matrix_of_another_model_is_refused(narrow: Path, imatrix: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"256 columns for blk\.0\..*, the model (64|96|128)"):
        quantize_file(narrow, tmp_path / "out.gguf", "Q8_0", imatrix=imatrix)
    assert list(tmp_path.iterdir()) == []


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


def test_a_disk_that_fills_up_is_an_error_of_the_disk(base: Path, tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # inherited: llama.cpp cannot write more
    try:
        with pytest.raises(StoreError, match="cannot write Q8_0: the disk is full or failing") as caught:
            quantize_file(base, tmp_path / "out.gguf", "Q8_0")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.exit_status == 6
    assert "another folder" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_is_not_gguf_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "in.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(UnsupportedModelError, match=r"in\.gguf is a big-endian GGUF"):
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
