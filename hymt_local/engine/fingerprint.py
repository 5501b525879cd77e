"""Telling model files apart: the whole file's SHA-256, or a sample of it where reading all would delay the start."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from hymt_local.engine.gguf_file import GgufHeader
from hymt_local.errors import ModelFileError

WHOLE_FILE_BYTES = 256 << 20
"""Up to this size the whole file is hashed, in about 0.2 s."""
SAMPLE_PREFIX = "sample:"
N_SAMPLES = 64
SAMPLE_BYTES = 64 << 10


def file_fingerprint(header: GgufHeader) -> str:
    """Return a digest of a model file: two files that differ in use have different ones.

    Small files: the hex SHA-256 of all bytes. Large ones: `sample:` and the hex SHA-256 of size, header, tensor table
    and 64 blocks of 64 KiB spread evenly over the weights, the last bytes included. Computed once per process while
    path, size, modification time and inode stay the same.

    Raises:
        ModelFileError: the file cannot be read.
    """
    try:
        status = header.path.stat()
        identity = (status.st_size, status.st_mtime_ns, status.st_ino)
        return _fingerprint(header.path, identity, header.data_offset)
    except OSError as error:
        raise ModelFileError(f"cannot read {header.path}: {error.strerror}", hint="check its permissions") from error


@functools.lru_cache(maxsize=32)
def _fingerprint(path: Path, identity: tuple[int, int, int], data_offset: int) -> str:
    size_bytes = identity[0]
    with path.open("rb") as file:
        if size_bytes <= WHOLE_FILE_BYTES:
            return hashlib.file_digest(file, "sha256").hexdigest()
        digest = hashlib.sha256(str(size_bytes).encode())
        digest.update(file.read(data_offset))
        room = max(size_bytes - SAMPLE_BYTES - data_offset, 0)
        for index in range(N_SAMPLES):
            file.seek(data_offset + room * index // (N_SAMPLES - 1))
            digest.update(file.read(SAMPLE_BYTES))
    return SAMPLE_PREFIX + digest.hexdigest()
