"""One document at a time: what is asked, what is written, what is reported."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from hymt_local.document_jobs.events import DocumentProgress, DocumentStarted, DocumentTask, UnitSettled
from hymt_local.document_jobs.run import run_document
from hymt_local.document_jobs.work import DocumentWork, Known
from hymt_local.documents.base import Languages
from hymt_local.documents.registry import format_named
from hymt_local.errors import EngineLoadError
from hymt_local.events import Pivot, TranslationRequest
from hymt_local.jobs import TranslationJob
from tests.document_services import (
    LINES,
    BrokenService,
    UnitsService,
    events_of,
    finished,
    options,
    refusal,
    refusing,
    task,
)


def test_a_document_is_translated_into_another_file(source: Path, state_dir: Path) -> None:
    before = source.read_bytes()
    events = events_of(task(source), UnitsService(), state_dir)
    assert source.with_name("report.fr.txt").read_text(encoding="utf-8") == "⟦First.⟧\n\n⟦Second.⟧\n\n⟦First.⟧\n\n12\n"
    assert source.read_bytes() == before
    assert events[0] == DocumentStarted("text", 3, 0, len("First.Second.First."))
    assert [event.id for event in events if isinstance(event, UnitSettled)] == ["line-1", "line-5", "line-3"]


def test_d_9_the_report_adds_up(source: Path, state_dir: Path) -> None:
    report = finished(events_of(task(source), UnitsService(refusing("Second.")), state_dir))
    assert (report.n_units, report.words, report.characters) == (3, 3, 19)
    assert (report.from_journal, report.from_cache, report.from_model, report.passed_through) == (0, 0, 2, 0)
    assert [(unit.id, unit.location, unit.source) for unit in report.failed] == [("line-3", "line 3", "Second.")]
    assert report.failed[0].error.code == "segment_rejected"
    assert (report.model, report.source_lang, report.target_lang, report.format) == ("fake", "en", "fr", "text")


def test_d_9_the_report_names_texts_that_could_be_no_units(tmp_path: Path, state_dir: Path) -> None:
    path = tmp_path / "menu.json"
    bad = {f"bad{n}": "{n, plural, one {a file}}" for n in range(12)}
    path.write_text(json.dumps({"good": "{n, plural, other {a file}}", **bad}), encoding="utf-8")
    notes = finished(events_of(task(path), UnitsService(), state_dir)).notes
    assert notes[0].startswith("not translated: key bad0: it cannot be read as a message: n has no branch `other`")
    assert notes[10:] == ("2 more texts are not translated for such reasons",)


def test_s_7_equal_units_are_asked_once_across_the_whole_document(tmp_path: Path, state_dir: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("".join(["Again.\n\n", "Other.\n\n"] * 400), encoding="utf-8")
    service = UnitsService()
    report = finished(events_of(task(path), service, state_dir))
    assert report.from_model == 800
    assert service.asked == ["Again.", "Other."]  # though not everywhere after the same text


def test_s_7_equal_cues_are_asked_once_with_the_context_of_the_first(tmp_path: Path, state_dir: Path) -> None:
    lines = ["Who is there?", "Hey.", "It rains.", "Hey.", "Hey.", "Who is there?"]
    path = tmp_path / "film.srt"
    cues = (f"{n}\n00:00:0{n},000 --> 00:00:0{n},900\n{line}\n" for n, line in enumerate(lines))
    path.write_text("\n".join(cues), encoding="utf-8")
    service = UnitsService()
    assert finished(events_of(task(path), service, state_dir)).from_model == len(lines)
    asked = [(unit.text, unit.context) for request in service.requests for unit in request.units]
    before = ("Who is there?", "Hey.")
    assert asked == [("Who is there?", ()), ("Hey.", before[:1]), ("It rains.", before)]
    written = path.with_suffix(".fr.srt").read_text(encoding="utf-8")
    assert [line for line in written.splitlines() if "⟦" in line] == [f"⟦{line}⟧" for line in lines]


def test_s_7_a_unit_that_an_ended_run_did_not_reach_gets_what_its_equals_have() -> None:
    document = format_named("text").read(b"First.\n\nSecond.\n\nFirst.\n\nFirst.\n", Languages("en", "fr"))
    known = Known({"line-1": "Premier."}, failed=frozenset({"line-7"}))
    work = DocumentWork(document, options(), known=known)
    batch = work.next_batch()
    assert batch is not None
    assert [[unit.id for unit in group] for group in batch.groups] == [["line-3"], ["line-7"]]
    assert work.merge().data.decode() == "Premier.\n\nSecond.\n\nPremier.\n\nFirst.\n"


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


def test_the_words_of_a_task_are_picklable(source: Path) -> None:
    job: DocumentTask = task(source)
    assert pickle.loads(pickle.dumps(job)) == job
