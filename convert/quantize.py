"""Quantization by llama.cpp's own quantizer, so that every bit is what `llama-quantize` would write.

The quantizer runs in a child process: an assertion in it, or an interrupt in the middle of a large model, then ends
that process and nothing else. Run as `python -m hymt_convert.quantize`, this module is that child.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hymt_convert.gguf_writer import replacing
from hymt_convert.verify import read_file_facts
from hymt_local.errors import EngineError, EngineUnavailableError, UnsupportedModelError, UsageError

FILE_TYPES: Mapping[str, int] = {
    "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_S": 11, "Q3_K_M": 12, "Q3_K_L": 13,
    "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17, "Q6_K": 18, "IQ2_XXS": 19, "IQ2_XS": 20, "Q2_K_S": 21,
    "IQ3_XS": 22, "IQ3_XXS": 23, "IQ1_S": 24, "IQ4_NL": 25, "IQ3_S": 26, "IQ3_M": 27, "IQ2_S": 28, "IQ2_M": 29,
    "IQ4_XS": 30, "IQ1_M": 31, "TQ1_0": 36, "TQ2_0": 37, "MXFP4_MOE": 38, "Q1_0": 40,
}  # fmt: skip
"""Name -> `llama_ftype` of llama-cpp-python 0.3.36, without those its quantizer (NVFP4) or gguf 0.19 (Q2_0) refuses."""
NEEDS_IMATRIX = frozenset({
    "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "Q2_K_S",
})  # fmt: skip
"""llama.cpp refuses these without an importance matrix."""
_MAIN_TENSOR_TYPES = {"IQ2_S": "IQ2_XS", "IQ2_M": "IQ2_S", "IQ3_XS": "IQ3_S", "IQ3_M": "IQ3_S", "MXFP4_MOE": "MXFP4"}
_PROGRESS = re.compile(rb"\[ *(\d+)/ *(\d+)\]")
_FAILURE = re.compile(r"failed to quantize: (.+)")
_EXIT_UNAVAILABLE = 97
_LOG_LINES = 40
_BUFFER_BYTES = 512 << 20
"""Rows the quantizer holds at once; its default of 8 GiB is the whole memory of a small laptop."""

OnStep = Callable[[int, int], None]
"""Told how many tensors are done, of how many."""


@dataclass(frozen=True, slots=True)
class QuantizationReport:
    """What the quantizer really wrote."""

    path: Path
    quantization: str
    fallbacks: Mapping[str, str]
    """Matrices that could not be stored in a type of the kind asked for -> the type they got instead."""


def quantization_name(text: str) -> str:
    """Return the canonical spelling of a type's name (`q4_k` means `Q4_K_M`).

    Raises:
        UsageError: there is no such type, or it needs an importance matrix.
    """
    name = text.upper()
    name = f"{name}_M" if name in ("Q3_K", "Q4_K", "Q5_K") else name
    if name not in FILE_TYPES:
        raise UsageError(
            f"unknown quantization {text!r}",
            hint=f"One of F32, F16, BF16, {', '.join(n for n in FILE_TYPES if n not in NEEDS_IMATRIX)}.",
        )
    if name in NEEDS_IMATRIX:
        raise UsageError(
            f"{name} needs an importance matrix, which is not supported yet",
            hint="Q2_K, Q3_K_M, IQ3_S and IQ3_M do not.",
        )
    return name


def quantize_file(
    source: Path, target: Path, quantization: str, *, threads: int | None = None, on_step: OnStep | None = None
) -> QuantizationReport:
    """Quantize an unquantized GGUF file; `target` appears only when it is complete.

    llama.cpp replaces a type whose blocks do not divide a row by a coarser-grained one and still reports success: such
    tensors are listed in the report.

    Args:
        source: A file of f32, f16 or bf16 matrices.
        target: The file to write; an existing one is replaced.
        quantization: A name as `quantization_name` returns it.
        threads: None for one per core.
        on_step: Progress, called on this thread.

    Raises:
        EngineUnavailableError: llama-cpp-python does not load.
        EngineError: the quantizer failed or crashed; its last words are in the message.
        UnsupportedModelError: no matrix has the type asked for.
        StoreError: the target cannot be written.
    """
    with replacing(target) as temporary:
        command = [str(source), str(temporary), str(FILE_TYPES[quantization]), str(threads or 0)]
        # -P: a module lying in the current folder, which may be the checkpoint's, is not imported.
        _run_child([sys.executable, "-P", "-m", __name__, *command], quantization, on_step)
        fallbacks = _check_types(temporary, quantization)
    return QuantizationReport(target, quantization, fallbacks)


def _run_child(command: list[str], quantization: str, on_step: OnStep | None) -> None:
    log: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                log = [*log[1 - _LOG_LINES :], line.decode("utf-8", "replace").strip()]
                step = _PROGRESS.search(line)
                if step is not None and on_step is not None:
                    on_step(int(step[1]), int(step[2]))
        except BaseException:
            child.kill()
            raise
    if child.returncode == _EXIT_UNAVAILABLE:
        raise EngineUnavailableError(f"llama-cpp-python cannot be loaded: {log[-1]}", hint="Install hymt-local again.")
    if child.returncode != 0:
        raise EngineError(
            f"llama.cpp could not quantize to {quantization}: {_last_words(log, child.returncode)}",
            hint="Q8_0 works for every model.",
        )


def _last_words(log: list[str], status: int) -> str:
    text = "\n".join(log)
    failure = _FAILURE.search(text)
    spoken = [line for line in log if line]
    return failure[1] if failure else f"{spoken[-1] if spoken else 'no message'} (status {status})"


def _check_types(path: Path, quantization: str) -> dict[str, str]:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    wanted = main_tensor_type(quantization)
    wanted_block = GGML_QUANT_SIZES[GGMLQuantizationType[wanted]][0]
    matrices = {name: kind for name, kind in read_file_facts(path).tensor_types.items() if kind != "F32"}
    if wanted not in matrices.values():
        found = ", ".join(sorted(set(matrices.values()))) or "nothing"
        raise UnsupportedModelError(
            f"{quantization} is not possible for this model: llama.cpp fell back to {found}",
            hint=f"Its rows are not multiples of {wanted_block} values: use Q8_0 or F16.",
        )
    blocks = {name: GGML_QUANT_SIZES[GGMLQuantizationType[kind]][0] for name, kind in matrices.items()}
    return {name: kind for name, kind in matrices.items() if blocks[name] < wanted_block}


def main_tensor_type(quantization: str) -> str:
    """Return the ggml type that most matrices of such a file have."""
    if quantization in _MAIN_TENSOR_TYPES:
        return _MAIN_TENSOR_TYPES[quantization]
    return re.sub(r"(_K)_[SML]$", r"\1", quantization)


def _child(source: str, target: str, file_type: str, threads: str) -> int:
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    try:
        import llama_cpp
    except (ImportError, OSError, RuntimeError) as error:
        sys.stdout.write(f"{error}\n")
        return _EXIT_UNAVAILABLE

    @llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
    def log(level: int, text: bytes, user_data: ctypes.c_void_p) -> None:
        try:
            os.write(1, text)
        except OSError:  # the parent is gone: nobody wants the result
            os._exit(1)

    llama_cpp.llama_log_set(log, ctypes.c_void_p(0))
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = int(file_type)
    parameters.nthread = int(threads)
    parameters.max_buf_size = _BUFFER_BYTES
    return int(llama_cpp.llama_model_quantize(os.fsencode(source), os.fsencode(target), ctypes.byref(parameters)))


if __name__ == "__main__":
    sys.exit(_child(*sys.argv[1:]))
