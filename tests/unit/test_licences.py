"""Licences are asked for once, and only for the terms that were shown."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hymt_local.catalog import Licence
from hymt_local.errors import StoreError
from hymt_local.licences import AcceptedLicences
from hymt_local.paths import Paths

APACHE = Licence("Apache-2.0", "Apache License 2.0")
TENCENT = Licence("Tencent", "Tencent Agreement", ("EU",))


def test_what_was_accepted_is_remembered_by_others_too(paths: Paths) -> None:
    assert not AcceptedLicences(paths).has(APACHE)
    AcceptedLicences(paths).accept(APACHE)
    AcceptedLicences(paths).accept(TENCENT)
    assert AcceptedLicences(paths).has(APACHE)
    assert AcceptedLicences(paths).has(TENCENT)


def test_other_terms_under_the_same_id_are_asked_for_again(paths: Paths) -> None:
    AcceptedLicences(paths).accept(TENCENT)
    assert not AcceptedLicences(paths).has(Licence("Tencent", "Tencent Agreement, second edition", ("EU",)))


def test_the_file_is_private(paths: Paths) -> None:
    AcceptedLicences(paths).accept(APACHE)
    assert stat.S_IMODE(AcceptedLicences(paths).file.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"Apache-2.0": 1}', b"\xff"])
def test_a_broken_file_accepts_nothing_and_can_be_written_again(paths: Paths, content: bytes) -> None:
    accepted = AcceptedLicences(paths)
    accepted.file.parent.mkdir(parents=True)
    accepted.file.write_bytes(content)
    assert not accepted.has(APACHE)
    accepted.accept(APACHE)
    assert accepted.has(APACHE)


def test_a_folder_in_its_place_is_an_error(paths: Paths) -> None:
    accepted = AcceptedLicences(paths)
    accepted.file.mkdir(parents=True)
    with pytest.raises(StoreError, match=r"licences\.json"):
        accepted.has(APACHE)


def test_a_state_folder_that_cannot_be_written_is_an_error(paths: Paths, tmp_path: Path) -> None:
    paths.state_dir.parent.mkdir(parents=True, exist_ok=True)
    paths.state_dir.write_text("a file")
    with pytest.raises(StoreError):
        AcceptedLicences(paths).accept(APACHE)
    assert os.path.isfile(paths.state_dir)  # noqa: PTH113
