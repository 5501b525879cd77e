"""Pictures of the views for the README: `python -m tests.tui.screens [FOLDER] [COLUMNSxROWS] [THEME] [LANGUAGE]`.

The app is the real one; what is translated and measured is made up, so that the pictures are the same everywhere.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from textual.pilot import Pilot

from hymt_local.application import Application, open_application
from hymt_local.document_jobs.events import FailedUnit
from hymt_local.errors import SegmentRejectedError
from hymt_local.events import Origin, SegmentDone, TokenUsage
from hymt_local.language import LANGUAGES
from hymt_local.memory.history import History, Translation
from hymt_local.segment import Finding, Severity
from hymt_local.tui import translate_screen
from hymt_local.tui.app import HymtApp
from hymt_local.tui.choices import ModelChoice
from hymt_local.tui.document_queue import DocumentPhase, QueuedDocument
from hymt_local.tui.opening import open_environment
from hymt_local.tui.terminal import CellWidths, Terminal
from tests.machines import machine
from tests.tui.driving import paste, status, until
from tests.tui.fakes import FakeClock, FakeService, finished, started
from tests.tui.svg_cells import in_cells

FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""They would be fetched from the web by whoever looks at a picture."""
MODELS = (
    ModelChoice("Hy-MT2-7B:Q4_K_M", "Hy-MT2 7B", "translation"),
    ModelChoice("demo", "Demo phrasebook", "demo"),
)
SOURCE = """All human beings are born free and equal in dignity and rights.
They are endowed with reason and conscience and should act towards one another in a spirit of brotherhood.

Article 2 lists what nobody may be treated differently for: race, colour, sex, language, religion."""
TARGET = """人人生而自由，在尊严和权利上一律平等。
他们赋有理性和良心，并应以兄弟关系的精神相对待。

第二条列举了任何人都不得因之受到区别对待的事项：种族、肤色、性别、语言、宗教。"""
PAST = (
    ("Where is the train station?", "Où est la gare ?", "en", "fr"),
    ("请给我两张票。", "Two tickets, please.", "zh", "en"),
    ("می‌خواهم یک قهوه سفارش بدهم.", "I would like to order a coffee.", "fa", "en"),
    ("The invoice is due within 30 days.", "Die Rechnung ist innerhalb von 30 Tagen fällig.", "en", "de"),
    ("今日はいい天気ですね。", "It is nice weather today, isn't it?", "ja", "en"),
)


def make_app(home: Path, service: FakeService, *, clock: FakeClock, theme: str, language: str) -> HymtApp:
    """Return the app with a home of its own."""
    environ = {**os.environ, "HYMT_HOME": str(home), "LANG": "en_US.UTF-8"}
    flags = {"target_lang": "zh", "theme": theme, "ui_language": language, "live": True}
    opened = open_environment(
        service,
        open_application(environ, flags=flags),
        environ=environ,
        languages=LANGUAGES,
        models=MODELS,
        terminal=Terminal(cell_widths=CellWidths(1, False, False, False)),
        clock=clock,
        search_path="",
    )
    return HymtApp(opened.environment, current=MODELS[0].ref)


async def translate(pilot: Pilot[None], service: FakeService) -> None:
    """Show a finished translation."""
    await paste(pilot, SOURCE)
    await until(pilot, lambda: len(service.jobs) == 1)
    job = service.job
    job.put(started(job.request, model=MODELS[0].ref, kind="translation"))
    note = Finding("numbers", Severity.WARNING, "the number 2 of the source is written out")
    lines = list(zip(SOURCE.split("\n"), TARGET.split("\n"), strict=True))
    for index, (source, target) in enumerate(lines):
        origin = Origin.CACHE if index == 0 else Origin.MODEL
        job.put(SegmentDone(index, source, target, origin, findings=(note,) if index == 3 else ()))
    usage = TokenUsage(prompt_tokens=212, reused_tokens=121, output_tokens=86, prompt_s=0.6, decode_s=5.4)
    job.put(finished(job.request, TARGET, usage=usage, elapsed_s=6.1, model=MODELS[0].ref))
    await until(pilot, lambda: "Translated" in status(pilot) or "已" in status(pilot))


def queue_documents(app: HymtApp) -> None:
    """Fill the queue without translating anything."""
    known: dict[str, Any] = {"source_lang": "en", "target_lang": "zh", "model": MODELS[0].ref}
    folder = Path("~/texts")
    done = QueuedDocument(
        folder / "README.md",
        folder / "README.zh.md",
        **known,
        phase=DocumentPhase.DONE,
        format="markdown",
        n_units=48,
        done_units=48,
    )
    error = SegmentRejectedError("the placeholder %(name)s is missing").report()
    incomplete = QueuedDocument(
        folder / "messages.po",
        folder / "messages.zh.po",
        **known,
        phase=DocumentPhase.INCOMPLETE,
        format="po",
        n_units=312,
        done_units=312,
        failed=(FailedUnit("17", "line 120", "Hello %(name)s, you have new mail.", error),),
    )
    running = QueuedDocument(
        folder / "lecture-04.srt",
        folder / "lecture-04.zh.srt",
        **known,
        phase=DocumentPhase.RUNNING,
        format="srt",
        n_units=905,
        done_units=561,
        eta_s=312.0,
        rate=61.0,
        last_source="So what do we mean by a proof?",
        last_target="那么，我们所说的证明是什么意思呢？",
    )
    waiting = QueuedDocument(folder / "interview.vtt", folder / "interview.zh.vtt", **known)
    for document in (done, incomplete, running, waiting):
        app.documents._change(document)


async def draw(folder: Path, size: tuple[int, int], theme: str, language: str) -> None:
    """Write one SVG per view."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        service, clock = FakeService(), FakeClock()
        app = make_app(Path(home), service, clock=clock, theme=theme, language=language)
        past = History(app.environment.application.paths.database)
        for source, target, source_lang, target_lang in PAST:
            past.add(Translation(source, target, source_lang, target_lang, MODELS[0].ref))
        past.close()

        def save(name: str) -> None:
            picture = in_cells(FONTS.sub("", app.export_screenshot(title="hymt")))
            (folder / f"{name}.svg").write_text(picture, encoding="utf-8")

        async with app.run_test(size=size) as pilot:
            await translate(pilot, service)
            save("translate")
            await pilot.press("ctrl+j")
            await pilot.pause()
            save("segment")
            await pilot.press("f2")
            await pilot.pause()
            save("languages")
            await pilot.press("escape", "f1")
            await pilot.pause()
            save("help")
            await pilot.press("escape")
            for number, view in enumerate(("documents", "history", "models", "settings"), start=2):
                await pilot.press(f"alt+{number}")
                await settle(pilot, lambda: True)
                if view == "documents":
                    queue_documents(app)
                if view == "models":
                    await settle(pilot, lambda: app.screen._judged is not None)  # type: ignore[attr-defined]
                await pilot.press("down", "down")
                await pilot.pause()
                save(view)


async def settle(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Let workers with threads of their own come to an end."""
    for _ in range(50):
        await pilot.app.workers.wait_for_complete()
        await pilot.pause(0.02)
        if condition():
            return


def main() -> int:
    """Draw all views."""
    arguments = [*sys.argv[1:], *["docs/screens", "120x34", "textual-dark", "en"][len(sys.argv) - 1 :]]
    folder, size, theme, language = arguments
    columns, rows = (int(part) for part in size.split("x"))
    with (
        mock.patch.object(Application, "probe_machine", return_value=machine(16, 6)),
        mock.patch.object(translate_screen, "rss_bytes", return_value=46 << 20),
    ):
        asyncio.run(draw(Path(folder), (columns, rows), theme, language))
    return 0


if __name__ == "__main__":
    sys.exit(main())
