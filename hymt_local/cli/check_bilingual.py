"""`hymt check`: what is wrong with translations that exist already."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hymt_local.cli import output
from hymt_local.errors import EXIT_DONE, EXIT_SEGMENTS_FAILED, DocumentError, UsageError
from hymt_local.segment import Finding, Severity

if TYPE_CHECKING:
    from hymt_local.bilingual import BilingualText, CheckedUnit

_SHOWN_CHARACTERS = 120
_SAMPLE_UNITS = 200


@dataclass(frozen=True, slots=True)
class _Report:
    """One file, checked."""

    path: str
    text: BilingualText
    source_lang: str | None
    target_lang: str | None
    units: Sequence[CheckedUnit]

    @property
    def findings(self) -> list[Finding]:
        return [finding for unit in self.units for finding in unit.findings]


@click.command(name="check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "-t", "--to", "target_lang", metavar="LANG", help="Language of the translations.  [default: as the file says]"
)
@click.option("-f", "--from", "source_lang", metavar="LANG", help="Language of the sources.  [default: detect it]")
@click.option("--texts", is_flag=True, help="FILE... is two texts: a source, and its translation line by line.")
@click.option("--ignore", "ignored", multiple=True, metavar="CODE", help="Leave out findings of this kind; repeatable.")
@click.option("--strict", is_flag=True, help="Exit with status 1 when there are findings.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check_command(
    files: tuple[str, ...],
    target_lang: str | None,
    source_lang: str | None,
    texts: bool,
    ignored: tuple[str, ...],
    strict: bool,
    as_json: bool,
) -> int:
    """Check existing translations.

    FILE is a gettext catalogue (.po), or a table (.tsv, .csv) with the source in the first column and its translation
    in the second. What is looked at: placeholders, tags, numbers, languages, lengths, and what models leave behind. No
    model is needed.
    """
    from hymt_local.language import match_language

    if texts and len(files) != 2:
        raise UsageError(f"--texts takes two files, not {len(files)}", hint="hymt check --texts source.txt target.txt")
    wanted = [match_language(tag) if tag else None for tag in (source_lang, target_lang)]
    groups = [files] if texts else [(path,) for path in files]
    reports = [_check(group, source_lang=wanted[0], target_lang=wanted[1], ignored=ignored) for group in groups]
    if as_json:
        output.write_json(_as_json(reports))
    else:
        output.write_text("".join(_lines(reports)))
    has_findings = any(finding.severity is not Severity.INFO for report in reports for finding in report.findings)
    return EXIT_SEGMENTS_FAILED if strict and has_findings else EXIT_DONE


def _check(
    paths: Sequence[str], *, source_lang: str | None, target_lang: str | None, ignored: Iterable[str]
) -> _Report:
    from hymt_local.bilingual import CheckedUnit, check_units, read_bilingual
    from hymt_local.detect import LanguageDetector

    detector = LanguageDetector()

    data = [_read(path) for path in paths]
    try:
        text = read_bilingual(data[0], paths[0], translation=data[1] if len(data) > 1 else None)
    except DocumentError as error:
        raise _with_names(error, paths) from error
    sources, targets = (
        zip(*((unit.source, unit.target) for unit in text.units[:_SAMPLE_UNITS]), strict=True)
        if text.units
        else ((), ())
    )
    source_lang = source_lang or _language_of(sources, detector)
    target_lang = target_lang or text.target_lang or _language_of(targets, detector)
    found = check_units(text, source_lang=source_lang, target_lang=target_lang, identify=detector.identify)
    hidden = set(ignored)
    kept = [CheckedUnit(each.unit, [f for f in each.findings if f.code not in hidden]) for each in found]
    return _Report(" ".join(paths), text, source_lang, target_lang, [each for each in kept if each.findings])


def _language_of(texts: Sequence[str], detector: Any) -> str | None:
    found = detector.detect("\n".join(texts)) if texts else None
    return str(found.tag) if found else None


def _with_names(error: DocumentError, paths: Sequence[str]) -> DocumentError:
    """Say which file of several an error is about, where its message does not."""
    if any(Path(path).name in error.message for path in paths):
        return error
    return DocumentError(f"{', '.join(paths)}: {error.message}", hint=error.hint)


def _read(path: str) -> bytes:
    from hymt_local.document_jobs.files import read_source

    source = Path(path)
    try:
        if path and stat.S_ISFIFO(source.stat().st_mode):  # what `<(command)` of a shell names
            return source.read_bytes()
    except OSError:
        pass  # reading it the other way says why
    try:
        return read_source(source)
    except DocumentError as error:
        raise DocumentError(error.message, hint="name a catalogue, a table or a text") from error


def _lines(reports: Sequence[_Report]) -> Iterable[str]:
    for report in reports:
        for unit in report.units:
            for finding in unit.findings:
                yield f"{report.path}:{unit.unit.location}: {finding.severity} [{finding.code}] {finding.message}\n"
            yield f"    {_shown(unit.unit.source)}\n    {_shown(unit.unit.target)}\n"
        counts = Counter(finding.severity for finding in report.findings)
        n_errors, n_warnings = counts[Severity.ERROR], counts[Severity.WARNING]
        yield (
            f"{report.path}: {output.counted(len(report.text.units), 'translation')}"
            f" from {report.source_lang or 'und'} to {report.target_lang or 'und'},"
            f" {output.counted(n_errors, 'error')}, {output.counted(n_warnings, 'warning')}\n"
        )


def _shown(text: str) -> str:
    line = text.replace("\n", "↵")
    return line if len(line) <= _SHOWN_CHARACTERS else line[: _SHOWN_CHARACTERS - 1] + "…"


def _as_json(reports: Sequence[_Report]) -> dict[str, Any]:
    return {
        "files": [
            {
                "path": report.path,
                "source_lang": report.source_lang,
                "target_lang": report.target_lang,
                "translations": len(report.text.units),
                "untranslated": report.text.n_untranslated,
                "errors": sum(finding.severity is Severity.ERROR for finding in report.findings),
                "warnings": sum(finding.severity is Severity.WARNING for finding in report.findings),
                "findings": [
                    {"location": unit.unit.location, "source": unit.unit.source, "target": unit.unit.target}
                    | output.finding_object(finding)
                    for unit in report.units
                    for finding in unit.findings
                ],
            }
            for report in reports
        ]
    }
