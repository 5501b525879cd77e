"""How `hymt file` tells what it does: a progress line and one result per document in words, or events as JSON lines.

Each line of JSON has the name of its event, and the source as the user named it: `started`, `loading`, `progress`,
`segment_retried` and `segment_failed` while a document is translated, then exactly one of `finished`, `skipped` and
`failed`; of a dry run `preview` or `failed`. What goes wrong before the first document has no event, but `error` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hymt_local.cli import output
from hymt_local.cli.diagnostics import ProgressLine, print_error, print_note
from hymt_local.errors import EXIT_DONE, EXIT_SEGMENTS_FAILED, ErrorReport

if TYPE_CHECKING:
    from hymt_local.document_jobs.events import (
        DocumentFailed,
        DocumentProgress,
        DocumentReport,
        DocumentStarted,
        DocumentTask,
        UnitSettled,
    )
    from hymt_local.document_jobs.preview import Preview

SHOWN_FAILURES = 3
_NAME_CELLS = 32


@dataclass(frozen=True, slots=True)
class Presentation:
    """How results are shown."""

    as_json: bool
    quiet: bool
    is_strict: bool

    def note(self, text: str) -> None:
        """Print a note, unless the user wants none."""
        if not self.quiet:
            print_note(text)

    def started(self, task: DocumentTask, event: DocumentStarted) -> None:
        """Tell a program what was read."""
        if self.as_json:
            found = {"format": event.format, "segments": event.n_units, "known_segments": event.n_known}
            self._event("started", task, found | {"characters": event.characters, "notes": list(event.notes)})

    def settled(self, task: DocumentTask, event: UnitSettled) -> None:
        """Tell a program at once what kept its source text, and what took more than one attempt."""
        if not self.as_json or not event.has_history:
            return
        found: dict[str, Any] = {"id": event.id, "location": event.location, "text": event.source}
        attempts = {"attempts": output.attempt_objects(event.attempts)}
        if event.error:
            self._event("segment_failed", task, found | {"error": _error_object(event.error)} | attempts)
        else:
            self._event("segment_retried", task, found | {"target": event.target} | attempts)

    def progress(self, line: ProgressLine, task: DocumentTask, event: DocumentProgress) -> None:
        """Draw how far a document is, or tell a program."""
        if self.as_json:
            self._progress_event(task, event)
            return
        if event.loading is not None:
            line.show("loading the model", event.loading)
            return
        parts = [_shortened(task.source_path.name), f"{event.done_units:,} of {event.n_units:,}"]
        if event.rate is not None:
            parts.append(f"{event.rate:,.0f} characters/s")
        if event.eta_s is not None:
            parts.append(f"{duration(event.eta_s)} left")
        line.show(", ".join(parts), event.done_characters / max(event.characters, 1))

    def _progress_event(self, task: DocumentTask, event: DocumentProgress) -> None:
        if event.loading is not None:
            self._event("loading", task, {"fraction": round(event.loading, 3)})
            return
        found = {"done_segments": event.done_units, "segments": event.n_units}
        found |= {"done_characters": event.done_characters, "characters": event.characters}
        times = {"characters_per_second": event.rate, "seconds_left": event.eta_s}
        rounded = {name: None if value is None else round(value, 1) for name, value in times.items()}
        self._event("progress", task, {**found, **rounded})

    def _event(self, name: str, task: DocumentTask, found: Mapping[str, Any]) -> None:
        output.write_json_line({"event": name, "source": str(task.source_path), **found})

    def finished(self, task: DocumentTask, report: DocumentReport) -> int:
        """Show what became of a document; returns its exit status."""
        is_strict_failure = self.is_strict and report.n_warnings > 0
        status = EXIT_SEGMENTS_FAILED if report.failed or is_strict_failure else EXIT_DONE
        if self.as_json:
            self._event("finished", task, _as_object(task, report, status=status))
            return status
        if not self.quiet:
            output.write_text(f"{task.target_path}: {_summary(report)}\n")
        for text in report.notes:
            self.note(f"{task.source_path}: {text}")
        if report.findings:
            counts = ", ".join(f"{code} {count}" for code, count in report.findings.items())
            self.note(f"{task.source_path}: to be looked at: {counts}")
        self._failures(task, report)
        return status

    def skipped(self, task: DocumentTask) -> int:
        """Say that an earlier run was complete."""
        if self.as_json:
            self._event("skipped", task, {"target": str(task.target_path), "status": "complete"})
        elif not self.quiet:
            output.write_text(f"{task.target_path}: complete since an earlier run\n")
        return EXIT_DONE

    def failed(self, task: DocumentTask, failure: DocumentFailed) -> int:
        """Say why no document came out."""
        error = failure.error
        if failure.n_kept:
            kept = f"{failure.n_kept} segments are kept, `--resume` goes on from there"
            error = replace(error, hint=f"{error.hint}; {kept}" if error.hint else kept)
        return self.refused(task, error)

    def refused(self, task: DocumentTask, error: ErrorReport) -> int:
        """Show an error of one document; returns its exit status."""
        if self.as_json:
            self._event("failed", task, {"target": str(task.target_path), "error": _error_object(error)})
        else:
            print_error(_with_name(error, task.source_path))
        return error.exit_status

    def preview(self, found: Preview) -> None:
        """Show what would be done."""
        if self.as_json:
            output.write_json_line({"event": "preview", **asdict(found)})
            return
        time = f"about {duration(found.seconds)}" if found.seconds is not None else "time unknown: never measured here"
        counts = _counts(
            (found.from_model, "for the model"),
            (found.from_cache, "from the cache"),
            (found.from_journal, "from an earlier run"),
            (found.passed_through, "to pass through"),
            (found.refused, "not covered by the demo phrasebook"),
        )
        output.write_text(
            f"{found.source} -> {found.target}: {found.format}, {found.words:,} words, {found.characters:,} characters,"
            f" {output.counted(found.units, 'segment')} ({found.different:,} different): {counts}; {time}\n"
        )

    def _failures(self, task: DocumentTask, report: DocumentReport) -> None:
        if not report.failed:
            return
        print_note(
            f"{len(report.failed)} segment(s) of {task.source_path} kept their source text; `--resume` tries them again"
        )
        for unit in report.failed[:SHOWN_FAILURES]:
            print_error(replace(unit.error, message=f"{unit.location}: {unit.error.message}"))


def _with_name(error: ErrorReport, path: Path) -> ErrorReport:
    """Say which document an error is about, where its message does not."""
    if path.name in error.message:
        return error
    return replace(error, message=f"{path}: {error.message}")


def _summary(report: DocumentReport) -> str:
    counts = _counts(
        (report.from_model, "translated"),
        (report.from_cache, "from the cache"),
        (report.from_journal, "from an earlier run"),
        (report.passed_through, "passed through"),
        (len(report.failed), "failed"),
    )
    way = f" by way of {report.pivot_lang}" if report.pivot_lang else ""
    return f"{output.counted(report.n_units, 'segment')}: {counts}{way}, in {duration(report.elapsed_s)}"


def _counts(*counts: tuple[int, str]) -> str:
    return ", ".join(f"{count:,} {what}" for count, what in counts if count) or "nothing to translate"


def _as_object(task: DocumentTask, report: DocumentReport, *, status: int) -> dict[str, Any]:
    return {
        "target": str(task.target_path),
        "status": "partial" if report.failed else "done",
        "exit_status": status,
        "format": report.format,
        "model": report.model,
        "source_lang": report.source_lang,
        "target_lang": report.target_lang,
        "pivot_lang": report.pivot_lang,
        "segments": report.n_units,
        "words": report.words,
        "characters": report.characters,
        "from_model": report.from_model,
        "from_cache": report.from_cache,
        "from_earlier_run": report.from_journal,
        "passed_through": report.passed_through,
        "retried": report.retried,
        "findings": report.findings,
        "tokens": {"prompt": report.usage.prompt_tokens, "output": report.usage.output_tokens},
        "seconds": round(report.elapsed_s, 3),
        "notes": list(report.notes),
        "failed": [
            {
                "id": unit.id,
                "location": unit.location,
                "source": unit.source,
                "error": _error_object(unit.error),
                "attempts": output.attempt_objects(unit.attempts),
            }
            for unit in report.failed
        ],
    }


def _error_object(error: ErrorReport) -> dict[str, str]:
    return {"code": error.code, "message": error.message, "hint": error.hint}


def duration(seconds: float) -> str:
    """Return a time as people say it: `40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 1:
        return "less than 1 s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _shortened(name: str) -> str:
    return name if len(name) <= _NAME_CELLS else f"{name[: _NAME_CELLS - 1]}…"
