"""The history view: past translations and the phrase cache, page by page; searched, restored, edited, exported."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, TypeVar

from textual import work
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message

from hymt_local.config import write_atomically
from hymt_local.errors import HymtError
from hymt_local.memory.history import PAGE_ENTRIES, History, HistoryEntry
from hymt_local.sanitize import sanitize
from hymt_local.tui.dialogs import PathDialog, QuestionDialog, TextDialog
from hymt_local.tui.environment import Environment
from hymt_local.tui.keeper import HistoryKeeper
from hymt_local.tui.keymap import HISTORY_COMMANDS, bindings
from hymt_local.tui.language_bar import language_name
from hymt_local.tui.list_screen import ListRow, ListScreen, cell, fact_lines
from hymt_local.tui.status import Notice
from hymt_local.tui.views import View

T = TypeVar("T")

_MORE = "more"
_DATE_CELLS, _PAIR_CELLS, _TIGHT_PAIR_CELLS, _TEXT_CELLS = 17, 14, 8, 200


class Scope(StrEnum):
    """What is looked through."""

    HISTORY = "history"
    CACHE = "cache"


class HistoryScreen(ListScreen):
    """Owns the pages that were read so far. Args: what all views use; the database."""

    VIEW = View.HISTORY
    HAS_SEARCH = True
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(HISTORY_COMMANDS)]

    class Restored(Message):
        """An entry is to be shown in the translate view."""

        def __init__(self, entry: HistoryEntry) -> None:
            super().__init__()
            self.entry = entry

    def __init__(self, environment: Environment, *, keeper: HistoryKeeper) -> None:
        super().__init__(environment)
        self._keeper = keeper
        self._scope = Scope.HISTORY
        self._entries: dict[str, HistoryEntry] = {}
        self._has_more = False

    def on_mount(self) -> None:
        """Show the empty view; the first page comes with the resume that follows."""
        self._show_state()

    def on_screen_resume(self) -> None:
        """Read again: translations were made meanwhile."""
        self._load()

    def search_changed(self, query: str) -> None:
        """Read the first page of another query."""
        self._load()

    # Reading

    @work(exclusive=True, group="page", exit_on_error=False)
    async def _load(self, *, after_last: bool = False) -> None:
        query, scope = self.query_text, self._scope
        last = list(self._entries.values())[-1] if after_last and self._entries else None
        before = last.id if last else None

        def read(history: History) -> tuple[HistoryEntry, ...]:
            page = history.page if scope is Scope.HISTORY else history.cached_page
            return page(query, before_id=before)

        found = await self._attempt(read)
        if found is None:
            return
        if last is None:
            self._entries = {}
        self._entries |= {str(entry.id): entry for entry in found}
        self._has_more = len(found) == PAGE_ENTRIES
        self._show_entries()

    async def _attempt(self, use: Callable[[History], T]) -> T | None:
        try:
            return await self._keeper.use(use)
        except HymtError as error:
            self.show_notice(Notice(error.message, hint=error.hint, is_warning=True))
            return None

    # What the user does

    def row_chosen(self, key: str) -> None:
        """Show an entry in the translate view; of the last row, read on."""
        if key == _MORE:
            self._load(after_last=True)
        elif entry := self._entries.get(key):
            self.post_message(self.Restored(entry))

    def action_restore(self) -> None:
        """Do what enter does, from the palette."""
        if self.key:
            self.row_chosen(self.key)

    def action_more(self) -> None:
        """Read the next page."""
        if self._has_more:
            self._load(after_last=True)

    def action_copy(self) -> None:
        """Copy the target of the entry under the cursor."""
        if entry := self._entry():
            self.app.copy_to_clipboard(entry.target)

    def action_scope(self) -> None:
        """Turn between the history and the phrase cache."""
        self._scope = Scope.CACHE if self._scope is Scope.HISTORY else Scope.HISTORY
        self._load()

    @work(exclusive=True, group="edit", exit_on_error=False)
    async def action_edit(self) -> None:
        """Change the target of the entry under the cursor; it wins from then on."""
        entry, scope = self._entry(), self._scope
        if entry is None:
            return
        dialog = TextDialog(
            self.environment, title=self.wording("history.edit_title"), note=entry.source, text=entry.target
        )
        target = await self.app.push_screen_wait(dialog)
        if target is None or target == entry.target:
            return

        def change(history: History) -> bool:
            if scope is Scope.CACHE:
                history.edit_cached(entry.id, target)
            else:
                history.edit(entry.id, target)
            return True

        if await self._attempt(change):
            self.show_notice(Notice(self.wording("history.edited")))
        self._load()

    @work(exclusive=True, group="delete", exit_on_error=False)
    async def action_delete(self) -> None:
        """Forget the entry under the cursor."""
        entry, scope = self._entry(), self._scope
        if entry is None:
            return
        dialog = QuestionDialog(self.wording, title=self.wording("history.delete_question"), text=entry.source[:400])
        if not await self.app.push_screen_wait(dialog):
            return

        def forget(history: History) -> bool:
            remove = history.delete if scope is Scope.HISTORY else history.delete_cached
            remove([entry.id])
            return True

        if await self._attempt(forget):
            self._entries.pop(str(entry.id), None)
            self._show_entries()
            self.show_notice(Notice(self.wording("history.deleted")))

    @work(exclusive=True, group="export", exit_on_error=False)
    async def action_export(self) -> None:
        """Write everything that the query finds, as JSON lines or tab-separated text."""
        dialog = PathDialog(self.wording, title=self.wording("path.export"), start="history.tsv", is_new=True)
        path = await self.app.push_screen_wait(dialog)
        if path is None:
            return
        query = self.query_text
        entries = await self._attempt(lambda history: list(history.every(query)))
        if entries is None:
            return
        try:
            await asyncio.to_thread(export, path, entries)
        except HymtError as error:
            self.show_notice(Notice(error.message, hint=error.hint, is_warning=True))
        else:
            self.show_notice(Notice(self.wording("history.exported", count=len(entries), file=str(path))))

    def _entry(self) -> HistoryEntry | None:
        entry = self._entries.get(self.key or "")
        if entry is None:
            self.show_notice(Notice(self.wording("history.none_chosen"), is_warning=True))
        return entry

    # What is shown

    def _show_entries(self) -> None:
        rows = [ListRow(key, self._line(entry)) for key, entry in self._entries.items()]
        if self._has_more:
            rows.append(ListRow(_MORE, Content.styled(self.wording("history.more"), "$text-accent")))
        key = "history.nothing_found" if self.query_text else f"history.empty_{self._scope}"
        self.show_rows(rows, empty=self.wording(key))
        self._show_state()

    def redraw_rows(self) -> None:
        """Leave out the date where the text would have no room."""
        self._show_entries()

    def _show_state(self) -> None:
        more = "+" if self._has_more else ""
        text = self.wording(f"history.scope_{self._scope}", count=f"{len(self._entries)}{more}")
        self.show_state(Content.styled(text, "$foreground-muted"))

    def _line(self, entry: HistoryEntry) -> Content:
        pair = f"{entry.source_lang} → {entry.target_lang}" if entry.target_lang else ""
        mark = "✎ " if entry.edited_at else "  "
        return Content("").join(
            [
                Content.styled(mark, "$text-accent"),
                Content() if self.is_tight else cell(day_text(entry.created_at), _DATE_CELLS, "$foreground-muted"),
                cell(pair, _TIGHT_PAIR_CELLS if self.is_tight else _PAIR_CELLS, "$foreground-muted")
                if pair
                else Content(),
                Content(sanitize(entry.source[:_TEXT_CELLS].replace("\n", " ⏎ "))),
            ]
        )

    def _language(self, tag: str) -> str:
        """Return what a language is called; a tag that is unknown today stays."""
        known = {language.tag: language for language in self.environment.languages}
        return language_name(known[tag], self.wording) if tag in known else tag

    def row_shown(self, key: str | None) -> None:
        """Show both texts of an entry."""
        entry = self._entries.get(key or "")
        if entry is None:
            self.show_detail(Content())
            return
        wording = self.wording
        edited = day_text(entry.edited_at) if entry.edited_at else ""
        facts = fact_lines([(wording("history.model"), entry.model), (wording("history.edited_at"), edited)])
        texts = [
            Content.styled(self._language(entry.source_lang) or wording("history.source"), "$text-accent bold"),
            Content(sanitize(entry.source)),
            Content.styled(self._language(entry.target_lang) or wording("history.target"), "$text-accent bold"),
            Content(sanitize(entry.target)),
        ]
        both = Content("\n\n").join([Content("\n").join(texts[:2]), Content("\n").join(texts[2:])])
        self.show_detail(both + Content("\n\n") + facts)


def day_text(seconds: int) -> str:
    """Return local date and time, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def export(path: Path, entries: list[HistoryEntry]) -> None:
    """Write entries: JSON lines when the name ends so, else tab-separated with escaped line ends.

    Raises:
        StoreError: the file cannot be written.
    """
    if path.suffix.lower() in {".jsonl", ".json"}:
        import msgspec

        text = "".join(msgspec.json.encode(entry).decode() + "\n" for entry in entries)
    else:
        fields = ((entry.source_lang, entry.target_lang, entry.source, entry.target) for entry in entries)
        text = "source_lang\ttarget_lang\tsource\ttarget\n"
        text += "".join("\t".join(map(_tab_safe, row)) + "\n" for row in fields)
    write_atomically(path, text)


def _tab_safe(text: str) -> str:
    escapes = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
    return "".join(escapes.get(character, character) for character in text)
