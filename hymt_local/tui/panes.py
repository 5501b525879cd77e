"""The two panes: the source that is typed, the target that is shown."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import events
from textual.geometry import Offset
from textual.message import Message
from textual.widgets.text_area import Selection

from hymt_local.segment import Span
from hymt_local.tui.clusters import backspaced, boundary_after, boundary_at, boundary_before, word_pattern
from hymt_local.tui.compat import TYPED_CHARACTERS, TextPane, clean
from hymt_local.tui.terminal import Terminal


class MarkedPane(TextPane):
    """A pane of which a part can be pointed out."""

    def offset_of(self, location: tuple[int, int]) -> int:
        """Return how many characters stand before a row and column."""
        row, column = location
        return sum(len(self.document.get_line(index)) + 1 for index in range(row)) + column

    # The cursor stands where readers see the edge of a character

    def get_cursor_left_location(self) -> tuple[int, int]:
        """Go back over one whole character."""
        row, column = self.cursor_location
        return (row, boundary_before(self._line(row), column)) if column else super().get_cursor_left_location()

    def get_cursor_right_location(self) -> tuple[int, int]:
        """Go forward over one whole character."""
        row, column = self.cursor_location
        line = self._line(row)
        return (row, boundary_after(line, column)) if column < len(line) else super().get_cursor_right_location()

    def get_cursor_up_location(self) -> tuple[int, int]:
        """Go to the character above."""
        return self._at_edge(super().get_cursor_up_location())

    def get_cursor_down_location(self) -> tuple[int, int]:
        """Go to the character below."""
        return self._at_edge(super().get_cursor_down_location())

    def get_cursor_word_left_location(self) -> tuple[int, int]:
        """Go to the edge of a word before, in scripts that write vowels as marks too."""
        self._word_pattern = word_pattern()
        return self._at_edge(super().get_cursor_word_left_location())

    def get_cursor_word_right_location(self) -> tuple[int, int]:
        """Go to the next edge of a word."""
        self._word_pattern = word_pattern()
        return self._at_edge(super().get_cursor_word_right_location())

    def get_target_document_location(self, event: events.MouseEvent) -> tuple[int, int]:
        """Return the place of a click, never inside a character."""
        return self._at_edge(super().get_target_document_location(event))

    def _at_edge(self, location: tuple[int, int]) -> tuple[int, int]:
        row, column = location
        return row, boundary_at(self._line(row), column)

    def _line(self, row: int) -> str:
        return self.document.get_line(row)

    def select_span(self, span: Span) -> None:
        """Select a part of the text and bring it into view."""
        text = self.text
        self.selection = Selection(location_of(text, span.start), location_of(text, span.end))
        self.scroll_cursor_visible()


class SourceArea(MarkedPane):
    """The pane to type in."""

    class Pasted(Message):
        """Text came in at once, after the `Changed` of the same text."""

    def __init__(self, terminal: Terminal, *, placeholder: str, id: str) -> None:  # noqa: A002
        super().__init__(terminal, placeholder=placeholder, read_only=False, id=id)

    def check_consume_key(self, key: str, character: str | None = None) -> bool:
        """Tell Textual that these characters are text too."""
        return character in TYPED_CHARACTERS or super().check_consume_key(key, character)

    async def _on_key(self, event: events.Key) -> None:
        """Insert what TextArea's own handler, which Textual calls after this one, would drop."""
        if event.character in TYPED_CHARACTERS:
            event.stop()
            event.prevent_default()
            self._replace_via_keyboard(event.character, *self.selection)

    async def _on_paste(self, event: events.Paste) -> None:
        """Insert cleaned text in place of TextArea's own handler."""
        event.stop()
        event.prevent_default()
        self.insert_cleaned(event.text)
        self.post_message(self.Pasted())

    def action_paste(self) -> None:
        """Paste the program's own clipboard."""
        self.insert_cleaned(self.app.clipboard)
        self.post_message(self.Pasted())

    def insert_cleaned(self, text: str) -> None:
        """Put text in place of the selection, as typing would."""
        self._replace_via_keyboard(clean(text), *self.selection)
        self.focus()

    def action_delete_left(self) -> None:
        """Take back what was typed last: a whole emoji, but a vowel sign alone."""
        row, column = self.cursor_location
        if self.selection.is_empty and column:
            self._delete_via_keyboard((row, backspaced(self._line(row), column)), (row, column))
        else:
            super().action_delete_left()

    def rewrite(self, text: str) -> None:
        """Replace all text in one step that undo takes back."""
        self.history.checkpoint()
        self.replace(clean(text), (0, 0), self.document.end, maintain_selection_offset=False)
        self.history.checkpoint()


class TargetArea(MarkedPane):
    """The pane that shows a translation: streamed to, selected and copied from, never typed in."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"target--failed", "target--doubtful"}

    def __init__(self, terminal: Terminal, *, placeholder: str, id: str) -> None:  # noqa: A002
        super().__init__(terminal, placeholder=placeholder, read_only=True, id=id)
        self.shown = ""
        """All text of the pane, cleaned; TextArea's own copy may differ in line ends."""
        self._failed_rows: frozenset[int] = frozenset()
        self._doubtful_rows: frozenset[int] = frozenset()
        self._is_writing = False

    def show(
        self, text: str, *, failed_rows: frozenset[int] = frozenset(), doubtful_rows: frozenset[int] = frozenset()
    ) -> None:
        """Show `text`, writing only what differs from what is shown; follows its end if the reader was there.

        Args:
            text: All of it, not yet sanitized.
            failed_rows: Lines, counted from 0, to be marked as left untranslated.
            doubtful_rows: Lines to be marked as worth a look.
        """
        text = clean(text)
        if (failed_rows, doubtful_rows) != (self._failed_rows, self._doubtful_rows):
            self._failed_rows, self._doubtful_rows = failed_rows, doubtful_rows
            self._line_cache.clear()
            self.refresh()
        if text == self.shown:
            return
        kept = _common_length(self.shown, text)
        is_following = kept > 0 and self.is_vertical_scroll_end
        self._write(text[kept:], start=location_of(text, kept))
        self.shown = text
        if is_following:
            self.scroll_end(animate=False)
        elif kept == 0:
            self.scroll_home(animate=False)

    def follow_language(self, tag: str) -> None:
        """Learn in which language the text is."""

    def get_line(self, line_index: int) -> Text:
        """Return one line; those left untranslated are marked."""
        line = super().get_line(line_index)
        if line_index in self._failed_rows:
            line.stylize(self.get_component_rich_style("target--failed", partial=True))
        elif line_index in self._doubtful_rows:
            line.stylize(self.get_component_rich_style("target--doubtful", partial=True))
        return line

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        """Follow the cursor when the user moves it, not when text is written."""
        return Offset() if self._is_writing else super().scroll_cursor_visible(center, animate)

    def _write(self, text: str, *, start: tuple[int, int]) -> None:
        """Replace everything from `start` on; cursor and selection stay where they are."""
        self._is_writing = True
        try:
            selection = self.selection
            self.replace(text, start, self.document.end)
            self.selection = Selection(self.clamp_visitable(selection.start), self.clamp_visitable(selection.end))
        finally:
            self._is_writing = False
        self.history.clear()  # undo works in a read-only TextArea too: it would take the translation back


def _common_length(one: str, other: str) -> int:
    """Return the length of the common beginning."""
    limit = min(len(one), len(other))
    if one[:limit] == other[:limit]:
        return limit
    return next(index for index in range(limit) if one[index] != other[index])


def location_of(text: str, offset: int) -> tuple[int, int]:
    """Return row and column of an offset."""
    return text.count("\n", 0, offset), offset - (text.rfind("\n", 0, offset) + 1)
