"""Writes one GGUF file, block by block: the memory needed does not grow with the model.

A file that another process began, and that was not finished, is gone on with behind its last whole tensor.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from hymt_convert.architectures import MetadataValue, TensorPlan
from hymt_convert.safetensors_file import CheckpointTensor, decode
from hymt_local.errors import ModelFileError, StoreError, UnsupportedModelError

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGUFWriter
    from numpy.typing import NDArray

FloatType = Literal["F32", "F16", "BF16"]
FILE_TYPES: Mapping[FloatType, int] = {"F32": 0, "F16": 1, "BF16": 32}
"""`general.file_type` of unquantized files (llama.cpp's `llama_ftype`)."""
FLOAT_BYTES: Mapping[FloatType, int] = {"F32": 4, "F16": 2, "BF16": 2}
HEADER_ALLOWANCE_BYTES = 64 << 20
"""Room for the header when disk space is checked; the largest vocabulary takes a tenth of it."""
ALIGNMENT = 32
"""Of every tensor in the file: GGUF's default."""
_LARGEST: Mapping[FloatType, float] = {"F16": 65504.0, "BF16": 3.3895313892515355e38}
_MAGNITUDES = {"BF16": ("<u2", 0x7FFF, 0x7F80), "F16": ("<u2", 0x7FFF, 0x7C00), "F32": ("<u4", 0x7FFFFFFF, 0x7F800000)}
"""Element type -> word, mask of the bits below the sign, first pattern that is no finite number. Without the sign, the
patterns of a float are in the order of their values."""

OnBytes = Callable[[int], None]
"""Told how many bytes were written since the last call."""
OnTensor = Callable[[int, BinaryIO], None]
"""Told how many tensors are complete, and the open file."""


def tensor_type(plan: TensorPlan, float_type: FloatType) -> FloatType:
    """Return the type that a tensor is stored in."""
    return "F32" if plan.full_precision else float_type


def tensor_bytes(plan: TensorPlan, float_type: FloatType) -> int:
    """Return the size of one tensor's data, without padding."""
    return plan.element_count * FLOAT_BYTES[tensor_type(plan, float_type)]


def stored_bytes(tensors: tuple[TensorPlan, ...], float_type: FloatType) -> int:
    """Return the size of all tensor data, without header and padding."""
    return sum(tensor_bytes(plan, float_type) for plan in tensors)


def write_gguf(
    path: Path,
    metadata: Mapping[str, MetadataValue],
    tensors: tuple[TensorPlan, ...],
    *,
    float_type: FloatType,
    n_finished: int = 0,
    on_bytes: OnBytes | None = None,
    on_tensor: OnTensor | None = None,
) -> None:
    """Write a file under its name; on an error it is left as far as it came.

    Args:
        path: The file; the folder must exist.
        metadata: Header keys; `general.architecture` must be among them.
        tensors: In the order in which they are written.
        float_type: Of matrices.
        n_finished: How many tensors of an unfinished file at `path` are known to be on the disk. It must have been
            begun from the same checkpoint; when the header differs, writing starts anew.
        on_bytes: Progress; finished tensors are reported at once.
        on_tensor: Called when a tensor is complete.

    Raises:
        StoreError: the file cannot be written.
        ModelFileError: a source file is damaged, or a weight is not a finite number.
        UnsupportedModelError: a weight does not fit the float type.
    """
    report = on_bytes or (lambda size_bytes: None)
    with _store_errors(path):
        header_bytes = _write_header(path, metadata, tensors, float_type)
        ends = _tensor_ends(tensors, float_type, header_bytes=header_bytes)
        with path.open("rb+") as file:
            n_finished = n_finished if file.seek(0, os.SEEK_END) >= ends[n_finished] else 0
            file.truncate(ends[n_finished])
            report(stored_bytes(tensors[:n_finished], float_type))
            for number, plan in enumerate(tensors[n_finished:], start=n_finished):
                file.seek(_padded(ends[number]))
                _write_tensor(file, plan, tensor_type(plan, float_type), report)
                if on_tensor is not None:
                    on_tensor(number + 1, file)
            file.truncate(_padded(ends[-1]))


def check_space(folder: Path, needed_bytes: int) -> None:
    """Refuse a folder that does not exist or has too little room.

    Raises:
        StoreError: with both sizes in the message.
    """
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error.strerror or error}") from error
    if free < needed_bytes:
        raise StoreError(
            f"{folder} has {free >> 20} MiB free, {-(-needed_bytes >> 20)} MiB are needed",
            hint="Free some space or choose another folder with -o.",
        )


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path` that takes its place at the end; on any failure nothing is left.

    Raises:
        StoreError: the folder cannot be written to.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with _store_errors(path):
            yield temporary
            publish(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def publish(finished: Path, path: Path) -> None:
    """Give a finished file its name, on the same disk, once its bytes are on that disk.

    Raises:
        StoreError: the folder cannot be written to.
    """
    with _store_errors(path):
        with finished.open("rb+") as file:
            os.fsync(file.fileno())
        finished.replace(path)
        _sync_folder(path.parent)


@contextlib.contextmanager
def _store_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"cannot write {path.name} in {path.parent}: {error.strerror or error}",
            hint="Choose another folder with -o.",
        ) from error


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":  # a folder cannot be opened elsewhere
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_header(
    path: Path, metadata: Mapping[str, MetadataValue], tensors: tuple[TensorPlan, ...], float_type: FloatType
) -> int:
    """Put the header at the start of the file and return its length; a file with the same header keeps its tensors."""
    new = path.with_name(f"{path.name}.header")
    _open_writer(new, metadata, tensors, float_type).close()
    header = new.read_bytes()
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        if file.read(len(header)) == header:
            new.unlink()
            return len(header)
    new.replace(path)
    return len(header)


def _tensor_ends(tensors: tuple[TensorPlan, ...], float_type: FloatType, *, header_bytes: int) -> list[int]:
    """Return where the header ends, and then every tensor, padding left out."""
    ends = [header_bytes]
    for plan in tensors:
        ends.append(_padded(ends[-1]) + tensor_bytes(plan, float_type))
    return ends


def _padded(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def _open_writer(
    path: Path, metadata: Mapping[str, MetadataValue], tensors: tuple[TensorPlan, ...], float_type: FloatType
) -> GGUFWriter:
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFWriter

    words = np.dtype(np.uint16)
    writer = GGUFWriter(path, str(metadata["general.architecture"]))
    for key, value in metadata.items():
        if key != "general.architecture":  # written by the constructor
            _add_metadata(writer, key, value)
    for plan in tensors:
        kind = GGMLQuantizationType[tensor_type(plan, float_type)]
        # The element type given here only says "not bytes": `raw_dtype` decides.
        writer.add_tensor_info(plan.name, plan.shape, words, tensor_bytes(plan, float_type), kind)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
    except BaseException:
        writer.close()
        raise
    return writer


def _add_metadata(writer: GGUFWriter, key: str, value: MetadataValue) -> None:
    from gguf import GGUFValueType

    if isinstance(value, str):
        writer.add_key_value(key, value, GGUFValueType.STRING)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif len(value):
        writer.add_array(key, list(value))
    else:
        raise ValueError(f"metadata key {key} has an empty array, which GGUF writers drop")


def _write_tensor(file: BinaryIO, plan: TensorPlan, kind: FloatType, report: OnBytes) -> None:
    for part in plan.parts:
        for block in part.raw_blocks():
            _check_values(block, part, kind)
            report(file.write(block if part.dtype == kind else _encode(block, part.dtype, kind).data))


def _check_values(block: bytes, part: CheckpointTensor, kind: FloatType) -> None:
    import numpy as np

    word, below_sign, first_infinite = _MAGNITUDES[part.dtype]
    magnitudes = np.bitwise_and(np.frombuffer(block, dtype=word), below_sign)
    largest = magnitudes.max(keepdims=True, initial=0)
    if largest >= first_infinite:
        raise ModelFileError(
            f"tensor {part.name} in {part.path.name} holds NaN or infinity",
            hint="The checkpoint is damaged: download it again.",
        )
    if kind == part.dtype or kind == "F32":
        return
    value = float(decode(largest.tobytes(), part.dtype)[0])
    if value > _LARGEST[kind]:
        raise UnsupportedModelError(
            f"tensor {part.name} holds {value:g}, beyond the range of {kind}", hint="Use --quant F32."
        )


def _encode(block: bytes, dtype: str, kind: FloatType) -> NDArray[Any]:
    import numpy as np

    if dtype == "BF16" and kind == "F16":  # looking 16 bits up is thrice as fast as computing them
        return np.take(_f16_of_bf16(), np.frombuffer(block, dtype="<u2"))
    values = decode(block, dtype)
    if kind == "F32":
        return values.astype("<f4", copy=False)
    return _to_bf16(values) if kind == "BF16" else values.astype("<f2")


@functools.cache
def _f16_of_bf16() -> NDArray[np.uint16]:
    """Return the f16 bits of every bf16 pattern: 128 KiB."""
    import numpy as np

    patterns = np.arange(1 << 16, dtype="<u2")
    with np.errstate(over="ignore", invalid="ignore"):  # such patterns are refused before
        return decode(patterns.tobytes(), "BF16").astype("<f2").view("<u2")


def _to_bf16(block: NDArray[np.float32]) -> NDArray[Any]:
    """Round to nearest, ties to even; the values are finite."""
    import numpy as np

    bits = block.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
