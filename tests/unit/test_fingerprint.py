import hashlib
import os
from pathlib import Path

import pytest

from hymt_local.engine import fingerprint
from hymt_local.engine.fingerprint import SAMPLE_PREFIX, file_fingerprint
from hymt_local.engine.gguf_file import read_header
from hymt_local.errors import ModelFileError
from tests.toy_models import write_toy_model


@pytest.fixture
def toy_path(tmp_path: Path) -> Path:
    return write_toy_model(tmp_path / "toy.gguf")


def test_a_small_file_is_hashed_whole(toy_path: Path) -> None:
    assert file_fingerprint(read_header(toy_path)) == hashlib.sha256(toy_path.read_bytes()).hexdigest()


def test_a_large_file_is_sampled_from_its_first_byte_to_its_last(
    toy_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint, "WHOLE_FILE_BYTES", 1)
    header = read_header(toy_path)
    digests = {file_fingerprint(header)}
    for position in (header.data_offset, header.size_bytes // 2, header.size_bytes - 1):
        data = bytearray(toy_path.read_bytes())
        data[position] ^= 1
        changed = toy_path.with_name(f"{position}.gguf")
        changed.write_bytes(data)
        digests.add(file_fingerprint(read_header(changed)))
    assert len(digests) == 4
    assert all(digest.startswith(SAMPLE_PREFIX) for digest in digests)


def test_an_unchanged_file_is_read_once(toy_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = read_header(toy_path)
    first = file_fingerprint(header)
    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "file_digest", lambda *arguments: pytest.fail("read again"))
        assert file_fingerprint(header) == first
    data = toy_path.read_bytes()
    toy_path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(toy_path, ns=(1, 1))
    assert file_fingerprint(header) != first


def test_a_file_that_is_gone_is_a_typed_error(toy_path: Path) -> None:
    header = read_header(toy_path)
    toy_path.unlink()
    with pytest.raises(ModelFileError, match="cannot read"):
        file_fingerprint(header)
