"""`hymt demo`: the embedded model at work, sample sentences into every language it has phrases for."""

from __future__ import annotations

import os
import time

import click

from hymt_local.application import Application, open_application
from hymt_local.cli import output
from hymt_local.cli.diagnostics import ProgressLine, print_error, print_note
from hymt_local.errors import EXIT_SEGMENTS_FAILED
from hymt_local.events import Cancelled, Failed, Finished, ModelLoading, TextDelta, TranslationRequest
from hymt_local.jobs import LocalService
from hymt_local.language import get_language

SAMPLES = (
    ("en", "Good morning."),
    ("en", "Where is the station?"),
    ("en", "Thank you very much."),
    ("zh", "早上好。"),
)


@click.command(name="demo")
@click.option("-m", "--model", default="demo", show_default=True, metavar="MODEL", help="Model to show.")
def demo_command(model: str) -> int:
    """Translate a few sentences into every language of the demo model, streamed, with timings."""
    app = open_application(os.environ, flags={"model": model})
    spec = app.resolve_model(None).spec
    languages = spec.full_languages or spec.languages
    if spec.kind == "demo":
        print_note("this is the embedded demo model: a phrasebook, not a translator of anything else")
    service = app.open_service()
    started, failures, total = time.perf_counter(), 0, 0
    try:
        for source_lang, text in SAMPLES:
            output.write_text(f"\n{text}\n")
            for target_lang in languages:
                if target_lang != source_lang:
                    total += 1
                    failures += not _show(app, service, text, source_lang, target_lang)
    finally:
        service.close()
    elapsed = time.perf_counter() - started
    output.write_text(f"\n{total - failures} of {total} translations in {elapsed:.2f} s, model loading included\n")
    return EXIT_SEGMENTS_FAILED if failures else 0


def _show(app: Application, service: LocalService, text: str, source_lang: str, target_lang: str) -> bool:
    """Stream one translation on a line of its own; returns whether it was done."""
    name = get_language(target_lang).english
    output.write_text(f"  {target_lang:<8}{name:<12}")
    request = TranslationRequest(
        text=text, source_lang=source_lang, target_lang=target_lang, model=app.settings.model, use_cache=False
    )
    progress = ProgressLine()
    for event in service.submit(request):
        match event:
            case ModelLoading(model=model, fraction=fraction):
                progress.show(f"loading {model}", fraction)
            case TextDelta(text=delta):
                progress.clear()
                output.write_text(delta)
            case Finished(usage=usage, elapsed_s=elapsed_s):
                output.write_text(f"   ({elapsed_s * 1000:.0f} ms, {usage.output_tokens} tokens)\n")
                return True
            case Failed(error=report):
                output.write_text("(failed)\n")
                print_error(report)
            case Cancelled():
                output.write_text("(cancelled)\n")
    return False
