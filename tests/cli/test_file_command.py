"""`hymt file` as a user runs it: results, refusals, exit statuses, and documents that come back whole."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hymt_local.cli.diagnostics import ProgressLine
from hymt_local.cli.file_report import Presentation, duration
from hymt_local.document_jobs.events import DocumentOptions, DocumentProgress, DocumentReport, DocumentTask
from hymt_local.documents.base import Languages
from hymt_local.documents.registry import FORMATS
from hymt_local.paths import Paths
from tests.cli.conftest import RunHymt
from tests.cli.test_streams import mounted, read_only

GOLDEN = Path(__file__).parents[1] / "golden" / "documents"
ECHO = ("-m", "echo", "-f", "en", "-t", "fr")
PSEUDO = ("-m", "pseudo", "-f", "en", "-t", "fr")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def report(folder: Path) -> Path:
    path = folder / "report.md"
    path.write_text("# A title\n\nSome *words* of `code`.\n", encoding="utf-8")
    return path


def objects(text: str) -> list[dict[str, object]]:
    """Return the results: one per document, whatever was told on the way."""
    return [each for each in events_of(text) if each["event"] in {"finished", "skipped", "failed", "preview"}]


def events_of(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


# Identity and disguise, through the whole program


def test_d_1_echo_gives_back_every_byte_of_every_format(hymt_here: RunHymt, folder: Path) -> None:
    samples = [path for known in FORMATS for path in sorted((GOLDEN / known.name).iterdir())]
    for path in samples:
        (folder / path.parent.name).mkdir(exist_ok=True)
        (folder / path.parent.name / path.name).write_bytes(path.read_bytes())
    done = hymt_here("file", ".", "-r", "-o", "out", *ECHO)
    assert done.status == 0
    assert all("not in the script of English" in line for line in done.err.splitlines()), "the Chinese samples"
    for path in samples:
        assert (folder / "out" / path.parent.name / path.name).read_bytes() == path.read_bytes(), path.name


def test_d_2_pseudo_changes_texts_only(hymt_here: RunHymt, report: Path) -> None:
    done = hymt_here("file", "report.md", *PSEUDO)
    assert (done.status, done.err) == (0, "")
    assert re.fullmatch(r"report\.fr\.md: 2 segments: 2 translated, in less than 1 s\n", done.text)
    written = (report.parent / "report.fr.md").read_text(encoding="utf-8")
    assert re.fullmatch(r"# ⟦.*⟧\n\n⟦.* \*.*\* .* `code`\.⟧\n", written)


def test_protected_words_stay(hymt_here: RunHymt, report: Path) -> None:
    assert hymt_here("file", "report.md", "--protect", "title", *PSEUDO).status == 0
    assert "title" in (report.parent / "report.fr.md").read_text(encoding="utf-8")


def test_f_13_what_is_in_the_target_language_stays_unless_all_is_wanted(hymt_here: RunHymt, report: Path) -> None:
    french = "Le conseil municipal se réunit mardi prochain pour discuter du nouveau budget de la ville et de l'école."
    report.write_text(f"{french}\n\nThe city council meets next Tuesday.\n", encoding="utf-8")
    for more, stays in (((), True), (("--translate-all", "--force"), False)):
        assert hymt_here("file", "report.md", *PSEUDO, *more).status == 0
        assert (french in (report.parent / "report.fr.md").read_text(encoding="utf-8")) == stays


def test_a_working_folder_that_is_gone_is_named_as_the_reason(
    hymt_here: RunHymt, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "gone").mkdir()
    monkeypatch.chdir(folder / "gone")
    (folder / "gone").rmdir()
    done = hymt_here("file", "report.md", *ECHO)
    assert (done.status, done.out) == (2, b"")
    assert done.err == "error: the working folder is gone\nhint: change to another one with `cd`\n"


def test_source_and_target_side_by_side(hymt_here: RunHymt, report: Path) -> None:
    assert hymt_here("file", "report.md", "--bilingual", "-o", "both.md", *PSEUDO).status == 0
    text = (report.parent / "both.md").read_text(encoding="utf-8")
    assert "A title" in text
    assert "⟦" in text


def test_the_format_can_be_named(hymt_here: RunHymt, folder: Path) -> None:
    (folder / "README").write_text("Hello there.\n", encoding="utf-8")
    assert hymt_here("file", "README", *PSEUDO).status == 5
    assert hymt_here("file", "README", "--format", "text", *PSEUDO).status == 0
    assert (folder / "README.fr").exists()


# What is told


def test_json_gives_a_line_per_document(hymt_here: RunHymt, report: Path) -> None:
    (report.parent / "broken.txt").write_bytes(b"\xff")
    done = hymt_here("file", "report.md", "broken.txt", "gone.md", "-o", "out/", "--json", *PSEUDO)
    first, second, third = objects(done.text)
    assert (done.status, done.err) == (5, "")
    assert first["source"] == "report.md"
    assert first["target"] == "out/report.md"
    assert (first["status"], first["segments"], first["from_model"], first["failed"]) == ("done", 2, 2, [])
    assert (first["words"], first["format"], first["model"]) == (6, "markdown", "pseudo")
    assert second["error"]["code"] == third["error"]["code"] == "document"  # type: ignore[index]


def test_json_tells_events_as_they_come(hymt_here: RunHymt, folder: Path) -> None:
    (folder / "talk.txt").write_text("Where is the station?\n\nEntropy never decreases.\n", encoding="utf-8")
    command = ("file", "talk.txt", "--json", "-m", "demo", "-f", "en", "-t", "fr")
    done = hymt_here(*command)
    events = [event for event in events_of(done.text) if event["event"] != "loading"]
    assert (done.status, done.err) == (1, "")
    assert {event["source"] for event in events} == {"talk.txt"}
    names = [event["event"] for event in events]
    assert (names[0], names[-1], set(names[1:-1])) == ("started", "finished", {"progress", "segment_failed"})
    started, *between, finished = events
    shape = {"format": "text", "segments": 2, "known_segments": 0, "characters": 45, "notes": []}
    assert started == {"event": "started", "source": "talk.txt", **shape}
    (failed,) = (event for event in between if event["event"] == "segment_failed")
    assert (failed["location"], failed["text"]) == ("line 3", "Entropy never decreases.")
    assert finished["failed"] == [
        {"id": failed["id"], "location": "line 3", "source": failed["text"], "error": failed["error"], "attempts": []}
    ]
    progress = next(event for event in between if event["event"] == "progress")
    wanted = {"done_segments", "segments", "done_characters", "characters", "characters_per_second", "seconds_left"}
    assert progress.keys() == {"event", "source", *wanted}
    assert (progress["segments"], progress["characters"]) == (2, 45)


def test_json_tells_how_far_the_model_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    presentation = Presentation(as_json=True, quiet=False, is_strict=False)
    presentation.progress(ProgressLine(), A_TASK, DocumentProgress(0, 5, 0, 80, None, None, loading=0.25))
    presentation.progress(ProgressLine(), A_TASK, DocumentProgress(1, 5, 20, 80, 312.44, 0.192))
    loading, progress = events_of(capsys.readouterr().out)
    assert loading == {"event": "loading", "source": "news.txt", "fraction": 0.25}
    assert (progress["characters_per_second"], progress["seconds_left"]) == (312.4, 0.2)


def test_d_4_a_legacy_document_becomes_utf_8_on_request(hymt_here: RunHymt, folder: Path) -> None:
    (folder / "film.srt").write_bytes("1\n00:00:01,000 --> 00:00:02,000\nПривет\n".encode("cp1251"))
    (folder / "page.html").write_bytes('<meta charset="latin1"><p>Café</p>'.encode("latin-1"))
    refused = hymt_here("file", "film.srt", "-f", "ru", "-t", "fr", "-m", "echo")
    assert (refused.status, "--encoding" in refused.err) == (5, True)
    assert hymt_here("file", "film.srt", "-f", "ru", "-t", "fr", "-m", "echo", "--encoding", "cp1251").status == 0
    assert "Привет" in (folder / "film.fr.srt").read_text(encoding="utf-8")
    assert hymt_here("file", "page.html", "-f", "en", "-t", "ru", "-m", "echo", "--utf8").status == 0
    assert (folder / "page.ru.html").read_bytes() == '<meta charset="utf-8"><p>Café</p>'.encode()
    unknown = hymt_here("file", "film.srt", "-f", "ru", "-t", "fr", "-m", "echo", "--encoding", "klingon")
    assert (unknown.status, unknown.err.splitlines()[0]) == (2, "error: unknown encoding 'klingon'")


def test_json_names_what_was_complete_before(hymt_here: RunHymt, report: Path) -> None:
    hymt_here("file", "report.md", *PSEUDO)
    done = hymt_here("file", "report.md", "--resume", "--json", *PSEUDO)
    assert events_of(done.text) == [
        {"event": "skipped", "source": "report.md", "target": "report.fr.md", "status": "complete"}
    ]


def test_a_refused_document_does_not_stop_the_others(hymt_here: RunHymt, report: Path) -> None:
    (report.parent / "broken.txt").write_bytes(b"abc\0def")
    done = hymt_here("file", "broken.txt", "report.md", *PSEUDO)
    assert done.status == 5
    assert done.err.splitlines()[0] == (
        "error: broken.txt: character 3 is a NUL: this is a binary file, or UTF-16 without its byte order mark"
    )
    assert (report.parent / "report.fr.md").exists()


def test_the_second_time_everything_comes_from_the_cache(hymt_here: RunHymt, report: Path) -> None:
    hymt_here("file", "report.md", *PSEUDO)
    done = hymt_here("file", "report.md", "-o", "again.md", "--json", *PSEUDO)
    (found,) = objects(done.text)
    assert (found["from_cache"], found["from_model"]) == (2, 0)


def test_dry_run_counts_and_writes_nothing(hymt_here: RunHymt, report: Path, paths: Paths) -> None:
    done = hymt_here("file", "report.md", "-n", *PSEUDO)
    assert (done.status, done.err) == (0, "")
    assert done.text == (
        "report.md -> report.fr.md: markdown, 6 words, 30 characters, 2 segments (2 different): 2 for the model;"
        " time unknown: never measured here\n"
    )
    assert [path.name for path in report.parent.iterdir()] == ["report.md"]
    hymt_here("file", "report.md", *PSEUDO)
    speeds = paths.state_dir / "documents" / "speeds.json"
    speeds.write_text('{"pseudo": 0.5}', encoding="utf-8")
    (found,) = objects(hymt_here("file", "report.md", "-n", "--json", *PSEUDO).text)
    assert (found["from_cache"], found["from_model"], found["seconds"]) == (2, 0, 0.0)
    (found,) = objects(hymt_here("file", "report.md", "-n", "--json", "--no-cache", *PSEUDO).text)
    assert (found["from_model"], found["model_characters"], found["seconds"]) == (2, 30, 60.0)


def test_the_formats_are_listed(hymt_here: RunHymt) -> None:
    done = hymt_here("file", "--list-formats")
    assert [line.split()[0] for line in done.text.splitlines()] == ["FORMAT", *(known.name for known in FORMATS)]
    found = json.loads(hymt_here("file", "--list-formats", "--json").out)
    assert found[0] == {"name": "text", "extensions": [".txt", ".text"], "bilingual": True}


def test_quiet_leaves_errors_only(hymt_here: RunHymt, report: Path) -> None:
    done = hymt_here("file", "report.md", "-q", *PSEUDO)
    assert (done.status, done.text, done.err) == (0, "", "")


# Refusals


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["-t", "fr"], 2, "no document was named"),
        (["report.md"], 2, "no target language"),
        (["report.md", "-t", "klingon"], 2, "unknown language 'klingon'"),
        (["report.md", "-t", "fr", "-m", "nothing"], 3, ""),
        (["report.md", "-t", "fr", "--format", "word"], 5, "unknown format 'word'"),
        (["report.md", "-t", "fr", "-o", "report.md", "--force"], 5, "the output would overwrite the original"),
        (["gone.md", "-t", "fr"], 5, "there is no file gone.md"),
        (["report.md", "report.txt", "-t", "fr", "-o", "report.md"], 2, "report.md is a file, and there are 2"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_refused(
    hymt_here: RunHymt, report: Path, arguments: list[str], status: int, message: str
) -> None:
    before = report.read_bytes()
    done = hymt_here("file", *arguments)
    assert done.status == status
    assert done.err.startswith(f"error: {message}") or message in done.err.splitlines()[0]
    assert done.err.splitlines()[1].startswith("hint: ")
    assert report.read_bytes() == before
    assert [path.name for path in report.parent.iterdir()] == ["report.md"]


def test_existing_output_needs_force(hymt_here: RunHymt, report: Path) -> None:
    (report.parent / "report.fr.md").write_text("mine", encoding="utf-8")
    done = hymt_here("file", "report.md", *PSEUDO)
    assert (done.status, done.err.splitlines()) == (
        5,
        ["error: report.md: report.fr.md exists already",
         "hint: `--force` overwrites it, `-o` names another output"],
    )  # fmt: skip
    assert hymt_here("file", "report.md", "--force", *PSEUDO).status == 0


def test_a_folder_that_cannot_be_written_is_a_store_error(hymt_here: RunHymt, report: Path) -> None:
    with read_only(report.parent / "out"):
        done = hymt_here("file", "report.md", "-o", "out/", *PSEUDO)
    assert done.status == 6
    assert done.err.startswith("error: ")


def test_a_full_disk_leaves_nothing_half_written(hymt_here: RunHymt, report: Path) -> None:
    report.write_text("Some words that take room.\n\n" * 3000, encoding="utf-8")
    with mounted(report.parent / "out", "size=64k") as is_mounted:
        if not is_mounted:
            (report.parent / "out").rmdir()
            (report.parent / "out").write_text("in the way")
        done = hymt_here("file", "report.md", "-o", "out/" if is_mounted else "out/below/", *PSEUDO)
        left = list((report.parent / "out").iterdir()) if is_mounted else []
    assert done.status == 6, done.err
    assert left == []
    resumed = hymt_here("file", "report.md", "--resume", *PSEUDO)
    assert resumed.status == 0


# Failure, resume, interruption


def test_segments_outside_the_demo_model_fail_and_the_rest_is_translated(hymt_here: RunHymt, folder: Path) -> None:
    (folder / "talk.txt").write_text("Where is the station?\n\nEntropy never decreases.\n", encoding="utf-8")
    done = hymt_here("file", "talk.txt", "-m", "demo", "-f", "en", "-t", "fr")
    assert done.status == 1
    assert (folder / "talk.fr.txt").read_text(encoding="utf-8") == "Où est la gare ?\n\nEntropy never decreases.\n"
    notes = done.err.splitlines()
    assert "note: 1 segment(s) of talk.txt kept their source text; `--resume` tries them again" in notes
    assert any(line.startswith("error: line 3: ") for line in notes)
    again = hymt_here("file", "talk.txt", "--resume", "--json", "-m", "demo", "-f", "en", "-t", "fr")
    (found,) = objects(again.text)
    assert (again.status, found["status"], found["from_earlier_run"]) == (1, "partial", 1)
    assert [unit["location"] for unit in found["failed"]] == ["line 3"]  # type: ignore[attr-defined]


def a_report(**changes: Any) -> DocumentReport:
    fields: dict[str, Any] = {
        "name": "news.txt", "format": "text", "model": "demo", "source_lang": "en", "target_lang": "fr", "n_units": 3,
        "words": 9, "characters": 50, "from_journal": 0, "from_cache": 0, "from_model": 3, "passed_through": 0,
        "retried": 0, "failed": (), "findings": {"numbers": 2}, "n_warnings": 2, "elapsed_s": 75.0,
    }  # fmt: skip
    return DocumentReport(**{**fields, **changes})


A_TASK = DocumentTask(Path("news.txt"), Path("news.fr.txt"), DocumentOptions(Languages("en", "fr")))


@pytest.mark.parametrize(("is_strict", "status"), [(False, 0), (True, 1)])
def test_findings_are_told_and_count_when_strict(
    capsys: pytest.CaptureFixture[str], is_strict: bool, status: int
) -> None:
    presentation = Presentation(as_json=False, quiet=False, is_strict=is_strict)
    assert presentation.finished(A_TASK, a_report()) == status
    out, err = capsys.readouterr()
    assert out == "news.fr.txt: 3 segments: 3 translated, in 75 s\n"
    assert err == "note: news.txt: to be looked at: numbers 2\n"
    assert presentation.finished(A_TASK, a_report(findings={"length": 1}, n_warnings=0)) == 0


def test_the_progress_line_has_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[tuple[str, float]] = []
    line = ProgressLine()
    monkeypatch.setattr(line, "show", lambda label, fraction: lines.append((label, fraction)))
    presentation = Presentation(as_json=False, quiet=False, is_strict=False)
    for event in (
        DocumentProgress(0, 5000, 0, 80_000, None, None, loading=0.25),
        DocumentProgress(0, 5000, 0, 80_000, None, None),
        DocumentProgress(1250, 5000, 20_000, 80_000, 312.4, 192.0),
    ):
        presentation.progress(line, A_TASK, event)
    assert lines == [
        ("loading the model", 0.25),
        ("news.txt, 0 of 5,000", 0.0),
        ("news.txt, 1,250 of 5,000, 312 characters/s, 3 min left", 0.25),
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "less than 1 s"), (40, "40 s"), (99.4, "99 s"), (100, "2 min"), (5400, "90 min"), (12_000, "3 h 20 min")],
)
def test_times_are_told_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


INTERRUPTED = """
import os, signal, sys
from hymt_local.cli import file
from hymt_local.cli.app import run
from hymt_local.document_jobs.events import UnitSettled
progress = file.Presentation.progress
def interrupt(self, line, task, event):
    if event.done_units:
        os.kill(os.getpid(), signal.SIGINT)
file.Presentation.progress = interrupt
sys.exit(run(sys.argv[1:]))
"""


def test_ctrl_c_keeps_the_work_and_says_how_to_go_on(
    report: Path, process_environ: Mapping[str, str], hymt_here: RunHymt
) -> None:
    report.write_text("".join(f"Sentence {n}.\n\n" for n in range(300)), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "file", "report.md", *PSEUDO],
        capture_output=True,
        env={**os.environ, **process_environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (130, b"")
    assert done.stderr.decode().splitlines() == [
        "note: what is translated so far is kept: the same command with `--resume` goes on from there",
        "error: interrupted",
    ]
    assert not (report.parent / "report.fr.md").exists()
    (found,) = objects(hymt_here("file", "report.md", "--resume", "--json", *PSEUDO).text)
    assert found["segments"] == 300
    assert found["from_earlier_run"] > 0  # type: ignore[operator]
    assert (report.parent / "report.fr.md").read_text(encoding="utf-8").count("⟦") == 300


def test_a_killed_run_is_resumed(report: Path, process_environ: Mapping[str, str], hymt_here: RunHymt) -> None:
    report.write_text("".join(f"Sentence {n}.\n\n" for n in range(300)), encoding="utf-8")
    program = INTERRUPTED.replace("SIGINT", "SIGKILL")
    environ = {**os.environ, **process_environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, "file", "report.md", *PSEUDO]
    done = subprocess.run(command, capture_output=True, env=environ, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert hymt_here("file", "report.md", "--resume", "-q", *PSEUDO).status == 0
    assert hymt_here("file", "report.md", "-o", "whole.md", "-q", *PSEUDO).status == 0
    assert (report.parent / "report.fr.md").read_bytes() == (report.parent / "whole.md").read_bytes()


# With the demo model, end to end

PHRASES = {
    "Good morning.": "Bonjour.",
    "Where is the station?": "Où est la gare ?",
    "Thank you very much.": "Merci beaucoup.",
}
DEMO_DOCUMENTS = {
    "talk.srt": "1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>{0}</i>\r\n\r\n2\r\n00:00:03,000 --> 00:00:04,000\r\n{1}\r\n",
    "talk.vtt": "WEBVTT\n\n00:01.000 --> 00:02.000 align:start\n{0}\n\nNOTE kept\n\n00:03.000 --> 00:04.000\n{1}\n",
    "talk.md": "# {0}\n\n* {1}\n* **{2}**\n\n```\nGood morning.\n```\n",
    "talk.html": '<!DOCTYPE html>\n<p class="a">{0}<!-- kept --></p>\n<ul><li>{1}<li><b>{2}</b></ul>\n',
    "talk.json": '{{\n  "a": "{0}",\n  "b": {{"c": "{1}"}},\n  "n": 1e3\n}}',
    "talk.txt": "{0}\n\n  {1}\n\t{2}",
}


@pytest.mark.parametrize("name", DEMO_DOCUMENTS)
def test_documents_of_phrasebook_sentences_come_back_translated_and_whole(
    hymt_here: RunHymt, folder: Path, name: str
) -> None:
    template = DEMO_DOCUMENTS[name]
    (folder / name).write_text(template.format(*PHRASES), encoding="utf-8", newline="")
    done = hymt_here("file", name, "-m", "demo", "-f", "en", "-t", "fr", "-o", f"out-{name}")
    assert done.status == 0, done.err
    translated = (folder / f"out-{name}").read_bytes().decode()
    assert translated == template.format(*PHRASES.values())


def test_a_catalogue_of_phrasebook_sentences_is_filled(hymt_here: RunHymt, folder: Path) -> None:
    header = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    messages = "".join(f'\n#: app.py:1\nmsgid "{source}"\nmsgstr ""\n' for source in PHRASES)
    (folder / "talk.po").write_text(header + messages, encoding="utf-8")
    done = hymt_here("file", "talk.po", "-m", "demo", "-f", "en", "-t", "fr")
    assert done.status == 0, done.err
    filled = (folder / "talk.fr.po").read_text(encoding="utf-8")
    assert filled.count("#, fuzzy") == len(PHRASES)
    final = hymt_here("file", "talk.po", "-m", "demo", "-f", "en", "-t", "fr", "--no-fuzzy", "-o", "final.po")
    assert (final.status, "fuzzy" in (folder / "final.po").read_text(encoding="utf-8")) == (0, False)
    for source, target in PHRASES.items():
        assert re.search(rf'msgid "{re.escape(source)}"\nmsgstr "{re.escape(target)}"\n', filled)


def test_dry_run_tells_what_the_phrasebook_would_refuse_from_what_passes_through(
    hymt_here: RunHymt, folder: Path
) -> None:
    known = next(iter(PHRASES))
    (folder / "talk.md").write_text(f"- {known}\n- cheese and mountains\n- {known}\n", encoding="utf-8")
    done = hymt_here("file", "talk.md", "-m", "demo", "-f", "en", "-t", "fr", "-n")
    assert ": 2 for the model, 1 not covered by the demo phrasebook;" in done.text
    (found,) = objects(hymt_here("file", "talk.md", "-m", "demo", "-f", "en", "-t", "fr", "-n", "--json").text)
    assert (found["from_model"], found["refused"], found["passed_through"]) == (2, 1, 0)


def test_one_segment_is_singular(hymt_here: RunHymt, folder: Path) -> None:
    (folder / "one.txt").write_text("Hello.\n", encoding="utf-8")
    assert hymt_here("file", "one.txt", *PSEUDO).text.startswith("one.fr.txt: 1 segment: 1 translated, ")
