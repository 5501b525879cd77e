"""One document at a time: what is asked, what is written, what is kept, what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from hymt_local.document_jobs import files
from hymt_local.document_jobs.events import (
    DocumentEvent,
    DocumentFailed,
    DocumentFinished,
    DocumentProgress,
    DocumentReport,
    DocumentSkipped,
    DocumentStarted,
    DocumentTask,
    UnitSettled,
)
from hymt_local.document_jobs.files import claimed
from hymt_local.document_jobs.journal import journal_path, read_journal
from hymt_local.document_jobs.run import run_document, translate_bytes
from hymt_local.documents.base import Languages
from hymt_local.documents.text import TextDocument, TextFormat
from hymt_local.errors import DocumentError, EngineLoadError
from hymt_local.events import Pivot, TranslationRequest
from hymt_local.jobs import TranslationJob
from hymt_local.paths import Paths
from hymt_local.segment import UnitText
from tests.document_services import BrokenService, UnitsService, bracketed, events_of, options, refusing, task

LINES = [f"Sentence number {n}.\n\n" for n in range(700)]


@pytest.fixture
def state_dir(paths: Paths) -> Path:
    return paths.state_dir


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "report.txt"
    path.write_text("First.\n\nSecond.\n\nFirst.\n\n12\n", encoding="utf-8")
    return path


def finished(events: list[DocumentEvent]) -> DocumentReport:
    last = events[-1]
    assert isinstance(last, DocumentFinished), last
    return last.report


def refusal(events: list[DocumentEvent]) -> DocumentFailed:
    last = events[-1]
    assert isinstance(last, DocumentFailed), last
    return last


# The work


def test_a_document_is_translated_into_another_file(source: Path, state_dir: Path) -> None:
    before = source.read_bytes()
    events = events_of(task(source), UnitsService(), state_dir)
    assert source.with_name("report.fr.txt").read_text(encoding="utf-8") == "⟦First.⟧\n\n⟦Second.⟧\n\n⟦First.⟧\n\n12\n"
    assert source.read_bytes() == before
    assert events[0] == DocumentStarted("text", 3, 0, len("First.Second.First."))
    assert [event.id for event in events if isinstance(event, UnitSettled)] == ["line-1", "line-3", "line-5"]


def test_d_9_the_report_adds_up(source: Path, state_dir: Path) -> None:
    report = finished(events_of(task(source), UnitsService(refusing("Second.")), state_dir))
    assert (report.n_units, report.words, report.characters) == (3, 3, 19)
    assert (report.from_journal, report.from_cache, report.from_model, report.passed_through) == (0, 0, 2, 0)
    assert [(unit.id, unit.location, unit.source) for unit in report.failed] == [("line-3", "line 3", "Second.")]
    assert report.failed[0].error.code == "segment_rejected"
    assert (report.model, report.source_lang, report.target_lang, report.format) == ("fake", "en", "fr", "text")


def test_equal_units_are_asked_once_across_the_whole_document(tmp_path: Path, state_dir: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("".join(["Again.\n\n", "Other.\n\n"] * 400), encoding="utf-8")
    service = UnitsService()
    report = finished(events_of(task(path), service, state_dir))
    assert report.from_model == 800
    assert len(service.asked) < 10  # the context differs at the beginning and after each of the two


def test_units_are_asked_in_batches_of_a_few_hundred_that_overlap(tmp_path: Path, state_dir: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("".join(LINES), encoding="utf-8")
    service = UnitsService()
    events = run_document(task(path), service, state_dir=state_dir)
    n_open = [len(service.requests) for event in events if isinstance(event, UnitSettled)]
    assert [len(request.units) for request in service.requests] == [256, 256, 188]
    assert (n_open[190], n_open[200]) == (1, 2)  # the next one follows when a few are left
    assert all(request.priority.name == "DOCUMENT" and request.text == "" for request in service.requests)


def test_protected_words_and_pivot_reach_the_translator(source: Path) -> None:
    service = UnitsService()
    finished(events_of(task(source, options=options(protect=("Second",), pivot=Pivot.AUTO)), service, None))
    assert [(request.protect, request.pivot) for request in service.requests] == [(("Second",), Pivot.AUTO)]


def test_a_batch_holds_only_so_many_characters(tmp_path: Path, state_dir: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("".join(f"{n} {'word ' * 12_000}\n\n" for n in range(4)), encoding="utf-8")
    service = UnitsService()
    finished(events_of(task(path), service, state_dir))
    assert [len(request.units) for request in service.requests] == [1, 1, 1, 1]


def test_the_first_batch_tells_the_language_of_all(tmp_path: Path, state_dir: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("".join(LINES), encoding="utf-8")
    service = UnitsService(detected="de")
    report = finished(events_of(task(path, options=options(None)), service, state_dir))
    assert [request.source_lang for request in service.requests] == [None, "de", "de"]
    assert report.source_lang == "de"


def test_a_document_without_a_unit_is_copied_and_nothing_is_asked(tmp_path: Path, state_dir: Path) -> None:
    path = tmp_path / "numbers.txt"
    path.write_bytes(b"1\r\n\r\n2")
    service = UnitsService()
    report = finished(events_of(task(path), service, state_dir))
    assert path.with_name("numbers.fr.txt").read_bytes() == b"1\r\n\r\n2"
    assert (service.requests, report.n_units, report.model) == ([], 0, "")


def test_an_answer_that_would_break_the_document_fails_its_unit_only(source: Path, state_dir: Path) -> None:
    service = UnitsService(lambda unit: "two\nlines" if unit.text == "Second." else "fine")
    report = finished(events_of(task(source), service, state_dir))
    assert source.with_name("report.fr.txt").read_text(encoding="utf-8") == "fine\n\nSecond.\n\nfine\n\n12\n"
    assert report.failed[0].error.message == (
        "the translation does not fit the document: a single line would become several"
    )


def test_what_the_document_cannot_hold_fails_its_unit_only(source: Path, state_dir: Path) -> None:
    service = UnitsService(lambda unit: "half \ud800" if unit.text == "Second." else "fine")
    report = finished(events_of(task(source), service, None))
    assert "Second." in source.with_name("report.fr.txt").read_text(encoding="utf-8")
    assert (report.from_model, [unit.location for unit in report.failed]) == (2, ["line 3"])
    assert "cannot be written" in report.failed[0].error.message


@pytest.mark.parametrize(
    "values", [["\\ud800 x"], ["One", "\\udc00", "x\\ud83d", "\\ud83d\\ude00 Two"]], ids=["only", "some"]
)
def test_a_text_with_half_a_character_fails_its_unit_only(tmp_path: Path, state_dir: Path, values: list[str]) -> None:
    path = tmp_path / "messages.json"
    path.write_text("[" + ", ".join(f'"{value} a"' for value in values) + "]", encoding="utf-8")
    service = UnitsService()
    report = finished(events_of(task(path), service, state_dir))
    halves = [value for value in values if "\\ude00" not in value and "\\u" in value]
    assert [unit.error.exit_status for unit in report.failed] == [1] * len(halves)
    assert all("half a character" in unit.error.message for unit in report.failed)
    assert len(service.asked) == report.from_model == len(values) - len(halves)
    written = path.with_name("messages.fr.json").read_text(encoding="utf-8")
    assert all(f'"{value} a"' in written for value in halves)
    again = finished(events_of(task(path, resumes=True), UnitsService(), state_dir))
    assert again.failed == report.failed


def test_a_document_whose_units_all_fail_keeps_every_byte(source: Path, state_dir: Path) -> None:
    report = finished(events_of(task(source), UnitsService(refusing("First.", "Second.")), state_dir))
    assert source.with_name("report.fr.txt").read_bytes() == source.read_bytes()
    assert (len(report.failed), report.from_model) == (3, 0)


def test_an_engine_that_fails_ends_the_document_and_writes_nothing(source: Path, state_dir: Path) -> None:
    events = events_of(task(source), BrokenService(EngineLoadError("it does not load", hint="try")), state_dir)
    assert refusal(events).error.code == "engine_load"
    assert not source.with_name("report.fr.txt").exists()


def test_progress_comes_now_and_then_with_the_speed_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("".join(LINES), encoding="utf-8")
    ticks = iter(range(100_000))
    events = list(run_document(task(path), UnitsService(), state_dir=None, now=lambda: next(ticks) * 0.01))
    progress = [event for event in events if isinstance(event, DocumentProgress)]
    assert 5 < len(progress) < 120
    halfway = progress[len(progress) // 2]
    assert halfway.rate is not None
    assert halfway.eta_s is not None
    n_characters = sum(len(line.strip()) for line in LINES)
    assert (halfway.n_units, halfway.characters) == (700, n_characters)
    assert halfway.eta_s == pytest.approx((n_characters - halfway.done_characters) / halfway.rate)


def test_leaving_early_cancels_what_is_under_way(tmp_path: Path, state_dir: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("".join(LINES), encoding="utf-8")

    class SlowService(UnitsService):
        def submit(self, request: TranslationRequest) -> TranslationJob:
            job = TranslationJob(request, cancel=self._cancel)
            job.put(self._settle(0, request.units[0]))
            return job

    service = SlowService()
    events = run_document(task(path), service, state_dir=state_dir)
    assert isinstance(next(events), DocumentStarted)
    assert isinstance(next(events), UnitSettled)
    events.close()  # type: ignore[attr-defined]
    assert service.n_cancelled == 1
    assert not path.with_name("long.fr.txt").exists()
    (report,) = [finished(events_of(task(path, resumes=True), UnitsService(), state_dir))]
    assert report.from_journal == 1


# Journal and resume


def test_resume_asks_only_for_what_failed(source: Path, state_dir: Path) -> None:
    events_of(task(source), UnitsService(refusing("Second.")), state_dir)
    service = UnitsService()
    report = finished(events_of(task(source, resumes=True), service, state_dir))
    assert service.asked == ["Second."]
    assert (report.from_journal, report.from_model, report.retried, report.failed) == (2, 1, 1, ())
    assert source.with_name("report.fr.txt").read_text(encoding="utf-8") == "⟦First.⟧\n\n⟦Second.⟧\n\n⟦First.⟧\n\n12\n"


def test_what_the_format_refused_is_asked_again_without_the_cache(source: Path, state_dir: Path) -> None:
    events_of(task(source), UnitsService(lambda unit: "a\nb" if unit.text == "Second." else "fine"), state_dir)
    service = UnitsService()
    finished(events_of(task(source, resumes=True), service, state_dir))
    assert [(request.use_cache, len(request.units)) for request in service.requests] == [(False, 1)]


def test_resume_after_a_complete_run_does_nothing(source: Path, state_dir: Path) -> None:
    events_of(task(source), UnitsService(), state_dir)
    service = UnitsService()
    (last,) = events_of(task(source, resumes=True), service, state_dir)
    assert isinstance(last, DocumentSkipped)
    assert service.requests == []


def test_resume_after_a_complete_run_whose_output_is_gone_starts_again(source: Path, state_dir: Path) -> None:
    events_of(task(source), UnitsService(), state_dir)
    source.with_name("report.fr.txt").unlink()
    assert finished(events_of(task(source, resumes=True), UnitsService(), state_dir)).from_model == 3


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"options": options(target_lang="de")}, id="target language"),
        pytest.param({"options": options("es")}, id="source language"),
        pytest.param({"options": options(model="other")}, id="model"),
        pytest.param({"options": options(is_bilingual=True)}, id="bilingual"),
        pytest.param({"options": options(protect=("Second",))}, id="protected words"),
        pytest.param({"options": options(pivot=Pivot.ZH)}, id="pivot"),
        pytest.param({"model_identity": "sha"}, id="model file"),
    ],
)
def test_a_journal_is_not_used_for_anything_else(source: Path, state_dir: Path, change: dict[str, object]) -> None:
    target = source.with_name("out.txt")
    events_of(task(source, target), UnitsService(refusing("Second.")), state_dir)
    events = events_of(task(source, target, resumes=True, replaces=True, **change), UnitsService(), state_dir)
    assert finished(events).from_journal == 0
    assert finished(events).notes == ("there is nothing to resume: it starts from the beginning",)


def test_a_journal_is_not_used_for_a_document_that_was_changed(source: Path, state_dir: Path) -> None:
    events_of(task(source), UnitsService(refusing("Second.")), state_dir)
    source.write_text("Other.\n", encoding="utf-8")
    refused = refusal(events_of(task(source, resumes=True), UnitsService(), state_dir))
    assert "exists already" in refused.error.message
    report = finished(events_of(task(source, resumes=True, replaces=True), UnitsService(), state_dir))
    assert report.from_journal == 0
    assert source.with_name("report.fr.txt").read_text(encoding="utf-8") == "⟦Other.⟧\n"


def test_without_resume_an_earlier_run_is_left_aside_and_mentioned(source: Path, state_dir: Path) -> None:
    events_of(task(source), UnitsService(refusing("Second.")), state_dir)
    report = finished(events_of(task(source, replaces=True), UnitsService(), state_dir))
    assert report.from_model == 3
    assert report.notes == ("2 units of an earlier run are left aside: `--resume` would have used them",)


def test_an_output_that_was_edited_is_not_resumed_over(source: Path, state_dir: Path) -> None:
    events_of(task(source), UnitsService(refusing("Second.")), state_dir)
    target = source.with_name("report.fr.txt")
    target.write_text("edited by hand", encoding="utf-8")
    refused = refusal(events_of(task(source, resumes=True), UnitsService(), state_dir))
    assert "was changed since it was translated" in refused.error.message
    assert target.read_text(encoding="utf-8") == "edited by hand"


def test_the_detected_language_is_kept_for_the_rest(tmp_path: Path, state_dir: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("".join(LINES), encoding="utf-8")
    interrupted = refusal(
        events_of(task(path, options=options(None)), UnitsService(n_batches=1, detected="de"), state_dir)
    )
    assert (interrupted.error.code, interrupted.n_kept) == ("cancelled", 256)
    service = UnitsService(detected="en")
    finished(events_of(task(path, options=options(None), resumes=True), service, state_dir))
    assert {request.source_lang for request in service.requests} == {"de"}


def test_the_journal_is_private_and_a_complete_one_holds_no_text(source: Path, state_dir: Path) -> None:
    events_of(task(source), UnitsService(refusing("Second.")), state_dir)
    path = journal_path(state_dir, source.with_name("report.fr.txt"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert "First" in path.read_text(encoding="utf-8")
    events_of(task(source, resumes=True), UnitsService(), state_dir)
    assert "First" not in path.read_text(encoding="utf-8")


def test_old_journals_are_forgotten(source: Path, state_dir: Path) -> None:
    old = state_dir / "documents" / "old.jsonl"
    old.parent.mkdir(parents=True)
    old.write_text("{}\n", encoding="utf-8")
    os.utime(old, (0, 0))
    events_of(task(source), UnitsService(), state_dir)
    assert not old.exists()


@pytest.mark.parametrize(
    "damage",
    [
        b"\0\0\0\n", b'{"id": "line-5", "targ', b"[]\n", b'{"id": 7}\n', b"\xff\xfe\n", b"[" * 100_000 + b"\n",
        b'{"id": "line-3", "target": "a\\u0000b"}\n',
        b'{"id": "line-3", "target": "\\ud800"}\n',
    ],
    ids=["NUL", "cut off", "list", "number", "no UTF-8", "deep", "NUL in a target", "half a character"],
)  # fmt: skip
def test_a_damaged_journal_loses_its_end_only(source: Path, state_dir: Path, damage: bytes) -> None:
    events_of(task(source), UnitsService(refusing("Second.")), state_dir)
    path = journal_path(state_dir, source.with_name("report.fr.txt"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + damage)
    source.with_name("report.fr.txt").unlink()
    report = finished(events_of(task(source, resumes=True), UnitsService(), state_dir))
    assert (report.from_journal, report.from_model) == (1, 2)


def test_a_journal_that_names_no_language_leaves_it_open(source: Path, state_dir: Path) -> None:
    events_of(task(source), UnitsService(refusing("Second.")), state_dir)
    path = journal_path(state_dir, source.with_name("report.fr.txt"))
    header = path.read_bytes().splitlines(keepends=True)[0]
    for lang, expected in (("nonsense", None), ("de", "de")):
        path.write_bytes(header + b'{"source_lang": "' + lang.encode() + b'"}\n')
        remains = read_journal(path, key=json.loads(header)["key"])
        assert remains is not None
        assert remains.known.source_lang == expected


def test_a_journal_that_cannot_be_written_costs_the_resume_and_not_the_translation(
    source: Path, state_dir: Path
) -> None:
    state_dir.mkdir(parents=True)
    (state_dir / "documents").write_text("in the way", encoding="utf-8")
    report = finished(events_of(task(source), UnitsService(), state_dir))
    assert report.from_model == 3
    assert report.notes[0].startswith("this run cannot be resumed: ")


# Files


def test_an_existing_output_stays(source: Path, state_dir: Path) -> None:
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
def test_the_original_is_never_the_output(source: Path, state_dir: Path, kind: str) -> None:
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


def test_a_full_disk_keeps_the_work_and_leaves_no_rest(
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


def test_rests_of_a_killed_run_are_removed(source: Path, state_dir: Path) -> None:
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
        (lambda path: path.write_bytes(b"PK\x03\x04\x00\x00"), "is a NUL: this is a binary file"),
        (lambda path: path.write_bytes(b"\xff\xd8\xff\xe0"), "byte 0 \\(0xff\\) is not valid UTF-8"),
    ],
    ids=["missing", "folder", "pipe", "endless link", "archive", "picture"],
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


def test_a_huge_file_is_refused_without_reading_it(tmp_path: Path, state_dir: Path) -> None:
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


def test_a_result_that_could_not_be_read_again_is_not_written(
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


# In memory


async def last_of(events: AsyncIterator[DocumentEvent]) -> DocumentEvent:
    last = [event async for event in events]
    return last[-1]


async def test_bytes_are_translated_in_memory() -> None:
    data = "".join(LINES).encode()
    service = UnitsService()
    last = await last_of(translate_bytes(data, "notes.txt", options=options(), service=service))
    assert isinstance(last, DocumentFinished)
    assert last.data.decode() == "".join(f"⟦{line.strip()}⟧\n\n" for line in LINES)
    assert (last.report.name, len(service.requests)) == ("notes.txt", 3)


async def test_bytes_that_are_no_document_are_refused() -> None:
    last = await last_of(translate_bytes(b"\0", "notes.txt", options=options(), service=UnitsService()))
    assert isinstance(last, DocumentFailed)
    assert last.error.http_status == 422


async def test_leaving_a_document_in_memory_cancels_it() -> None:
    class SilentService(UnitsService):
        def submit(self, request: TranslationRequest) -> TranslationJob:
            job = TranslationJob(request, cancel=self._cancel)
            job.put(self._settle(0, request.units[0]))
            return job

    service = SilentService()
    events = translate_bytes("".join(LINES).encode(), "notes.txt", options=options(), service=service)
    assert isinstance(await anext(events), DocumentStarted)
    assert isinstance(await anext(events), UnitSettled)
    await events.aclose()  # type: ignore[attr-defined]
    assert service.n_cancelled == 1


async def test_a_bilingual_document_in_memory() -> None:
    wanted = options(is_bilingual=True, format_name="text")
    last = await last_of(translate_bytes(b"Hello.\n", "unnamed", options=wanted, service=UnitsService(bracketed)))
    assert isinstance(last, DocumentFinished)
    assert last.data.decode() == "Hello.\n⟦Hello.⟧\n"


def test_the_words_of_a_task_are_picklable(source: Path) -> None:
    job: DocumentTask = task(source)
    assert pickle.loads(pickle.dumps(job)) == job
