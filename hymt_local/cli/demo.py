"""`hymt demo`: the embedded model at work, sample sentences into every language it has phrases for."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from hymt_local.application import Application, open_application
from hymt_local.catalog import ModelSpec
from hymt_local.cli import output
from hymt_local.cli.diagnostics import ProgressLine, print_error, print_note
from hymt_local.cli.interruption import closing
from hymt_local.errors import EXIT_DONE, EXIT_SEGMENTS_FAILED
from hymt_local.events import Failed, Finished, ModelLoading, SegmentDone, Started, TextDelta, TranslationRequest
from hymt_local.language import get_language

if TYPE_CHECKING:
    from hymt_local.translation_job import Service

SAMPLES = (
    ("en", "Good morning."),
    ("en", "Where is the station?"),
    ("en", "Thank you very much."),
    ("zh", "早上好。"),
)


@click.command(name="demo")
@click.option("-m", "--model", default="demo", show_default=True, metavar="MODEL", help="Model to show.")
def demo_command(model: str) -> int:
    """Show the embedded demo model at work.

    It translates a few sentences into each of its languages, streamed, with timings. The demo model is part of the
    package: this works offline, right after the installation.
    """
    app = open_application(os.environ, flags={"model": model})
    spec = app.resolve_model(None).spec
    if spec.kind == "demo":
        print_note("this is the embedded demo model: a phrasebook, not a translator of anything else")
    started = time.perf_counter()
    with closing(app.open_service()) as service:
        _load(app, service, spec)
        done = [_show_sample(app, service, source_lang=tag, text=text, spec=spec) for tag, text in SAMPLES]
    elapsed, successes = time.perf_counter() - started, [success for sample in done for success in sample]
    output.write_text(
        f"\n{sum(successes)} of {len(successes)} translations in {elapsed:.2f} s, model loading included\n"
    )
    return EXIT_DONE if all(successes) else EXIT_SEGMENTS_FAILED


def _load(app: Application, service: Service, spec: ModelSpec) -> None:
    """Let a first translation load the model, so that the times shown are those of translating."""
    progress = ProgressLine()
    request = _request(app, SAMPLES[0][1], source_lang=SAMPLES[0][0], target_lang=spec.full_languages[-1])
    for event in service.submit(request):
        if isinstance(event, ModelLoading):
            progress.show(f"loading {event.model}", event.fraction)
    progress.clear()


def _show_sample(app: Application, service: Service, *, source_lang: str, text: str, spec: ModelSpec) -> list[bool]:
    output.write_text(f"\n{text}\n")
    return [
        _show(service, _request(app, text, source_lang=source_lang, target_lang=target_lang))
        for target_lang in spec.full_languages
        if target_lang != source_lang
    ]


def _request(app: Application, text: str, *, source_lang: str, target_lang: str) -> TranslationRequest:
    return TranslationRequest(
        text, source_lang=source_lang, target_lang=target_lang, model=app.settings.model, use_cache=False
    )


def _show(service: Service, request: TranslationRequest) -> bool:
    """Stream one translation on a line of its own; returns whether it was done."""
    from hymt_local.cli.stream import TerminalStream

    output.write_text(f"  {request.target_lang:<8}{get_language(request.target_lang).english:<20}")
    stream = TerminalStream()
    for event in service.submit(request):
        match event:
            case Started():
                stream.start(event)
            case TextDelta():
                stream.delta(event)
            case SegmentDone(error=None):
                stream.settle(event)
            case Finished(usage=usage, elapsed_s=elapsed_s):
                output.write_text(f"   ({elapsed_s * 1000:.0f} ms, {usage.output_tokens} tokens)\n")
                return True
            case Failed(error=report):
                output.write_text("   (failed)\n")
                print_error(report)
    return False
