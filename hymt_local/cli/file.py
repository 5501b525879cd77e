"""`hymt file PATH...`: documents."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from hymt_local.application import Application, open_application
from hymt_local.cli import output
from hymt_local.cli.diagnostics import ProgressLine
from hymt_local.cli.file_report import Presentation
from hymt_local.cli.interruption import closing
from hymt_local.cli.translate import AUTO, sampling_of
from hymt_local.errors import (
    EXIT_DONE,
    CancelledError,
    DocumentError,
    EngineError,
    LanguageError,
    ModelError,
    ServerError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hymt_local.document_jobs.events import DocumentTask, LastDocumentEvent
    from hymt_local.jobs import Service

_SAMPLE_BYTES = 8000
_ENDS_THE_RUN = frozenset(kind.exit_status for kind in (ModelError, EngineError, ServerError, CancelledError))
"""What fails one document for such a reason would fail the next one too."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The options that shape the tasks."""

    output: str | None
    format_name: str | None
    is_to_utf8: bool
    encoding: str | None
    is_bilingual: bool
    marks_fuzzy: bool
    protect: tuple[str, ...]
    keeps_translated: bool
    is_recursive: bool
    replaces: bool
    resumes: bool


@click.command(name="file")
@click.argument("paths", nargs=-1, metavar="PATH...")
@click.option(
    "-t",
    "--to",
    "target_lang",
    metavar="LANG",
    help="Target language: a tag (fr, zh-Hant) or a name (French, 法语).  [default: the setting target_lang]",
)
@click.option("-f", "--from", "source_lang", metavar="LANG", help="Source language; `auto`, the default, detects it.")
@click.option(
    "-m",
    "--model",
    metavar="MODEL",
    help="Model, as `hymt models list` names it; the one marked `*` there when not given.",
)
@click.option(
    "-o",
    "--output",
    "out",
    metavar="OUT",
    help="File, or a folder for several documents.  [default: beside each source, as report.fr.md]",
)
@click.option("--format", "format_name", metavar="NAME", help="Format, whatever the file's name says.")
@click.option("--utf8", "to_utf8", is_flag=True, help="Write UTF-8, whatever the document is in, and declare it.")
@click.option(
    "--encoding",
    "encoding",
    metavar="NAME",
    help="What a document is in that does not say so (gb18030, cp1251); it becomes UTF-8.",
)
@click.option("--bilingual", is_flag=True, help="Write source and translation side by side.")
@click.option(
    "--protect", "protected", multiple=True, metavar="WORD", help="Leave a name or term as it is; repeatable."
)
@click.option(
    "--via",
    "pivot",
    type=click.Choice(["zh", "auto", "off"]),
    help="Translate through Chinese; auto: from or into a minority language of China.  [default: off]",
)
@click.option("--translate-all", is_flag=True, help="Translate what is in the target language already, too.")
@click.option("--no-fuzzy", is_flag=True, help="Write gettext translations as final, not marked `fuzzy` for review.")
@click.option("-r", "--recursive", is_flag=True, help="Take the folders below a folder too; their tree is kept.")
@click.option("--force", is_flag=True, help="Overwrite existing output.")
@click.option("--resume", is_flag=True, help="Go on where an earlier run ended, and try again what failed in it.")
@click.option("--strict", is_flag=True, help="Exit with status 1 for findings of the checks, too.")
@click.option("-n", "--dry-run", is_flag=True, help="Count segments and estimate the time; translate nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print events and results as JSON, an object per line.")
@click.option("--no-cache", is_flag=True, help="Do not use or fill the memory of past translations.")
@click.option("-q", "--quiet", is_flag=True, help="No results and no notes; errors still appear.")
@click.option("--list-formats", is_flag=True, help="Show the formats, and end.")
def file_command(
    paths: tuple[str, ...],
    target_lang: str | None,
    source_lang: str | None,
    model: str | None,
    out: str | None,
    format_name: str | None,
    to_utf8: bool,
    encoding: str | None,
    bilingual: bool,
    protected: tuple[str, ...],
    pivot: str | None,
    translate_all: bool,
    no_fuzzy: bool,
    recursive: bool,
    force: bool,
    resume: bool,
    strict: bool,
    dry_run: bool,
    as_json: bool,
    no_cache: bool,
    quiet: bool,
    list_formats: bool,
) -> int:
    """Translate documents.

    PATH is a file, a folder or a pattern such as 'docs/*.md'. Only texts change: markup, numbers, timings, line ends
    and encoding stay as they are. The source is never written, and existing output only with --force. A segment that
    cannot be translated keeps its source text; the exit status is 1 then, and --resume tries it again.
    """
    if list_formats:
        return _list_formats(as_json=as_json)
    flags = {
        "model": model,
        "source_lang": source_lang,
        "target_lang": target_lang,
        "pivot": pivot,
        "cache": False if no_cache else None,
    }
    app = open_application(os.environ, flags=flags)
    wish = Wish(
        output=out,
        format_name=format_name,
        is_to_utf8=to_utf8,
        encoding=encoding,
        is_bilingual=bilingual,
        marks_fuzzy=not no_fuzzy,
        keeps_translated=not translate_all,
        protect=protected,
        is_recursive=recursive,
        replaces=force,
        resumes=resume,
    )
    presentation = Presentation(as_json=as_json, quiet=quiet, is_strict=strict)
    tasks = _tasks(app, paths, wish=wish, presentation=presentation)
    if dry_run:
        return _preview(app, tasks, presentation=presentation)
    return _translate(app, tasks, presentation=presentation)


def _list_formats(*, as_json: bool) -> int:
    from hymt_local.documents.registry import FORMATS

    if as_json:
        output.write_json(
            [
                {"name": known.name, "extensions": known.extensions, "bilingual": known.can_be_bilingual}
                for known in FORMATS
            ]
        )
        return EXIT_DONE
    rows = [(known.name, " ".join(known.extensions), "yes" if known.can_be_bilingual else "no") for known in FORMATS]
    output.write_table(rows, header=("FORMAT", "FILES", "BILINGUAL"))
    return EXIT_DONE


def _tasks(app: Application, paths: Sequence[str], *, wish: Wish, presentation: Presentation) -> list[DocumentTask]:
    """Return what is to be done, all of it checked as far as names and settings go.

    Raises:
        UsageError: no target language, no document, or two documents for one output.
        LanguageError: an unknown language.
        ModelError: the model is not installed.
    """
    from hymt_local.document_jobs.selection import place_targets, select
    from hymt_local.documents.registry import format_named
    from hymt_local.documents.text_encoding import is_encoding
    from hymt_local.language import match_language

    if not paths:
        raise UsageError("no document was named", hint="try: hymt file report.md -t fr")
    if app.settings.target_lang is None:
        raise UsageError(
            "no target language", hint="add `-t fr`, or set one for good: `hymt config set target_lang fr`"
        )
    target_lang = match_language(app.settings.target_lang)
    if wish.format_name is not None:
        format_named(wish.format_name)
    if wish.encoding is not None and not is_encoding(wish.encoding):
        raise UsageError(f"unknown encoding {wish.encoding!r}", hint="try gb18030, big5, cp1251, latin-1, utf-8")
    selection = select(paths, is_recursive=wish.is_recursive, takes_all=wish.format_name is not None)
    if selection.n_unknown:
        presentation.note(f"{selection.n_unknown} file(s) of other types are left out")
    pairs = place_targets(selection.files, target_lang=target_lang, output=wish.output)
    return [_task(app, *pair, target_lang=target_lang, wish=wish) for pair in pairs]


def _task(app: Application, source: Path, target: Path, *, target_lang: str, wish: Wish) -> DocumentTask:
    from hymt_local.document_jobs.events import DocumentOptions, DocumentTask
    from hymt_local.documents.base import Languages
    from hymt_local.events import Pivot
    from hymt_local.language import match_language

    settings = app.settings
    source_lang = None if settings.source_lang in {None, AUTO} else match_language(settings.source_lang)
    model = app.model_for(_sample(app, source), source_lang=source_lang, target_lang=target_lang)
    options = DocumentOptions(
        Languages(source_lang, target_lang),
        model=model,
        sampling=sampling_of(app),
        use_cache=settings.cache,
        format_name=wish.format_name,
        is_to_utf8=wish.is_to_utf8,
        encoding=wish.encoding,
        is_bilingual=wish.is_bilingual,
        marks_fuzzy=wish.marks_fuzzy,
        protect=wish.protect,
        keeps_translated=wish.keeps_translated,
        pivot=Pivot(settings.pivot),
    )
    identity = app.resolve_model(model).fingerprint
    return DocumentTask(source, target, options, model_identity=identity, replaces=wish.replaces, resumes=wish.resumes)


def _sample(app: Application, source: Path) -> str:
    """Return the beginning of a document where a language pair may have a model of its own, else nothing."""
    if not app.settings.pair_models or not source.is_file():  # to open a pipe would wait for whoever writes to it
        return ""
    try:
        with source.open("rb") as stream:
            return stream.read(_SAMPLE_BYTES).decode("utf-8", errors="ignore")
    except (OSError, ValueError):  # the job will say what is wrong with it
        return ""


def _preview(app: Application, tasks: Sequence[DocumentTask], *, presentation: Presentation) -> int:
    from hymt_local.document_jobs.preview import preview_document
    from hymt_local.document_jobs.speeds import read_speeds

    status = EXIT_DONE
    state_dir = app.paths.state_dir
    speeds = read_speeds(state_dir)
    for task in tasks:
        name = app.resolve_model(task.options.model).ref
        try:
            found = preview_document(task, app.foresee, state_dir=state_dir, speeds=speeds, model=name)
        except (DocumentError, LanguageError) as error:
            status = max(status, presentation.refused(task, error.report()))
        else:
            presentation.preview(found)
    return status


def _translate(app: Application, tasks: Sequence[DocumentTask], *, presentation: Presentation) -> int:
    """Translate one document after the other; returns the gravest exit status."""
    status = EXIT_DONE
    with closing(app.open_service()) as service:
        for task in tasks:
            found = _show(app, task, _follow(app, service, task, presentation=presentation), presentation=presentation)
            status = max(status, found)
            if found in _ENDS_THE_RUN:
                break
        for warning in service.warnings:
            presentation.note(warning)
    return status


def _follow(app: Application, service: Service, task: DocumentTask, *, presentation: Presentation) -> LastDocumentEvent:
    """Run one document to its end, with a progress line; Ctrl-C leaves a journal."""
    from hymt_local.document_jobs.events import DocumentProgress, DocumentStarted, UnitSettled
    from hymt_local.document_jobs.run import run_document

    line = ProgressLine()
    is_kept = False
    try:
        for event in run_document(task, service, state_dir=app.paths.state_dir):
            match event:
                case DocumentProgress():
                    presentation.progress(line, task, event)
                case UnitSettled():
                    is_kept = True
                    presentation.settled(task, event)
                case DocumentStarted():
                    presentation.started(task, event)
                case _:
                    return event
    except KeyboardInterrupt:
        line.clear()
        if is_kept:
            presentation.note("what is translated so far is kept: the same command with `--resume` goes on from there")
        raise
    finally:
        line.clear()
    raise AssertionError("a document ended without a last event")


def _show(app: Application, task: DocumentTask, last: LastDocumentEvent, *, presentation: Presentation) -> int:
    from hymt_local.document_jobs.events import DocumentFailed, DocumentFinished
    from hymt_local.document_jobs.speeds import remember_speed

    match last:
        case DocumentFinished(report=report):
            if report.rate is not None:
                remember_speed(app.paths.state_dir, report.model, rate=report.rate)
            return presentation.finished(task, report)
        case DocumentFailed():
            return presentation.failed(task, last)
        case _:
            return presentation.skipped(task)
