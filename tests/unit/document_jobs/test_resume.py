"""What the journal keeps of a document, and what a resumed job makes of it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from hymt_local.document_jobs.events import DocumentSkipped
from hymt_local.document_jobs.journal import journal_path, read_journal
from hymt_local.events import Pivot
from tests.document_services import LINES, UnitsService, events_of, finished, options, refusal, refusing, task


def test_d_5_f_14_resume_asks_only_for_what_failed(source: Path, state_dir: Path) -> None:
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
        pytest.param({"options": options(keeps_translated=False)}, id="translated segments"),
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
    assert (report.from_journal, report.from_model) == (2, 1)  # the first line of the journal is good for two units


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
