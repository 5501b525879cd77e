"""Telling model files apart: the whole file's SHA-256, or a sample of it where reading all would delay the start."""

from __future__ import annotations

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
    and 64 blocks of 64 KiB spread evenly over the weights, the last bytes included.

    Raises:
        ModelFileError: the file cannot be read.
    """
    try:
        with header.path.open("rb") as file:
            if header.size_bytes <= WHOLE_FILE_BYTES:
                return hashlib.file_digest(file, "sha256").hexdigest()
            digest = hashlib.sha256(str(header.size_bytes).encode())
            digest.update(file.read(header.data_offset))
            for position in _sample_positions(header):
                file.seek(position)
                digest.update(file.read(SAMPLE_BYTES))
    except OSError as error:
        raise ModelFileError(f"cannot read {header.path}: {error.strerror}", hint="check its permissions") from error
    return SAMPLE_PREFIX + digest.hexdigest()


def _sample_positions(header: GgufHeader) -> list[int]:
    room = header.size_bytes - SAMPLE_BYTES - header.data_offset
    return [header.data_offset + room * index // (N_SAMPLES - 1) for index in range(N_SAMPLES)]


class FingerprintCache:
    """Fingerprints of this process, by path, size, modification time and inode; never written to disk."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, int, int, int], str] = {}

    def fingerprint(self, header: GgufHeader) -> str:
        """Return the file's fingerprint, computed once while the file stays what it is."""
        status = header.path.stat()
        key = (header.path, status.st_size, status.st_mtime_ns, status.st_ino)
        if key not in self._known:
            self._known[key] = file_fingerprint(header)
        return self._known[key]
