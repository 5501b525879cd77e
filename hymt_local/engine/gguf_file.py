"""Reading GGUF headers, and saying what is wrong with a file that is none.

Pure Python on the header alone: no weights are read, nothing is mapped, and no count of the file is believed before it
has been checked against the file's size. The layout is GGUF version 3: magic, version, counts, metadata, tensor table,
padding, tensor data.
"""

from __future__ import annotations

import contextlib
import math
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hymt_local.errors import ModelFileError, UnsupportedModelError

MAGIC = b"GGUF"
VERSION = 3
MAX_BLOCKS = 512
"""llama.cpp aborts the process above it (LLAMA_MAX_LAYERS)."""
MAX_HEADER_BYTES = 128 << 20
"""A vocabulary of 128,000 tokens with merges takes 6 MiB."""

BLOCK_SIZES: Mapping[int, tuple[int, int]] = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 16: (256, 66), 17: (256, 74), 18: (256, 98),
    19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4),
    27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17), 41: (128, 18),
}  # fmt: skip
"""Tensor type id -> (weights, bytes) of one block: every type that llama.cpp 0.5.0-dev stores in files, but for the two
ids that this model family uses otherwise (`gguf_support.FOREIGN_TYPES`)."""

FILE_TYPES: Mapping[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE", 39: "NVFP4",
    40: "Q1_0", 41: "Q2_0",
}  # fmt: skip
"""`general.file_type` -> name (llama.cpp's enum llama_ftype)."""

_DEFAULT_ALIGNMENT = 32
_MIN_ALIGNMENT = 8
_FIRST_READ_BYTES = 1 << 20
_MAX_KEY_BYTES = 1 << 16
_MAX_DIMENSIONS = 4
_MAX_DIMENSION = 1 << 40
_ARRAY = 9
_STRING = 8
_BOOL = 7
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q", 12: "<d"}
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

_LOOKALIKES = (
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself", "fetch it with `git lfs pull`"),
    (b"PK\x03\x04", "a ZIP archive (a PyTorch checkpoint or a Word document)", "unpack or convert it first"),
    (b"lmgg", "a GGML file of 2023", "convert the model to GGUF"),
    (b"tjgg", "a GGJT file of 2023", "convert the model to GGUF"),
)


@dataclass(frozen=True, slots=True)
class SkippedArray:
    """An array of the metadata that was not read; `read_array` reads it."""

    type_id: int
    length: int
    position: int
    """Of its first element in the file."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One row of the tensor table."""

    name: str
    shape: tuple[int, ...]
    """Innermost (contiguous) dimension first, as in the file."""
    type_id: int
    offset: int
    """From the start of the tensor data."""
    size_bytes: int
    """For a type this program does not know: the room up to the next tensor."""


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Everything in a GGUF file but the weights."""

    path: Path
    version: int
    metadata: Mapping[str, object]
    tensors: tuple[TensorEntry, ...]
    data_offset: int
    size_bytes: int

    @property
    def architecture(self) -> str:
        """`general.architecture`, or the empty string."""
        return str(self.metadata.get("general.architecture", ""))

    def of_architecture(self, name: str) -> object:
        """Return the metadata value `<architecture>.<name>`, or None."""
        return self.metadata.get(f"{self.architecture}.{name}")


def read_header(path: Path, *, arrays: bool = False) -> GgufHeader:
    """Read and check the header of a GGUF file.

    Args:
        path: The file.
        arrays: Read arrays into lists; otherwise each one is a `SkippedArray`, which is what makes reading fast.

    Raises:
        ModelFileError: not a file, not a GGUF version 3, truncated, or inconsistent in itself.
    """
    size_bytes = _size_of_regular_file(path)
    try:
        with path.open("rb") as file:
            return _parse(_Reader(file, path, size_bytes), arrays=arrays)
    except OSError as error:
        raise _unreadable(path, error) from error


def read_array(header: GgufHeader, key: str) -> list[object]:
    """Return the elements of an array in the metadata; the empty list when there is no such array."""
    value = header.metadata.get(key)
    if isinstance(value, list):
        return value
    if not isinstance(value, SkippedArray):
        return []
    with _reader_at(header, value.position) as reader:
        return reader.elements(value.type_id, value.length)


def array_length(header: GgufHeader, key: str) -> int:
    """Return how many elements an array of the metadata has; 0 when there is no such array."""
    value = header.metadata.get(key)
    if isinstance(value, SkippedArray):
        return value.length
    return len(value) if isinstance(value, list) else 0


def count_distinct(header: GgufHeader, key: str) -> int:
    """Count the distinct strings of an array as C sees them: up to the first NUL."""
    value = header.metadata.get(key)
    if not isinstance(value, SkippedArray) or value.type_id != _STRING:
        return len({str(element).partition("\0")[0] for element in read_array(header, key)})
    with _reader_at(header, value.position) as reader:
        distinct = set(reader.raw_strings(value.length))
    if b"\0" in b"".join(distinct):  # one search, where a hundred thousand take longer than all of the rest
        return len({raw.partition(b"\0")[0] for raw in distinct})
    return len(distinct)


def quantization_of(header: GgufHeader) -> str:
    """Return the name of the file's quantization, such as `Q4_K_M`, or `type N` for an unusual one."""
    file_type = header.metadata.get("general.file_type")
    return FILE_TYPES.get(file_type, f"type {file_type}") if isinstance(file_type, int) else "unknown"


def corruption(path: Path, what: str) -> ModelFileError:
    """Return the error for a file that contradicts itself or what every model of its kind has."""
    return ModelFileError(f"{path.name} is corrupt: {what}", hint="download or convert it again")


class _Reader:
    """A cursor over the start of a file that reads on as needed and never past its end."""

    def __init__(self, file: BinaryIO, path: Path, size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self.position = 0
        self._file = file
        self._data = file.read(_FIRST_READ_BYTES)

    def take(self, n_bytes: int) -> bytes:
        self._require(n_bytes)
        taken = self._data[self.position : self.position + n_bytes]
        self.position += n_bytes
        return taken

    def u32(self) -> int:
        return int(_U32.unpack(self.take(4))[0])

    def u64(self) -> int:
        return int(_U64.unpack(self.take(8))[0])

    def string(self, *, max_bytes: int = MAX_HEADER_BYTES) -> str:
        length = self.u64()
        if length > max_bytes:
            raise self.corrupt(f"a string of {length} bytes at byte {self.position - 8}")
        return self.take(length).decode("utf-8", errors="replace")

    def scalar(self, type_id: int) -> object:
        if type_id == _STRING:
            return self.string()
        layout = _SCALARS.get(type_id)
        if layout is None:
            raise self.corrupt(f"a value of unknown type {type_id} at byte {self.position}")
        (value,) = struct.unpack(layout, self.take(struct.calcsize(layout)))
        return bool(value) if type_id == _BOOL else value

    def elements(self, type_id: int, length: int) -> list[object]:
        if type_id == _STRING:
            return [raw.decode("utf-8", errors="replace") for raw in self.raw_strings(length)]
        layout = self._element_layout(type_id)
        data = self.take(length * struct.calcsize(layout))
        values = struct.unpack(f"<{length}{layout[1]}", data)
        return [bool(value) for value in values] if type_id == _BOOL else list(values)

    def skip_elements(self, type_id: int, length: int) -> None:
        if type_id != _STRING:
            self._skip_to(self.position + length * struct.calcsize(self._element_layout(type_id)))
            return
        position, unpack, n_done = self.position, _U64.unpack_from, 0
        while n_done < length:
            data = self._data
            try:
                for index in range(n_done, length):
                    n_done = index
                    position += 8 + unpack(data, position)[0]
                n_done = length
            except (struct.error, OverflowError):  # past the bytes read so far
                self._skip_to(position)
                self._require(8)
        self._skip_to(position)

    def raw_strings(self, length: int) -> list[bytes]:
        strings: list[bytes] = []
        while len(strings) < length:
            self._raw_strings_read_so_far(strings, length)
            if len(strings) < length:
                self._require(8)
                self._require(8 + _U64.unpack_from(self._data, self.position)[0])
        return strings

    def _raw_strings_read_so_far(self, strings: list[bytes], length: int) -> None:
        """Append those that are whole; stand before the first that is not."""
        data, position, unpack, append = self._data, self.position, _U64.unpack_from, strings.append
        n_data = len(data)
        with contextlib.suppress(struct.error, OverflowError):  # past the bytes read so far
            for _ in range(length - len(strings)):  # a hundred thousand of them: no call but these
                start = position + 8
                end = start + unpack(data, position)[0]
                if end > n_data:
                    break
                append(data[start:end])
                position = end
        self.position = position

    def corrupt(self, what: str) -> ModelFileError:
        return corruption(self.path, what)

    def _element_layout(self, type_id: int) -> str:
        layout = _SCALARS.get(type_id)
        if layout is None:
            raise self.corrupt(f"an array of type {type_id} at byte {self.position}")
        return layout

    def _skip_to(self, position: int) -> None:
        n_bytes = position - self.position
        self._require(n_bytes)
        self.position = position

    def _require(self, n_bytes: int) -> None:
        end = self.position + n_bytes
        if end <= len(self._data):
            return
        if end > self.size_bytes:
            raise _truncated(self.path, f"its header ends after byte {self.size_bytes}")
        if end > MAX_HEADER_BYTES:
            raise self.corrupt(f"the header exceeds {MAX_HEADER_BYTES} bytes")
        self._data += self._file.read(max(end - len(self._data), len(self._data)))
        if end > len(self._data):
            raise _truncated(self.path, f"it shrank to {len(self._data)} bytes while it was read")


def _parse(reader: _Reader, *, arrays: bool) -> GgufHeader:
    version = _read_version(reader)
    n_tensors, n_keys = reader.u64(), reader.u64()
    _check_counts(reader, n_tensors=n_tensors, n_keys=n_keys)
    metadata = _read_metadata(reader, n_keys, arrays=arrays)
    _check_block_count(reader.path, metadata)
    rows = [_read_tensor_row(reader) for _ in range(n_tensors)]
    alignment = _alignment(reader, metadata)
    data_offset = _padded(reader.position, alignment)
    tensors = _measured(reader, rows, alignment=alignment, n_data_bytes=reader.size_bytes - data_offset)
    _check_complete(reader.path, tensors, data_offset=data_offset, size_bytes=reader.size_bytes)
    return GgufHeader(reader.path, version, metadata, tensors, data_offset, reader.size_bytes)


def _read_version(reader: _Reader) -> int:
    if reader.size_bytes < len(MAGIC) or reader.take(len(MAGIC)) != MAGIC:
        raise _not_gguf(reader.path)
    version = reader.u32()
    if version == VERSION:
        return version
    if version & 0xFFFF == 0:
        raise UnsupportedModelError(
            f"{reader.path.name} is a big-endian GGUF", hint="use the file made for little-endian machines"
        )
    raise UnsupportedModelError(
        f"{reader.path.name} is GGUF version {version}; this program reads version {VERSION}",
        hint="get a newer conversion of the model",
    )


def _check_counts(reader: _Reader, *, n_tensors: int, n_keys: int) -> None:
    smallest = n_tensors * 32 + n_keys * 13  # an empty name, one dimension, type, offset; an empty key, type, one byte
    if smallest > MAX_HEADER_BYTES:
        raise reader.corrupt(f"{n_tensors} tensors and {n_keys} keys")
    if smallest > reader.size_bytes:
        raise _truncated(reader.path, f"{n_tensors} tensors and {n_keys} keys do not fit {reader.size_bytes} bytes")


def _read_metadata(reader: _Reader, n_keys: int, *, arrays: bool) -> dict[str, object]:
    metadata: dict[str, object] = {}
    for _ in range(n_keys):
        key = reader.string(max_bytes=_MAX_KEY_BYTES)
        if key in metadata:
            raise reader.corrupt(f"the key {key!r} twice")
        type_id = reader.u32()
        metadata[key] = _read_array(reader, arrays=arrays) if type_id == _ARRAY else reader.scalar(type_id)
    return metadata


def _read_array(reader: _Reader, *, arrays: bool) -> object:
    type_id, length = reader.u32(), reader.u64()
    if length > MAX_HEADER_BYTES:
        raise reader.corrupt(f"an array of {length} elements at byte {reader.position}")
    if arrays:
        return reader.elements(type_id, length)
    skipped = SkippedArray(type_id, length, reader.position)
    reader.skip_elements(type_id, length)
    return skipped


@dataclass(frozen=True, slots=True)
class _TensorRow:
    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int

    def size_bytes(self) -> int | None:
        block = BLOCK_SIZES.get(self.type_id)
        if block is None:
            return None
        n_weights, n_bytes = block
        return math.prod(self.shape) // n_weights * n_bytes


def _read_tensor_row(reader: _Reader) -> _TensorRow:
    name = reader.string(max_bytes=_MAX_KEY_BYTES)
    n_dimensions = reader.u32()
    if not 1 <= n_dimensions <= _MAX_DIMENSIONS:
        raise reader.corrupt(f"tensor {name!r} with {n_dimensions} dimensions")
    shape = tuple(reader.u64() for _ in range(n_dimensions))
    row = _TensorRow(name, shape, reader.u32(), reader.u64())
    if not all(1 <= size <= _MAX_DIMENSION for size in shape):
        raise reader.corrupt(f"tensor {name!r} of shape {shape}")
    n_weights, _ = BLOCK_SIZES.get(row.type_id, (1, 1))
    if shape[0] % n_weights:
        raise reader.corrupt(f"tensor {name!r} with rows of {shape[0]} weights in blocks of {n_weights}")
    return row


def _alignment(reader: _Reader, metadata: Mapping[str, object]) -> int:
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or not _MIN_ALIGNMENT <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise reader.corrupt(f"an alignment of {alignment!r}")
    return alignment


def _measured(reader: _Reader, rows: list[_TensorRow], *, alignment: int, n_data_bytes: int) -> tuple[TensorEntry, ...]:
    if len({row.name for row in rows}) < len(rows):
        raise reader.corrupt("two tensors of one name")
    entries: list[TensorEntry] = []
    end = 0
    for row, next_offset in _with_next_offsets(rows, n_data_bytes):
        if row.offset % alignment or row.offset < end:
            raise reader.corrupt(f"tensor {row.name!r} at offset {row.offset}, inside another or unaligned")
        size_bytes = row.size_bytes()
        if size_bytes is None:
            size_bytes = max(next_offset - row.offset, 0)
        entries.append(TensorEntry(row.name, row.shape, row.type_id, row.offset, size_bytes))
        end = row.offset + size_bytes
    return tuple(entries)


def _with_next_offsets(rows: list[_TensorRow], n_data_bytes: int) -> Iterator[tuple[_TensorRow, int]]:
    for index, row in enumerate(rows):
        yield row, rows[index + 1].offset if index + 1 < len(rows) else n_data_bytes


def _check_complete(path: Path, tensors: tuple[TensorEntry, ...], *, data_offset: int, size_bytes: int) -> None:
    expected = data_offset + max((entry.offset + entry.size_bytes for entry in tensors), default=0)
    if expected > size_bytes:
        raise _truncated(path, f"it has {size_bytes} bytes of at least {expected}")


def _check_block_count(path: Path, metadata: Mapping[str, object]) -> None:
    n_blocks = metadata.get(f"{metadata.get('general.architecture')}.block_count")
    if isinstance(n_blocks, int) and n_blocks > MAX_BLOCKS:
        raise corruption(path, f"{n_blocks} blocks, and {MAX_BLOCKS} is the most that can be loaded")


@contextmanager
def _reader_at(header: GgufHeader, position: int) -> Iterator[_Reader]:
    try:
        with header.path.open("rb") as file:
            reader = _Reader(file, header.path, header.size_bytes)
            reader.position = position
            yield reader
    except OSError as error:
        raise _unreadable(header.path, error) from error


def _padded(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment


def _size_of_regular_file(path: Path) -> int:
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise ModelFileError(f"there is no file {path}", hint="check the path") from error
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if stat.S_ISDIR(status.st_mode):
        raise ModelFileError(f"{path} is a directory", hint="name the .gguf file in it")
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(f"{path} is not a regular file", hint="name a .gguf file")
    if status.st_size == 0:
        raise ModelFileError(f"{path} is empty", hint="download it again")
    return status.st_size


def _unreadable(path: Path, error: Exception) -> ModelFileError:
    reason = getattr(error, "strerror", None) or str(error)
    return ModelFileError(f"cannot read {path}: {reason}", hint="check the path and its permissions")


def _truncated(path: Path, what: str) -> ModelFileError:
    return ModelFileError(f"{path.name} is truncated: {what}", hint="download it again")


def _not_gguf(path: Path) -> ModelFileError:
    with path.open("rb") as file:
        start = file.read(512)
    what, hint = _describe(start)
    return ModelFileError(f"{path.name} is not a GGUF file but {what}", hint=hint)


def _describe(start: bytes) -> tuple[str, str]:
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<body")):
        return "an HTML page, as servers send it for a login or an error", "download the file itself"
    for magic, what, hint in _LOOKALIKES:
        if start.startswith(magic):
            return what, hint
    if start[8:10] == b'{"':
        return "a safetensors file", "convert its folder with `hymt convert`"
    if _is_text(start):
        return "a text file", "name the .gguf file"
    return "something else", "download it again, or name the .gguf file"


def _is_text(start: bytes) -> bool:
    text = start.decode("utf-8", errors="ignore")
    n_lost = len(start) - len(text.encode())
    return n_lost <= 3 and all(character.isprintable() or character in "\t\r\n\f" for character in text)
