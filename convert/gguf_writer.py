"""Writes one GGUF file, block by block: the memory needed does not grow with the model.

The file appears under its final name only when it is complete and on the disk.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hymt_convert.architectures import MetadataValue, TensorPlan
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
_LARGEST: Mapping[FloatType, float] = {"F16": 65504.0, "BF16": 3.3895313892515355e38}

OnBytes = Callable[[int], None]
"""Told how many bytes were written since the last call."""


def tensor_type(plan: TensorPlan, float_type: FloatType) -> FloatType:
    """Return the type that a tensor is stored in."""
    return "F32" if plan.full_precision else float_type


def stored_bytes(tensors: tuple[TensorPlan, ...], float_type: FloatType) -> int:
    """Return the size of all tensor data, without header and padding."""
    return sum(plan.element_count * FLOAT_BYTES[tensor_type(plan, float_type)] for plan in tensors)


def write_gguf(
    path: Path,
    metadata: Mapping[str, MetadataValue],
    tensors: tuple[TensorPlan, ...],
    *,
    float_type: FloatType,
    on_bytes: OnBytes | None = None,
) -> None:
    """Write a file; `metadata` must hold `general.architecture`.

    Raises:
        StoreError: the folder cannot be written to or is too small.
        ModelFileError: a source file is damaged, or a weight is not a finite number.
        UnsupportedModelError: a weight does not fit the float type.
    """
    check_space(path.parent, stored_bytes(tensors, float_type) + HEADER_ALLOWANCE_BYTES)
    with replacing(path) as temporary:
        writer = _open_writer(temporary, metadata, tensors, float_type)
        try:
            for plan in tensors:
                _write_tensor(writer, plan, tensor_type(plan, float_type), on_bytes)
        finally:
            writer.close()


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
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise StoreError(
            f"cannot write {path.name} in {path.parent}: {error.strerror or error}",
            hint="Choose another folder with -o.",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":  # a folder cannot be opened elsewhere
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
        kind = tensor_type(plan, float_type)
        size_bytes = plan.element_count * FLOAT_BYTES[kind]
        # The element type given here only says "not bytes": `raw_dtype` decides.
        writer.add_tensor_info(plan.name, plan.source.shape, words, size_bytes, GGMLQuantizationType[kind])
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


def _write_tensor(writer: GGUFWriter, plan: TensorPlan, kind: FloatType, on_bytes: OnBytes | None) -> None:
    file = writer.fout[0] if writer.fout else None
    assert file is not None
    writer.write_padding(file, file.tell())
    for block in plan.source.blocks():
        encoded = _encode(block, kind, plan)
        file.write(encoded.data)
        if on_bytes is not None:
            on_bytes(encoded.nbytes)
    writer.write_padding(file, file.tell())


def _encode(block: NDArray[np.float32], kind: FloatType, plan: TensorPlan) -> NDArray[Any]:
    # NaN wins every comparison inside numpy's max and min.
    largest = max(float(block.max(initial=0.0)), -float(block.min(initial=0.0)))
    if not math.isfinite(largest):
        raise ModelFileError(
            f"tensor {plan.source.name} in {plan.source.path.name} holds NaN or infinity",
            hint="The checkpoint is damaged: download it again.",
        )
    if kind == "F32":
        return block.astype("<f4", copy=False)
    if largest > _LARGEST[kind]:
        raise UnsupportedModelError(
            f"tensor {plan.source.name} holds {largest:g}, beyond the range of {kind}", hint="Use --quant F32."
        )
    return _to_bf16(block) if kind == "BF16" else block.astype("<f2")


def _to_bf16(block: NDArray[np.float32]) -> NDArray[Any]:
    """Round to nearest, ties to even; the values are finite."""
    import numpy as np

    bits = block.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
