"""One safetensors file: its header, checked before a byte of it is believed, and its tensors read in blocks.

Blocks are read into memory and not mapped: a mapped file counts as resident memory, and one that shrinks meanwhile
kills the process. numpy is imported when the first block is decoded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from hymt_local.errors import ModelFileError, UnsupportedModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HEADER_LIMIT_BYTES = 100_000_000
"""The format's own limit on the JSON header."""
BLOCK_BYTES = 1 << 20
"""Small enough that every pass over a block but the first finds it in the processor's cache."""
_LENGTH_BYTES = 8
_DIMENSION_LIMIT = 8

ITEM_BYTES = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
    "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1,
}  # fmt: skip
UNREADABLE = "Check the permissions of the checkpoint's folder and files, and the disk."
READABLE = ("F32", "F16", "BF16")
"""Element types that are weights; the others are known only so that their sizes can be checked."""


@dataclass(frozen=True, slots=True)
class CheckpointTensor:
    """One tensor where it lies on the disk; nothing is read until `blocks` is iterated."""

    name: str
    dtype: str
    """As safetensors spells it: F32, F16, BF16 ..."""
    shape: tuple[int, ...]
    path: Path
    offset: int
    """Bytes from the start of the file."""
    size_bytes: int

    def section(self, start: int, stop: int) -> CheckpointTensor:
        """Return the values from number `start` up to `stop` in storage order, as a flat tensor of the same name."""
        item_bytes = ITEM_BYTES[self.dtype]
        return replace(
            self,
            shape=(stop - start,),
            offset=self.offset + start * item_bytes,
            size_bytes=(stop - start) * item_bytes,
        )

    def raw_blocks(self) -> Iterator[bytes]:
        """Yield the stored bytes in blocks that hold whole elements.

        Raises:
            ModelFileError: the file has become shorter.
        """
        with self.path.open("rb") as file:
            file.seek(self.offset)
            for start in range(0, self.size_bytes, BLOCK_BYTES):
                yield self._read(file, min(BLOCK_BYTES, self.size_bytes - start))

    def _read(self, file: BinaryIO, length: int) -> bytes:
        try:
            block = file.read(length)
        except OSError as error:
            raise ModelFileError(f"cannot read {self.path.name}: {error.strerror or error}", hint=UNREADABLE) from error
        if len(block) != length:
            raise ModelFileError(f"{self.path.name} ended inside tensor {self.name}", hint="Download it again.")
        return block

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """Yield the values as flat f32 blocks, in storage order.

        Raises:
            UnsupportedModelError: the element type is not one of `READABLE`.
            ModelFileError: the file has become shorter.
        """
        self.check_readable()
        for block in self.raw_blocks():
            yield decode(block, self.dtype)

    def check_readable(self) -> None:
        """Refuse element types that need more than a cast.

        Raises:
            UnsupportedModelError: fp8, integer and boolean tensors.
        """
        if self.dtype not in READABLE:
            raise UnsupportedModelError(
                f"tensor {self.name} in {self.path.name} is {self.dtype}, not one of {', '.join(READABLE)}",
                hint="Convert from the bf16 checkpoint of this model.",
            )


def decode(block: bytes, dtype: str) -> NDArray[np.float32]:
    """Return the values of stored bytes of a type of `READABLE`, flat."""
    import numpy as np

    if dtype == "BF16":  # the upper half of an f32
        words: NDArray[np.uint32] = np.left_shift(np.frombuffer(block, dtype="<u2"), 16, dtype=np.uint32)
        return words.view(np.float32)
    return np.frombuffer(block, dtype="<f2" if dtype == "F16" else "<f4").astype(np.float32, copy=False)


def read_tensors(path: Path) -> dict[str, CheckpointTensor]:
    """Read the header of one file: every tensor by name, each proven to lie inside the file and to overlap no other.

    Raises:
        ModelFileError: the file is missing, empty, truncated or not safetensors.
    """
    try:
        size_bytes = path.stat().st_size
        with path.open("rb") as file:
            header, data_offset = _read_header(file, path, size_bytes)
    except OSError as error:
        raise ModelFileError(f"cannot read {path.name}: {error.strerror or error}", hint=UNREADABLE) from error
    header.pop("__metadata__", None)
    tensors = {name: _entry(path, name, entry, data_offset=data_offset) for name, entry in header.items()}
    _check_extent(path, tensors, size_bytes=size_bytes)
    return tensors


def _read_header(file: BinaryIO, path: Path, size_bytes: int) -> tuple[dict[str, object], int]:
    if size_bytes < _LENGTH_BYTES + 2:
        raise ModelFileError(f"{path.name} holds {size_bytes} bytes: no safetensors file", hint="Download it again.")
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if length > HEADER_LIMIT_BYTES or length > size_bytes - _LENGTH_BYTES:
        raise ModelFileError(
            f"{path.name} claims a header of {length} bytes in a file of {size_bytes}",
            hint="It is truncated or not a safetensors file: download it again.",
        )
    try:
        header = json.loads(file.read(length), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"the header of {path.name} is not valid: {error}", hint="Download it again.") from error
    if not isinstance(header, dict):
        raise ModelFileError(f"the header of {path.name} is not a table", hint="Download it again.")
    return header, _LENGTH_BYTES + length


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicate name {next(name for name in names if names.count(name) > 1)!r}")
    return table


def _entry(path: Path, name: str, entry: object, *, data_offset: int) -> CheckpointTensor:
    fields = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = fields.get("dtype"), _counts(fields.get("shape")), _counts(fields.get("data_offsets"))
    where = f"tensor {name} in {path.name}"
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise ModelFileError(f"{where} has the unknown element type {dtype!r}")
    if shape is None or len(shape) > _DIMENSION_LIMIT:
        raise ModelFileError(f"{where} has the impossible shape {fields.get('shape')!r:.80}")
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ModelFileError(f"{where} has the impossible offsets {fields.get('data_offsets')!r:.80}")
    begin, end = offsets
    size_bytes = math.prod(shape) * ITEM_BYTES[dtype]
    if end - begin != size_bytes:
        raise ModelFileError(f"{where} takes {end - begin} bytes, but {dtype} {list(shape)} needs {size_bytes}")
    return CheckpointTensor(name, dtype, shape, path, data_offset + begin, size_bytes)


def _counts(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
        return None
    return tuple(value)


def _check_extent(path: Path, tensors: dict[str, CheckpointTensor], *, size_bytes: int) -> None:
    last: CheckpointTensor | None = None
    for tensor in sorted(tensors.values(), key=lambda item: (item.offset, item.size_bytes)):
        if last is not None and tensor.offset < last.offset + last.size_bytes:
            raise ModelFileError(f"tensors {last.name} and {tensor.name} overlap in {path.name}")
        if tensor.offset + tensor.size_bytes > size_bytes:
            raise ModelFileError(
                f"{path.name} is truncated: tensor {tensor.name} ends at byte {tensor.offset + tensor.size_bytes}, "
                f"the file has {size_bytes}",
                hint="Download it again.",
            )
        last = tensor
