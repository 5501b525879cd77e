"""The documents view: a queue of files with progress, pause and resume, what failed, and the way to the output."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.binding import BindingType
from textual.content import Content

from hymt_local.language import get_language
from hymt_local.sanitize import sanitize
from hymt_local.tui.dialogs import PathDialog
from hymt_local.tui.direction import Direction
from hymt_local.tui.document_queue import DocumentPhase, DocumentQueue, QueuedDocument
from hymt_local.tui.downloads import duration_text
from hymt_local.tui.environment import Environment
from hymt_local.tui.keymap import DOCUMENTS_COMMANDS, bindings
from hymt_local.tui.language_bar import Side, language_name
from hymt_local.tui.list_screen import ListRow, ListScreen, cell, fact_lines
from hymt_local.tui.picker import LanguagePicked, LanguagePicker
from hymt_local.tui.status import Notice, StatusArea, bar_text
from hymt_local.tui.views import View

_NAME_CELLS, _TIGHT_NAME_CELLS, _PAIR_CELLS = 30, 20, 14
_SHOWN_FAILURES = 20
_OPENERS = ("xdg-open", "open", "wslview")
_STYLES = {
    DocumentPhase.DONE: "$text-success",
    DocumentPhase.INCOMPLETE: "$text-warning",
    DocumentPhase.FAILED: "$text-error",
    DocumentPhase.RUNNING: "$text-primary",
}


class DocumentsScreen(ListScreen):
    """Shows the queue, which goes on whichever view is in front.

    Args:
        environment: What all views use.
        queue: The documents.
        direction: The languages of the translate view, to begin with.
        model: Reference of the model that documents are translated with.
    """

    VIEW = View.DOCUMENTS
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(DOCUMENTS_COMMANDS)]

    def __init__(self, environment: Environment, *, queue: DocumentQueue, direction: Direction, model: str) -> None:
        super().__init__(environment)
        self._queue = queue
        self._source_lang = direction.source_lang
        self._target_lang = direction.effective_target
        self._model = model

    def on_mount(self) -> None:
        """Show the queue."""
        self._show_documents()

    def redraw_rows(self) -> None:
        """Leave out the languages where there is no room for how far it is."""
        self._show_documents()

    def model_in_use(self, ref: str) -> None:
        """Translate documents to come with another model."""
        self._model = ref
        self._show_state()

    def add(self, path: Path) -> None:
        """Put a file at the end of the queue."""
        document = self._queue.add(
            path, source_lang=self._source_lang, target_lang=self._target_lang, model=self._model
        )
        self.choose_row(document.key)
        self._go_on()

    def _go_on(self) -> None:
        self.app.run_worker(self._queue.work(), group="documents", exit_on_error=False)

    # What the user does

    @work(exclusive=True, group="add", exit_on_error=False)
    async def action_add(self) -> None:
        """Ask for a file."""
        dialog = PathDialog(self.wording, title=self.wording("path.add"), start="", is_new=False)
        path = await self.app.push_screen_wait(dialog)
        if path is not None:
            self.add(path)

    def action_pause(self) -> None:
        """Pause everything, or go on."""
        if self._queue.is_paused:
            self._queue.resume()
            self._go_on()
        else:
            self._queue.pause()
        self._show_documents()

    def action_retry(self) -> None:
        """Translate what failed of the document under the cursor once more."""
        if self.key is not None:
            self._queue.retry(self.key, replaces=self._may_replace(self.key))
            self._go_on()

    def _may_replace(self, key: str) -> bool:
        """A second try of a document that was refused because its target is there means: overwrite it."""
        document = self._queue.of(key)
        return document is not None and document.phase is DocumentPhase.FAILED and document.target.exists()

    def action_remove(self) -> None:
        """Take the document under the cursor off the list."""
        if self.key is not None:
            self._queue.remove(self.key)
            self._show_documents()

    def action_languages(self) -> None:
        """Choose the languages of documents to come."""
        tags = {Side.SOURCE: self._source_lang, Side.TARGET: self._target_lang}
        picker = LanguagePicker(self.environment.languages, wording=self.wording, side=Side.TARGET, tags=tags)
        self.app.push_screen(picker, self._language_picked)

    def _language_picked(self, picked: LanguagePicked | None) -> None:
        if picked is None:
            return
        if picked.side is Side.SOURCE:
            self._source_lang = picked.tag
        elif picked.tag is not None:
            self._target_lang = picked.tag
        self._show_state()

    def action_open(self) -> None:
        """Open the output of the document under the cursor."""
        if self.key is not None:
            self.row_chosen(self.key)

    def row_chosen(self, key: str) -> None:
        """Open the output with the system's program for it; where there is none, copy its path."""
        document = self._queue.of(key)
        if document is None:
            return
        if document.phase not in {DocumentPhase.DONE, DocumentPhase.INCOMPLETE}:
            self.show_notice(Notice(self.wording("documents.not_ready"), is_warning=True))
            return
        self._open(document.target)

    @work(exclusive=True, group="open", exit_on_error=False)
    async def _open(self, path: Path) -> None:
        search_path = self.environment.search_path
        opener = next((found for name in _OPENERS if (found := shutil.which(name, path=search_path))), None)
        is_opened = opener is not None and await asyncio.to_thread(_is_opened, opener, path)
        if is_opened:
            self.show_notice(Notice(self.wording("documents.opened", file=str(path))))
        else:
            self.app.copy_to_clipboard(str(path))  # its message says what became of it

    # What is shown

    def document_changed(self, document: QueuedDocument) -> None:
        """Redraw a document."""
        if not self.is_mounted:
            return
        if document.phase is DocumentPhase.RUNNING and self._has_row(document.key):
            self.update_row(ListRow(document.key, self._line(document)))
            if self.key == document.key:
                self.row_shown(document.key)
            self._show_state()
        else:
            self._show_documents()

    def _show_documents(self) -> None:
        rows = [ListRow(document.key, self._line(document)) for document in self._queue.documents]
        self.show_rows(rows, empty=self.wording("documents.empty"))
        self.row_shown(self.key)
        self._show_state()

    def _show_state(self) -> None:
        area = self.query_one(StatusArea)
        running = next((each for each in self._queue.documents if each.phase is DocumentPhase.RUNNING), None)
        if running is not None:
            self.show_state(self._progress(running))
        else:
            text = self.wording("documents.paused" if self._queue.is_paused else "documents.ready")
            self.show_state(Content.styled(text, "$foreground-muted"))
        source = self._called(self._source_lang) if self._source_lang else self.wording("languages.detect")
        pair = f"{source} → {self._called(self._target_lang)}"
        area.show_advice(Content.styled(f"{pair} · {sanitize(self._model)}", "$foreground-muted"))

    def _called(self, tag: str) -> str:
        return language_name(get_language(tag), self.wording)

    def _progress(self, document: QueuedDocument) -> Content:
        if document.loading is not None:
            label = self.wording("status.loading", model=sanitize(document.model))
            return bar_text(label, fraction=document.loading, after=f"{document.loading:.0%}")
        parts = [self.wording("documents.units", done=document.done_units, total=document.n_units)]
        if document.eta_s is not None:
            parts.append(self.wording("download.left", time=duration_text(document.eta_s)))
        if document.rate:
            parts.append(self.wording("documents.rate", rate=f"{document.rate:.0f}"))
        return bar_text(sanitize(document.source.name), fraction=document.fraction, after=" · ".join(parts))

    def _line(self, document: QueuedDocument) -> Content:
        pair = f"{document.source_lang or '·'} → {document.target_lang}"
        return Content("").join(
            [
                cell(document.source.name, _TIGHT_NAME_CELLS if self.is_tight else _NAME_CELLS),
                Content(" "),
                Content() if self.is_tight else cell(pair, _PAIR_CELLS, "$foreground-muted"),
                Content.styled(self._standing(document), _STYLES.get(document.phase, "$foreground-muted")),
            ]
        )

    def _standing(self, document: QueuedDocument) -> str:
        text = self.wording(f"documents.phase_{document.phase}")
        if document.phase is DocumentPhase.RUNNING:
            return f"{document.fraction:.0%}"
        if document.phase is DocumentPhase.INCOMPLETE:
            return f"{text}: {len(document.failed)}"
        return text

    def row_shown(self, key: str | None) -> None:
        """Show what is known of a document."""
        document = self._queue.of(key or "")
        if document is None:
            self.show_detail(Content())
            return
        parts = [Content.styled(sanitize(document.source.name), "bold"), fact_lines(self._facts(document))]
        if document.error is not None:
            parts.append(Content.styled(sanitize(document.error.message), "$text-error"))
            parts.append(Content.styled(self.wording(self._remedy_key(document)), "$text-accent"))
        if document.failed:
            parts.append(self._failures(document))
        if document.last_source and document.phase is DocumentPhase.RUNNING:
            parts.append(Content(sanitize(f"{document.last_source}\n→ {document.last_target}")))
        if document.notes:
            parts.append(Content.styled(sanitize("\n".join(document.notes)), "$foreground-muted"))
        self.show_detail(Content("\n\n").join(parts))

    def _remedy_key(self, document: QueuedDocument) -> str:
        return "documents.replace_hint" if document.target.exists() else "documents.retry_hint"

    def _facts(self, document: QueuedDocument) -> list[tuple[str, str]]:
        wording = self.wording
        return [
            (wording("documents.source"), str(document.source)),
            (wording("documents.target"), str(document.target)),
            (wording("documents.format"), document.format),
            (wording("documents.progress"), f"{document.done_units} / {document.n_units}" if document.n_units else ""),
            (wording("documents.model"), document.model),
            (wording("documents.warnings"), str(document.n_warnings) if document.n_warnings else ""),
        ]

    def _failures(self, document: QueuedDocument) -> Content:
        title = Content.styled(self.wording("documents.failures", count=len(document.failed)), "$text-warning bold")
        lines = [
            Content.assemble(
                (f"{sanitize(unit.location)}  ", "$foreground-muted"),
                sanitize(unit.source[:80].replace("\n", " ⏎ ")),
                (f"  {sanitize(unit.error.message)}", "$text-warning"),
            )
            for unit in document.failed[:_SHOWN_FAILURES]
        ]
        return Content("\n").join([title, *lines])

    def _has_row(self, key: str) -> bool:
        from textual.widgets import OptionList

        return any(option.id == key for option in self.query_one("#rows", OptionList).options)


def _is_opened(opener: str, path: Path) -> bool:
    """Start the system's program for a file, away from our terminal."""
    try:
        subprocess.Popen(
            [opener, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=sys.platform != "win32",
        )
    except OSError:
        return False
    return True
