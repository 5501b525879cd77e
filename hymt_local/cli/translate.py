"""`hymt TEXT...`, `hymt translate` and standard input; without text on a terminal, the terminal UI."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import msgspec

from hymt_local.application import Application, open_application
from hymt_local.cli import output
from hymt_local.cli.diagnostics import ProgressLine, print_error, print_note
from hymt_local.cli.interruption import closing
from hymt_local.errors import (
    EXIT_DONE,
    EXIT_SEGMENTS_FAILED,
    CancelledError,
    EmptyInputError,
    ErrorReport,
    InputEncodingError,
    UsageError,
)
from hymt_local.events import (
    Event,
    Failed,
    Finished,
    LastEvent,
    ModelLoaded,
    ModelLoading,
    Pivot,
    SamplingParams,
    SegmentDone,
    Started,
    TextDelta,
    TranslationRequest,
)
from hymt_local.language import gains_from_pivot
from hymt_local.segment import Guidance, Severity, Term

if TYPE_CHECKING:
    from hymt_local.cli.stream import TerminalStream
    from hymt_local.translation_job import Service

BYTE_ORDER_MARK = "\ufeff"
SHOWN_FAILURES = 3
AUTO = "auto"
"""As source language: detect it, whatever the settings say."""


@dataclass(frozen=True, slots=True)
class Presentation:
    """How the answer is shown."""

    as_json: bool
    stream: bool
    raw: bool
    quiet: bool
    final_newline: bool
    """Arguments have no line end of their own, so the answer gets one; standard input is mirrored exactly."""
    byte_order_mark: bool = False
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended, and what the checks said on the way."""

    last: LastEvent
    segments: tuple[SegmentDone, ...]
    """Those with findings, in the order of the text."""

    @property
    def has_findings(self) -> bool:
        """Whether somebody should look at something."""
        return any(finding.severity is not Severity.INFO for segment in self.segments for finding in segment.findings)


@click.command(name="translate")
@click.argument("text", nargs=-1)
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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with source, target and figures.")
@click.option("--no-stream", is_flag=True, help="Print the whole translation at once, on a terminal too.")
@click.option("--raw", is_flag=True, help="Let control characters through to the terminal instead of replacing them.")
@click.option(
    "--temperature",
    type=click.FloatRange(0.0, 2.0),
    metavar="NUMBER",
    help="0 takes the likeliest word each time; above it, the translation varies with --seed.  [default: 0]",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    metavar="N",
    help="The same seed gives the same translation.  [default: 0]",
)
@click.option(
    "--protect", "protected", multiple=True, metavar="WORD", help="Leave a name or term as it is; repeatable."
)
@click.option(
    "--term", "terms", multiple=True, metavar="SOURCE=TARGET", help="Translate a term like this; repeatable. *"
)
@click.option("--context", metavar="TEXT", help="What the text is about, or what stands before it. *")
@click.option("--style", metavar="TEXT", help="How the translation is to sound: formal, for children ... *")
@click.option("--isolate", is_flag=True, help="Keep placeholders readable in Arabic, Hebrew and their like.")
@click.option(
    "--via",
    "pivot",
    type=click.Choice(["zh", "auto", "off"]),
    help="Translate through Chinese; auto: from or into a minority language of China.  [default: off]",
)
@click.option("--strict", is_flag=True, help="Exit with status 1 for findings of the checks, too.")
@click.option("--no-cache", is_flag=True, help="Do not use or fill the memory of past translations.")
@click.option("-q", "--quiet", is_flag=True, help="No notes on standard error; errors still appear.")
@click.pass_context
def translate_command(
    ctx: click.Context,
    text: tuple[str, ...],
    target_lang: str | None,
    source_lang: str | None,
    model: str | None,
    as_json: bool,
    no_stream: bool,
    raw: bool,
    temperature: float | None,
    seed: int | None,
    protected: tuple[str, ...],
    terms: tuple[str, ...],
    context: str | None,
    style: str | None,
    isolate: bool,
    pivot: str | None,
    strict: bool,
    no_cache: bool,
    quiet: bool,
) -> int:
    """Translate TEXT, or standard input when no TEXT is given.

    Several TEXTs are joined by spaces. Whitespace, line ends, numbers and addresses come through unchanged. On a
    terminal the translation streams; to a pipe go exactly its bytes. Put `--` before a TEXT that starts with a dash.

    Options with a * need a model that was trained to take them: Hy-MT2, and HY-MT1.5 for all but the style.
    """
    flags: dict[str, Any] = {
        "model": model,
        "source_lang": source_lang,
        "target_lang": target_lang,
        "temperature": temperature,
        "seed": seed,
        "pivot": pivot,
        "cache": False if no_cache else None,
    }
    app = open_application(os.environ, flags=flags)
    if not (text or as_json) and sys.stdin.isatty() and output.stdout_is_terminal():
        return _open_terminal_ui(ctx, app)
    source = " ".join(text) if text else decode_input(output.read_stdin())
    presentation = Presentation(
        as_json=as_json,
        stream=output.stdout_is_terminal() and not (no_stream or as_json),
        raw=raw,
        quiet=quiet,
        final_newline=bool(text) or output.stdout_is_terminal(),
        byte_order_mark=source.startswith(BYTE_ORDER_MARK),
        is_strict=strict,
    )
    request = msgspec.structs.replace(
        build_request(app, source.removeprefix(BYTE_ORDER_MARK)),
        protect=protected,
        isolate=isolate,
        guidance=Guidance(tuple(map(parse_term, terms)), context or "", style or ""),
    )
    return _translate(app, request, presentation=presentation)


def parse_term(typed: str) -> Term:
    """Return a term written as `SOURCE=TARGET`.

    Raises:
        UsageError: one of its sides is missing.
    """
    source, _, target = (part.strip() for part in typed.partition("="))
    if not source or not target:
        raise UsageError(f"{typed!r} is no term with its translation", hint="write it like this: --term 'cat=chat'")
    return Term(source, target)


def build_request(app: Application, text: str) -> TranslationRequest:
    """Return the request that text and settings make.

    Raises:
        EmptyInputError: no text at all.
        UsageError: no target language.
        LanguageError: an unknown language.
        InputEncodingError: an argument that is not valid UTF-8.
    """
    from hymt_local.language import match_language

    if not text:
        raise EmptyInputError("nothing to translate: the input is empty", hint='try: hymt "Good morning" -t fr')
    check_encoding(text)
    settings = app.settings
    if settings.target_lang is None:
        raise UsageError(
            "no target language", hint="add `-t fr`, or set one for good: `hymt config set target_lang fr`"
        )
    target_lang = match_language(settings.target_lang)
    source_lang = None if settings.source_lang in {None, AUTO} else match_language(settings.source_lang)
    return TranslationRequest(
        text=text,
        target_lang=target_lang,
        source_lang=source_lang,
        model=app.model_for(text, source_lang=source_lang, target_lang=target_lang),
        sampling=sampling_of(app),
        use_cache=settings.cache,
        pivot=Pivot(settings.pivot),
    )


def sampling_of(app: Application) -> SamplingParams | None:
    """Return the sampling that settings ask for, None for the model's deterministic default."""
    settings = app.settings
    if settings.temperature == 0.0:
        return None
    card = app.resolve_model(settings.model).spec.sampling
    return SamplingParams(
        temperature=settings.temperature,
        top_k=card.top_k,
        top_p=card.top_p,
        repetition_penalty=card.repetition_penalty,
        seed=settings.seed,
    )


def _open_terminal_ui(ctx: click.Context, app: Application) -> int:
    if ctx.obj is None:
        raise EmptyInputError("nothing to translate: no text was given", hint='try: hymt "Good morning" -t fr')
    status = ctx.obj(app)
    assert isinstance(status, int)
    return status


def decode_input(data: bytes) -> str:
    """Return standard input as text.

    Raises:
        InputEncodingError: it is not UTF-8; the message names the byte.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputEncodingError(
            f"standard input is not valid UTF-8: byte {error.start} is 0x{data[error.start]:02x}",
            hint="convert it first, for example with `iconv -f GB18030 -t UTF-8`",
        ) from error


def check_encoding(text: str) -> None:
    """Refuse arguments that are not valid UTF-8.

    Raises:
        InputEncodingError: the message names the first such character.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputEncodingError(
            f"the text is not valid UTF-8 at character {error.start}", hint="check the terminal's encoding"
        ) from error


def _translate(app: Application, request: TranslationRequest, *, presentation: Presentation) -> int:
    with closing(app.open_service()) as service:
        outcome = follow(service, request, presentation=presentation)
        if not presentation.quiet:
            for warning in service.warnings:
                print_note(warning)
        return _exit_status(outcome, request, presentation=presentation)


def follow(service: Service, request: TranslationRequest, *, presentation: Presentation) -> Outcome:
    """Submit the request and show its events until the last; whatever ends this early cancels the job."""
    progress = ProgressLine()
    stream = _open_stream(presentation)
    last: LastEvent | None = None
    flagged: list[SegmentDone] = []
    try:
        with service.submit(request) as job:
            for event in job:
                if isinstance(event, LastEvent):
                    last = event
                else:
                    if isinstance(event, SegmentDone) and event.findings:
                        flagged.append(event)
                    _show(event, progress, stream=stream, presentation=presentation)
    finally:
        progress.clear()
        if stream:
            stream.finish(is_complete=isinstance(last, Finished))
    assert last is not None, "a job ended without a last event"
    return Outcome(last, tuple(sorted(flagged, key=lambda segment: segment.segment)))


def _open_stream(presentation: Presentation) -> TerminalStream | None:
    if not presentation.stream:
        return None
    from hymt_local.cli.stream import TerminalStream

    return TerminalStream(raw=presentation.raw)


def _show(event: Event, progress: ProgressLine, *, stream: TerminalStream | None, presentation: Presentation) -> None:
    match event:
        case Started():
            _note_demo(event, presentation)
            if event.doubt and not presentation.quiet:
                print_note(event.doubt)
            _note_pivot(event, presentation)
        case ModelLoading(model=name, fraction=fraction) if stream is None or stream.is_at_line_start:
            progress.show(f"loading {name}", fraction)
        case ModelLoaded() if event.is_reduced and not presentation.quiet:
            progress.clear()
            print_note(_reduced(event))
        case TextDelta() | SegmentDone():
            progress.clear()
    if stream:
        _stream(stream, event)


def _stream(stream: TerminalStream, event: Event) -> None:
    match event:
        case Started():
            stream.start(event)
        case TextDelta():
            stream.delta(event)
        case SegmentDone():
            stream.settle(event)


def _reduced(event: ModelLoaded) -> str:
    where = f"{event.n_gpu_layers} of {event.n_layers} layers on the GPU" if event.n_gpu_layers else "on the CPU alone"
    return f"memory is short: {event.model} was loaded {where}, with a context of {event.context_length} tokens"


def _note_demo(event: Started, presentation: Presentation) -> None:
    if event.model_kind == "demo" and not presentation.quiet:
        print_note("the demo model answers: it knows its phrasebook only; `hymt models pull` fetches a real model")


def _note_pivot(event: Started, presentation: Presentation) -> None:
    if presentation.quiet or event.model_kind != "translation":
        return
    if event.pivot_lang is not None:
        print_note("translated through Chinese")
    elif gains_from_pivot(event.source_lang, event.target_lang):
        print_note("for these languages `--via zh` may be better: the models were trained on pairs with Chinese")


def _exit_status(outcome: Outcome, request: TranslationRequest, *, presentation: Presentation) -> int:
    match outcome.last:
        case Finished() as last:
            _print_result(last, outcome, request, presentation=presentation)
            is_flagged = presentation.is_strict and outcome.has_findings
            return EXIT_SEGMENTS_FAILED if last.failed or is_flagged else EXIT_DONE
        case Failed(error=report):
            from hymt_local.errors import error_of

            raise error_of(report)
        case _:
            raise CancelledError("interrupted")


def _print_result(last: Finished, outcome: Outcome, request: TranslationRequest, *, presentation: Presentation) -> None:
    if presentation.as_json:
        told = {"findings": _finding_objects(outcome), "attempts": _histories(outcome)}
        output.write_json(as_json_object(last, request) | told)
        return
    if not presentation.stream:
        mark = BYTE_ORDER_MARK if presentation.byte_order_mark else ""
        end = "\n" if presentation.final_newline and not last.text.endswith("\n") else ""
        output.write_text(f"{mark}{last.text}{end}", raw=presentation.raw)
    if last.failed:
        _print_failures(last)
    if not presentation.quiet:
        _print_findings(outcome)


def _print_findings(outcome: Outcome) -> None:
    found = [
        (segment, finding)
        for segment in outcome.segments
        for finding in segment.findings
        if segment.error is None and finding.severity is not Severity.INFO
    ]
    for segment, finding in found[:SHOWN_FAILURES]:
        print_note(f"segment {segment.segment + 1}: {finding.message} [{finding.code}]")
    if len(found) > SHOWN_FAILURES:
        print_note(f"and {len(found) - SHOWN_FAILURES} more findings; `--json` shows all")


def _finding_objects(outcome: Outcome) -> list[dict[str, Any]]:
    return [
        {"segment": segment.segment} | output.finding_object(finding)
        for segment in outcome.segments
        for finding in segment.findings
    ]


def _histories(outcome: Outcome) -> list[dict[str, Any]]:
    """Return what was tried for each segment that took more than one attempt, or kept its source text."""
    return [
        {"segment": segment.segment, "attempts": output.attempt_objects(segment.attempts)}
        for segment in outcome.segments
        if len(segment.attempts) > 1 or segment.error
    ]


def _print_failures(last: Finished) -> None:
    print_note(f"{len(last.failed)} segment(s) kept their source text")
    for failed in last.failed[:SHOWN_FAILURES]:
        if failed.error:
            print_error(failed.error)


def as_json_object(last: Finished, request: TranslationRequest) -> dict[str, Any]:
    """Return what `--json` prints for a finished translation."""
    return {
        "source": request.text,
        "target": last.text,
        "source_lang": last.source_lang,
        "target_lang": last.target_lang,
        "model": last.model,
        "signature": last.signature,
        "origin": last.origin.value,
        "pivot_lang": last.pivot_lang,
        "tokens": {
            "prompt": last.usage.prompt_tokens,
            "reused": last.usage.reused_tokens,
            "output": last.usage.output_tokens,
        },
        "seconds": {
            "prompt": round(last.usage.prompt_s, 6),
            "decode": round(last.usage.decode_s, 6),
            "elapsed": round(last.elapsed_s, 6),
        },
        "failed": [
            {"segment": failed.segment, "source": failed.source, "error": _error_object(failed.error)}
            for failed in last.failed
            if failed.error
        ],
    }


def _error_object(report: ErrorReport) -> dict[str, str]:
    return {"code": report.code, "message": report.message, "hint": report.hint}
