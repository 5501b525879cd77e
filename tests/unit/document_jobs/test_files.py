"""Which files a document job reads, writes, leaves alone and refuses."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hymt_local.document_jobs import files
from hymt_local.document_jobs.files import claimed
from hymt_local.documents.base import Languages
from hymt_local.documents.text import TextDocument, TextFormat
from hymt_local.errors import DocumentError
from hymt_local.segment import UnitText
from tests.document_services import UnitsService, events_of, finished, refusal, refusing, task


def test_d_5_an_existing_output_stays(source: Path, state_dir: Path) -> None:
    target = source.with_name("report.fr.txt")
    target.write_text("precious", encoding="utf-8")
    service = UnitsService()
    refused = refusal(events_of(task(source), service, state_dir))
    assert (refused.error.code, refused.error.message) == ("document", f"{target} exists already")
    assert service.requests == []
    assert target.read_text(encoding="utf-8") == "precious"
    finished(events_of(task(source, replaces=True), UnitsService(), state_dir))
    assert target.read_text(encoding="utf-8").startswith("⟦First.⟧")


def test_an_output_that_appears_while_it_translates_stays(source: Path, state_dir: Path) -> None:
    target = source.with_name("report.fr.txt")

    def answer(unit: UnitText) -> str:
        target.write_text("precious", encoding="utf-8")
        return "fine"

    refused = refusal(events_of(task(source), UnitsService(answer), state_dir))
    assert (refused.error.code, refused.n_kept) == ("document", 3)
    assert target.read_text(encoding="utf-8") == "precious"
    assert sorted(path.name for path in source.parent.iterdir()) == ["report.fr.txt", "report.txt"]


@pytest.mark.parametrize("kind", ["itself", "symlink", "hard link"])
def test_d_5_the_original_is_never_the_output(source: Path, state_dir: Path, kind: str) -> None:
    target = source if kind == "itself" else source.with_name("other.txt")
    if kind == "symlink":
        target.symlink_to(source)
    elif kind == "hard link":
        target.hardlink_to(source)
    before = source.read_bytes()
    refused = refusal(events_of(task(source, target, replaces=True), UnitsService(), state_dir))
    assert "would overwrite the original" in refused.error.message
    assert source.read_bytes() == before


@pytest.mark.parametrize("replaces", [False, True], ids=["", "with leave to replace"])
@pytest.mark.parametrize("name", ["pipe", "link to a pipe", "device"])
def test_an_output_that_is_no_regular_file_is_neither_read_nor_replaced(
    source: Path, state_dir: Path, name: str, replaces: bool
) -> None:
    pipe, link = source.with_name("pipe"), source.with_name("link to a pipe")
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    link.with_name("device").symlink_to("/dev/tty")
    before = Path("/dev/tty").lstat()
    service = UnitsService()
    refused = refusal(events_of(task(source, source.with_name(name), replaces=replaces), service, state_dir))
    assert (refused.error.exit_status, service.requests) == (5, [])
    assert "is not a regular file" in refused.error.message
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert link.is_symlink()
    assert Path("/dev/tty").lstat().st_mode == before.st_mode


@pytest.mark.parametrize("place", ["n" * 253 + ".md", "n" * 300 + "/out.md", "endless"], ids=["name", "folder", "link"])
def test_an_output_that_cannot_be_looked_at_is_a_store_error(source: Path, state_dir: Path, place: str) -> None:
    source.with_name("endless").symlink_to("endless")
    refused = refusal(events_of(task(source, source.with_name("x").parent / place), UnitsService(), state_dir))
    assert refused.error.exit_status == 6
    assert refused.error.message.startswith("cannot write ")


@pytest.mark.parametrize("raw", [b"caf\xe9.txt", b"two\nlines.txt", b"\x1b[31m.txt"])
def test_names_that_are_no_text_are_names_all_the_same(tmp_path: Path, state_dir: Path, raw: bytes) -> None:
    path = tmp_path / os.fsdecode(raw)
    path.write_bytes(b"First.\n\nSecond.\n")
    assert len(finished(events_of(task(path), UnitsService(refusing("Second.")), state_dir)).failed) == 1
    resumed = finished(events_of(task(path, resumes=True), UnitsService(), state_dir))
    assert (resumed.from_journal, resumed.from_model) == (1, 1)


def test_an_output_that_is_a_link_is_written_where_it_points(source: Path, state_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = source.with_name("report.fr.txt")
    link.symlink_to(tmp_path / "elsewhere" / "real.txt")
    finished(events_of(task(source), UnitsService(), state_dir))
    assert link.is_symlink()
    assert (tmp_path / "elsewhere" / "real.txt").read_text(encoding="utf-8").startswith("⟦First.⟧")


def test_a_source_that_is_a_link_is_followed(source: Path, state_dir: Path) -> None:
    link = source.with_name("link.txt")
    link.symlink_to(source)
    finished(events_of(task(link), UnitsService(), state_dir))
    assert source.with_name("link.fr.txt").exists()


def test_the_output_has_the_permissions_of_its_source(source: Path, state_dir: Path) -> None:
    source.chmod(0o640)
    finished(events_of(task(source), UnitsService(), state_dir))
    assert stat.S_IMODE(source.with_name("report.fr.txt").stat().st_mode) == 0o640


def test_a_source_that_goes_while_it_is_translated_costs_nothing(source: Path, state_dir: Path) -> None:
    def answer(unit: UnitText) -> str:
        source.unlink(missing_ok=True)
        return "fine"

    finished(events_of(task(source), UnitsService(answer), state_dir))
    target = source.with_name("report.fr.txt")
    assert target.read_text(encoding="utf-8").startswith("fine")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_folders_of_the_output_are_made(source: Path, state_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / ("n" * 240 + ".txt")
    finished(events_of(task(source, target), UnitsService(), state_dir))
    assert target.is_file()
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_a_folder_that_cannot_be_made_is_a_store_error(source: Path, state_dir: Path) -> None:
    refused = refusal(events_of(task(source, source / "below" / "out.txt"), UnitsService(), state_dir))
    assert (refused.error.code, refused.error.exit_status) == ("store", 6)


def test_d_5_a_full_disk_keeps_the_work_and_leaves_no_rest(
    source: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        refused = refusal(events_of(task(source), UnitsService(), state_dir))
    assert (refused.error.code, "No space left" in refused.error.message) == ("store", True)
    assert [path.name for path in source.parent.iterdir()] == ["report.txt"]
    service = UnitsService()
    finished(events_of(task(source, resumes=True), service, state_dir))
    assert service.requests == []


def test_v_4_a_second_process_on_the_same_output_is_refused(source: Path, state_dir: Path) -> None:
    target = source.with_name("report.fr.txt")
    with claimed(target, source=source):
        refused = refusal(events_of(task(source), UnitsService(), state_dir))
    assert refused.error.message == f"another process is writing {target}"
    finished(events_of(task(source), UnitsService(), state_dir))


def test_d_5_rests_of_a_killed_run_are_removed(source: Path, state_dir: Path) -> None:
    digest = hashlib.sha256(b"report.fr.txt").hexdigest()[:16]
    for name in (f".hymt-{digest}-abc", f".hymt-{digest}.lock"):
        source.with_name(name).write_bytes(b"rest")
    finished(events_of(task(source), UnitsService(), state_dir))
    assert sorted(path.name for path in source.parent.iterdir()) == ["report.fr.txt", "report.txt"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "there is no file"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: os.mkfifo(path), "is not a regular file"),
        (lambda path: path.symlink_to(path), "cannot read"),
        (lambda path: path.symlink_to("nowhere"), "is a link to a file that does not exist"),
        (lambda path: path.write_bytes(b"PK\x03\x04\x00\x00"), "is a NUL: this is a binary file"),
        (lambda path: path.write_bytes(b"\xff\xd8\xff\xe0"), "byte 0 \\(0xff\\) is not valid UTF-8"),
    ],
    ids=["missing", "folder", "pipe", "endless link", "dead link", "archive", "picture"],
)
def test_what_is_no_document_is_refused(
    tmp_path: Path, state_dir: Path, make: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "document.txt"
    make(path)
    refused = refusal(events_of(task(path), UnitsService(), state_dir))
    assert refused.error.exit_status == 5
    assert re.search(message, refused.error.message)
    assert not path.with_name("document.fr.txt").exists()


def test_d_6_a_huge_file_is_refused_without_reading_it(tmp_path: Path, state_dir: Path) -> None:
    path = tmp_path / "huge.txt"
    with path.open("wb") as stream:
        stream.truncate(files.MAX_DOCUMENT_BYTES + 1)
    refused = refusal(events_of(task(path), UnitsService(), state_dir))
    assert "has 128 MiB; the limit is 128 MiB" in refused.error.message


def test_an_empty_file_becomes_an_empty_file(tmp_path: Path, state_dir: Path) -> None:
    path = tmp_path / "empty.txt"
    path.touch()
    assert finished(events_of(task(path), UnitsService(), state_dir)).n_units == 0
    assert path.with_name("empty.fr.txt").read_bytes() == b""


def test_d_5_a_result_that_could_not_be_read_again_is_not_written(
    source: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = TextFormat.read
    n_reads = iter(range(9))

    def breaks(known: TextFormat, data: bytes, languages: Languages) -> TextDocument:
        if next(n_reads):
            raise DocumentError("it ends in the middle")
        return read(known, data, languages)

    monkeypatch.setattr(TextFormat, "read", breaks)
    refused = refusal(events_of(task(source), UnitsService(), state_dir))
    assert refused.error.message == "the translated document would be broken: it ends in the middle"
    assert not source.with_name("report.fr.txt").exists()
