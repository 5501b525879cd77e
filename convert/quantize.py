"""Quantization by llama.cpp's own quantizer, so that every bit is what `llama-quantize` would write.

The quantizer runs in a child process: an assertion in it, or an interrupt in the middle of a large model, then ends
that process and nothing else. Run as `python -m hymt_convert.quantize`, this module is that child.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hymt_convert.gguf_writer import replacing
from hymt_convert.verify import read_file_facts
from hymt_local.errors import EngineError, EngineUnavailableError, StoreError, UnsupportedModelError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hymt_convert.imatrix import ImportanceMatrix

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
TENSOR_TYPES: Mapping[str, int] = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12,
    "Q5_K": 13, "Q6_K": 14, "IQ2_XXS": 16, "IQ2_XS": 17, "IQ3_XXS": 18, "IQ1_S": 19, "IQ4_NL": 20, "IQ3_S": 21,
    "IQ2_S": 22, "IQ4_XS": 23, "IQ1_M": 29, "BF16": 30, "TQ1_0": 34, "TQ2_0": 35, "MXFP4": 39, "Q1_0": 41,
}  # fmt: skip
"""Name -> `ggml_type` of what a single tensor can be stored in."""
_MAIN_TENSOR_TYPES = {"IQ2_S": "IQ2_XS", "IQ2_M": "IQ2_S", "IQ3_XS": "IQ3_S", "IQ3_M": "IQ3_S", "MXFP4_MOE": "MXFP4"}
_PROGRESS = re.compile(rb"\[ *(\d+)/ *(\d+)\]")
_FAILURE = re.compile(r"failed to quantize: (.+)")
_UNWRITTEN = "iostream error"
"""What C++ says when it could not write."""
_EXIT_UNAVAILABLE = 97
_LOG_LINES = 40
_LONGEST_VALUE_BYTES = 127
"""Of a text in `llama_model_kv_override`."""
_BUFFER_BYTES = 512 << 20
"""Rows the quantizer holds at once; its default of 8 GiB is the whole memory of a small laptop."""

OnStep = Callable[[int, int], None]
"""Told how many tensors are done, of how many."""


@dataclass(frozen=True, slots=True)
class TensorTypeRule:
    """Stores the tensors that a pattern finds in a type of their own; of several rules the first that fits decides."""

    pattern: str
    """A regular expression, searched for in the tensor's name: `attn_v` or `blk\\.0\\.ffn_down`."""
    type_name: str
    """A key of `TENSOR_TYPES`."""

    def fits(self, tensor_name: str) -> bool:
        """Tell whether the pattern is found in a name."""
        return re.search(self.pattern, tensor_name) is not None


@dataclass(frozen=True, slots=True)
class QuantizationReport:
    """What the quantizer really wrote."""

    path: Path
    quantization: str
    fallbacks: Mapping[str, str]
    """Matrices that could not be stored in a type of the kind asked for -> the type they got instead."""


def quantization_name(text: str, *, with_imatrix: bool = False) -> str:
    """Return the canonical spelling of a type's name (`q4_k` means `Q4_K_M`).

    Raises:
        UsageError: there is no such type, or it needs an importance matrix and there is none.
    """
    name = text.upper()
    name = f"{name}_M" if name in ("Q3_K", "Q4_K", "Q5_K") else name
    if name not in FILE_TYPES:
        usable = [n for n in FILE_TYPES if with_imatrix or n not in NEEDS_IMATRIX]
        raise UsageError(f"unknown quantization {text!r}", hint=f"One of F32, F16, BF16, {', '.join(usable)}.")
    if name in NEEDS_IMATRIX and not with_imatrix:
        raise UsageError(
            f"{name} needs an importance matrix",
            hint="Add --imatrix to compute one; Q2_K, Q3_K_M, IQ3_S and IQ3_M do without.",
        )
    return name


def tensor_type_rule(text: str) -> TensorTypeRule:
    """Read `NAME=TYPE`; the case of the type does not matter.

    Raises:
        UsageError: no such type, or no regular expression.
    """
    pattern, separator, kind = text.rpartition("=")
    name = kind.upper()
    if not pattern or not separator:
        raise UsageError(f"{text!r} is not of the form NAME=TYPE", hint="For example attn_v=Q6_K.")
    if name not in TENSOR_TYPES:
        raise UsageError(f"unknown tensor type {kind!r}", hint=f"One of {', '.join(TENSOR_TYPES)}.")
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{pattern!r} is no regular expression: {error}", hint="For example attn_v=Q6_K.") from error
    return TensorTypeRule(pattern, name)


def check_rules(rules: Iterable[TensorTypeRule], matrices: Iterable[str]) -> None:
    """Refuse a rule that fits no matrix: llama.cpp would ignore it without a word.

    Raises:
        UsageError: with the pattern.
    """
    names = list(matrices)
    for rule in rules:
        if not any(rule.fits(name) for name in names):
            hint = "The tensors are called token_embd.weight, blk.0.attn_q.weight, blk.0.ffn_down.weight and so on."
            raise UsageError(f"no matrix of the model is called {rule.pattern!r}", hint=hint)


def quantize_file(
    source: Path,
    target: Path,
    quantization: str,
    *,
    imatrix: Path | None = None,
    rules: Sequence[TensorTypeRule] = (),
    threads: int | None = None,
    on_step: OnStep | None = None,
) -> QuantizationReport:
    """Quantize an unquantized GGUF file; `target` appears only when it is complete.

    llama.cpp replaces a type whose blocks do not divide a row by a coarser-grained one and still reports success: such
    tensors are listed in the report. As `llama-quantize` does, the header names the importance matrix that was used.

    Args:
        source: A file of f32, f16 or bf16 matrices.
        target: The file to write; an existing one is replaced.
        quantization: A name as `quantization_name` returns it.
        imatrix: An importance matrix of the same model, as `imatrix.write_imatrix` and `llama-imatrix` write it.
        rules: Types of single tensors.
        threads: None for one per core.
        on_step: Progress, called on this thread.

    Raises:
        EngineUnavailableError: llama-cpp-python does not load.
        EngineError: the quantizer failed or crashed; its last words are in the message.
        UnsupportedModelError: no matrix has the type asked for.
        ModelFileError: the importance matrix is damaged or belongs to another model.
        UsageError: a rule fits no matrix.
        StoreError: the target cannot be written, or the disk is full.
    """
    facts = read_file_facts(source)
    check_rules(rules, (name for name, shape in facts.tensor_shapes.items() if len(shape) > 1))
    if imatrix is not None:
        _read_imatrix(imatrix).check_fits(facts.tensor_shapes)
    with replacing(target) as temporary:
        job = {
            "source": str(source),
            "target": str(temporary),
            "file_type": FILE_TYPES[quantization],
            "threads": threads or 0,
            "imatrix": None if imatrix is None else str(imatrix),
            "rules": [[rule.pattern, TENSOR_TYPES[rule.type_name]] for rule in rules],
        }
        # -P: a module lying in the current folder, which may be the checkpoint's, is not imported.
        _run_child([sys.executable, "-P", "-m", __name__, json.dumps(job)], quantization, on_step)
        fallbacks = _check_types(temporary, quantization, rules)
    return QuantizationReport(target, quantization, fallbacks)


def _read_imatrix(path: Path) -> ImportanceMatrix:
    from hymt_convert.imatrix import read_imatrix

    return read_imatrix(path)


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
        reason = _last_words(log, child.returncode)
        if _UNWRITTEN in reason:
            raise StoreError(
                f"llama.cpp cannot write {quantization}: the disk is full or failing ({reason})",
                hint="Free some space or choose another folder with -o.",
            )
        raise EngineError(
            f"llama.cpp could not quantize to {quantization}: {reason}",
            hint="Q8_0 works for every model.",
        )


def _last_words(log: list[str], status: int) -> str:
    text = "\n".join(log)
    failure = _FAILURE.search(text)
    spoken = [line for line in log if line]
    return failure[1] if failure else f"{spoken[-1] if spoken else 'no message'} (status {status})"


def _check_types(path: Path, quantization: str, rules: Sequence[TensorTypeRule]) -> dict[str, str]:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    facts = read_file_facts(path)
    found = {name: kind for name, kind in facts.tensor_types.items() if kind != "F32"}
    ruled = {name: rule.type_name for name in found for rule in reversed(rules) if rule.fits(name)}
    matrices = {name: kind for name, kind in found.items() if name not in ruled}
    wanted = main_tensor_type(quantization)
    wanted_block = GGML_QUANT_SIZES[GGMLQuantizationType[wanted]][0]
    if wanted not in matrices.values() and (matrices or not ruled):
        kinds = ", ".join(sorted(set(matrices.values()))) or "nothing"
        raise UnsupportedModelError(
            f"{quantization} is not possible for this model: llama.cpp fell back to {kinds}",
            hint=f"Its rows are not multiples of {wanted_block} values: use Q8_0 or F16.",
        )
    replaced = {name: kind for name, kind in matrices.items() if facts.tensor_shapes[name][-1] % wanted_block}
    return {**replaced, **{name: found[name] for name, kind in ruled.items() if found[name] != kind}}


def main_tensor_type(quantization: str) -> str:
    """Return the ggml type that most matrices of such a file have."""
    if quantization in _MAIN_TENSOR_TYPES:
        return _MAIN_TENSOR_TYPES[quantization]
    return re.sub(r"(_K)_[SML]$", r"\1", quantization)


def _child(job: dict[str, Any]) -> int:
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
    parameters.ftype = job["file_type"]
    parameters.nthread = job["threads"]
    parameters.max_buf_size = _BUFFER_BYTES
    if job["rules"]:
        parameters.tt_overrides = _overrides(llama_cpp, job["rules"])
    if job["imatrix"] is not None:
        path = Path(job["imatrix"])
        matrix = _read_imatrix(path)
        weights = {name: matrix.weights(name) for name in matrix.entries}
        parameters.imatrix = _importance(llama_cpp, weights)
        parameters.kv_overrides = _provenance(llama_cpp, matrix, path.name)
    source, target = os.fsencode(job["source"]), os.fsencode(job["target"])
    return int(llama_cpp.llama_model_quantize(source, target, ctypes.byref(parameters)))


def _overrides(lib: Any, rules: list[tuple[str, int]]) -> Any:
    array = (lib.llama_model_tensor_override * (len(rules) + 1))()  # an entry without a pattern ends it
    for entry, (pattern, type_id) in zip(array, rules, strict=False):
        entry.pattern, entry.type = pattern.encode(), type_id
    return array


def _importance(lib: Any, weights: Mapping[str, NDArray[np.float32]]) -> Any:
    array = (lib.llama_model_imatrix_data * (len(weights) + 1))()  # an entry without a name ends it
    for entry, (name, values) in zip(array, weights.items(), strict=False):
        entry.name = name.encode()
        entry.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        entry.size = values.size
    return array


def _provenance(lib: Any, matrix: ImportanceMatrix, file_name: str) -> Any:
    """Return the header keys that `llama-quantize` adds, the file's name without its folder."""
    values: dict[str, str | int] = {"file": file_name}
    if matrix.datasets:
        values["dataset"] = matrix.datasets[0]
    values["entries_count"] = len(matrix.entries)
    if matrix.chunk_count > 0:
        values["chunks_count"] = matrix.chunk_count
    array = (lib.llama_model_kv_override * (len(values) + 1))()
    for entry, (key, value) in zip(array, values.items(), strict=False):
        entry.key = f"quantize.imatrix.{key}".encode()
        if isinstance(value, int):
            entry.tag, entry.value.val_i64 = lib.LLAMA_KV_OVERRIDE_TYPE_INT, value
        else:
            entry.tag, entry.value.val_str = lib.LLAMA_KV_OVERRIDE_TYPE_STR, _cut(value)
    return array  # a key of no length ends it


def _cut(text: str) -> bytes:
    return text.encode()[:_LONGEST_VALUE_BYTES].decode(errors="ignore").encode()


if __name__ == "__main__":
    sys.exit(_child(json.loads(sys.argv[1])))
