"""Repairs the header of a model file without touching its tensors, in its place or into a copy.

In its place only when the new header is not longer than the old one; what is left over is filled with a key that nobody
reads. The old header is kept beside the file until the new one is on the disk, so that a crash in between is undone by
the next repair. A copy takes its name when it is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hymt_convert.gguf_writer import check_space, replacing
from hymt_convert.header_faults import HeaderValue
from hymt_local.engine.gguf_file import GgufHeader, read_header
from hymt_local.errors import ModelFileError, StoreError, UsageError

FILLER_KEY = "hymt.pad"
_JOURNAL_SUFFIX = ".hymt-repair"
_FIXED_BYTES = 24
"""Magic, version and both counts."""
_COPY_BYTES = 8 << 20
_STRING, _ARRAY = 8, 9
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")

OnBytes = Callable[[int, int], None]
"""Told how many bytes are copied, of how many."""


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What was done."""

    path: Path
    in_place: bool
    changes: Mapping[str, tuple[object, object]]
    """Key -> old and new value; None where there is none."""
    written_bytes: int


def repair_file(
    path: Path,
    changes: Mapping[str, HeaderValue | None],
    *,
    target: Path | None = None,
    on_bytes: OnBytes | None = None,
) -> RepairReport:
    """Set and remove header keys.

    Args:
        path: The file.
        changes: Key -> new value, None to remove it.
        target: Where to write a repaired copy; None repairs the file itself, through a copy when its header grows.
        on_bytes: Progress of copying.

    Raises:
        ModelFileError: the file is damaged.
        StoreError: it cannot be written, or there is no room for a copy.
        UsageError: a change would make the file unreadable.
    """
    path = path.resolve()
    recover(path)
    header = read_header(path)
    changes = {key: value for key, value in changes.items() if header.metadata.get(key) != value}
    _check_changes(changes)
    made = {key: (header.metadata.get(key), value) for key, value in changes.items()}
    target = path if target is None else target.resolve()
    if not changes and target == path:
        return RepairReport(path, True, made, 0)
    raw = _read_start(path, header.data_offset)
    new = _rewritten(raw, header, changes)
    if target == path:
        filled = _filled(new, header)
        if filled is not None:
            return RepairReport(path, True, made, _patch(path, raw, filled))
    written = _copy(header, new, target, on_bytes)
    return RepairReport(target, False, made, written)


def recover(path: Path) -> bool:
    """Undo a repair that was interrupted; returns whether there was one.

    Raises:
        StoreError: the file cannot be written.
    """
    journal = _journal(path)
    try:
        content = journal.read_bytes()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unwritable(path, error) from error
    old, new = _journal_headers(content)
    with _writing(path):
        # Nothing of it: the journal was not complete, so the file was not touched yet. A file of another content has
        # taken the place of the one that was being repaired.
        if old and _is_mixture(_read_start(path, len(old)), old, new):
            with path.open("rb+") as file:
                file.write(old)
                os.fsync(file.fileno())
        journal.unlink()
    return True


def _journal_headers(content: bytes) -> tuple[bytes, bytes]:
    """Return the old and the new header, nothing when the journal is not complete."""
    digest, headers = content[:32], content[32:]
    if hashlib.sha256(headers).digest() != digest:
        return b"", b""
    return headers[: len(headers) // 2], headers[len(headers) // 2 :]


def _is_mixture(found: bytes, old: bytes, new: bytes) -> bool:
    """Tell whether each byte is that of one of two headers of the same length."""
    if len(found) != len(old):
        return False
    return all(byte in pair for byte, *pair in zip(found, old, new, strict=True))


def _check_changes(changes: Mapping[str, HeaderValue | None]) -> None:
    for key in changes:
        if key in ("general.architecture", "general.alignment", FILLER_KEY):
            raise UsageError(f"{key} cannot be changed: the tensors depend on it")


def _read_start(path: Path, n_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(n_bytes)
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror or error}") from error


def _rewritten(raw: bytes, header: GgufHeader, changes: Mapping[str, HeaderValue | None]) -> bytes:
    """Return the new header up to the end of the tensor table, every other key and row as it was."""
    keys, table = _entries(raw)
    keys.pop(FILLER_KEY, None)
    for key, value in changes.items():
        if value is None:
            keys.pop(key, None)
        else:
            keys[key] = _encoded(key, value)
    counts = _U64.pack(len(header.tensors)) + _U64.pack(len(keys))
    return raw[:8] + counts + b"".join(keys.values()) + _table_bytes(raw, table, len(header.tensors))


def _entries(raw: bytes) -> tuple[dict[str, bytes], int]:
    """Return every key with its bytes, and where the tensor table begins; `read_header` has checked all lengths."""
    (n_keys,) = _U64.unpack_from(raw, 16)
    entries: dict[str, bytes] = {}
    position = _FIXED_BYTES
    for _ in range(n_keys):
        start = position
        position = _after_string(raw, position)
        key = raw[start + 8 : position].decode("utf-8", "replace")
        (type_id,) = _U32.unpack_from(raw, position)
        position = _after_value(raw, position + 4, type_id)
        entries[key] = raw[start:position]
    return entries, position


def _after_value(raw: bytes, position: int, type_id: int) -> int:
    if type_id == _STRING:
        return _after_string(raw, position)
    if type_id != _ARRAY:
        return position + _SCALAR_BYTES[type_id]
    (element,) = _U32.unpack_from(raw, position)
    (length,) = _U64.unpack_from(raw, position + 4)
    position += 12
    if element != _STRING:
        return position + int(length) * _SCALAR_BYTES[element]
    for _ in range(length):
        position = _after_string(raw, position)
    return position


def _after_string(raw: bytes, position: int) -> int:
    return position + 8 + int(_U64.unpack_from(raw, position)[0])


def _table_bytes(raw: bytes, start: int, n_tensors: int) -> bytes:
    position = start
    for _ in range(n_tensors):
        position = _after_string(raw, position)
        (n_dimensions,) = _U32.unpack_from(raw, position)
        position += 4 + 8 * n_dimensions + 4 + 8
    return raw[start:position]


def _encoded(key: str, value: HeaderValue) -> bytes:
    if isinstance(value, str):
        return _string(key) + _U32.pack(_STRING) + _string(value)
    if isinstance(value, bool):
        return _string(key) + _U32.pack(7) + bytes([value])
    if isinstance(value, float):
        return _string(key) + _U32.pack(6) + struct.pack("<f", value)
    return _string(key) + _U32.pack(4) + _U32.pack(value)


def _string(text: str) -> bytes:
    data = text.encode()
    return _U64.pack(len(data)) + data


def _alignment(header: GgufHeader) -> int:
    value = header.metadata.get("general.alignment", 32)
    return value if isinstance(value, int) else 32


def _filled(new: bytes, header: GgufHeader) -> bytes | None:
    """Return a header of exactly the old length, None when that is impossible."""
    room = header.data_offset - len(new)
    if room < 0:
        return None
    if room < _alignment(header):
        return new + bytes(room)
    filler = _encoded(FILLER_KEY, "")
    if room < len(filler):
        return None
    filler = _encoded(FILLER_KEY, " " * (room - len(filler)))
    (n_keys,) = _U64.unpack_from(new, 16)
    _, table = _entries(new)
    return new[:16] + _U64.pack(n_keys + 1) + new[_FIXED_BYTES:table] + filler + new[table:]


def _patch(path: Path, old: bytes, new: bytes) -> int:
    """Overwrite what differs; returns how many bytes were written."""
    first = next(place for place in range(len(old)) if old[place] != new[place])
    last = next(place for place in range(len(old), 0, -1) if old[place - 1] != new[place - 1])
    journal = _journal(path)
    with _writing(path):
        with journal.open("wb") as file:
            file.write(hashlib.sha256(old + new).digest() + old + new)
            os.fsync(file.fileno())
        with path.open("rb+") as file:
            file.seek(first)
            file.write(new[first:last])
            os.fsync(file.fileno())
        read_header(path)
        journal.unlink()
    return last - first


def _copy(header: GgufHeader, new: bytes, target: Path, on_bytes: OnBytes | None) -> int:
    alignment = _alignment(header)
    padded = new + bytes(-len(new) % alignment)
    total = len(padded) + header.size_bytes - header.data_offset
    check_space(target.parent, total)
    done = 0
    with replacing(target) as temporary:
        with header.path.open("rb") as source, temporary.open("xb") as file:
            file.write(padded)
            source.seek(header.data_offset)
            while block := source.read(_COPY_BYTES):
                file.write(block)
                done += len(block)
                if on_bytes is not None:
                    on_bytes(done, total)
        _check_same_tensors(header, read_header(temporary))
    return total


def _check_same_tensors(old: GgufHeader, new: GgufHeader) -> None:
    if old.tensors != new.tensors or old.size_bytes - old.data_offset != new.size_bytes - new.data_offset:
        raise ModelFileError(f"{old.path.name} changed while it was copied", hint="Repair it again.")


def _journal(path: Path) -> Path:
    return path.with_name(f".{path.name}{_JOURNAL_SUFFIX}")


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write {path.name} in {path.parent}: {error.strerror or error}", hint="Write a copy with -o."
    )
