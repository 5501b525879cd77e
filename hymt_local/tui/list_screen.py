"""What the views with a list have in common: rows on one side, what is known of the chosen one on the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from hymt_local.sanitize import sanitize
from hymt_local.tui.environment import Environment
from hymt_local.tui.line_input import LineInput
from hymt_local.tui.view_screen import ViewScreen

NO_ROWS = "no-rows"
"""Id of what stands in an empty list."""
TIGHT_COLUMNS = 60
"""On narrower terminals rows leave out what the details tell too."""


@dataclass(frozen=True, slots=True)
class ListRow:
    """One row; a row without a key is a heading that cannot be chosen."""

    key: str
    line: Content


class ListScreen(ViewScreen):
    """A searchable list with details. Subclasses fill the rows and say what choosing one means."""

    HAS_SEARCH = False
    AUTO_FOCUS = "#rows"

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._is_tight = False

    def compose_view(self) -> ComposeResult:
        """Lay out search field, list and details."""
        with Container(id="list-panes"):
            with Vertical(id="list-side"):
                if self.HAS_SEARCH:
                    yield LineInput(placeholder=self.wording("list.search"), id="search", select_on_focus=False)
                yield OptionList(id="rows", markup=False)
            with VerticalScroll(id="detail-side"):
                yield Static(id="detail", markup=False)

    def on_resize(self, event: Resize) -> None:
        """Draw the rows anew where there is room for other columns now."""
        if self.is_tight != self._is_tight:
            self._is_tight = self.is_tight
            self.redraw_rows()

    @property
    def is_tight(self) -> bool:
        """Whether rows have room for what matters most only."""
        return self.app.size.width < TIGHT_COLUMNS

    # For subclasses

    def redraw_rows(self) -> None:
        """Show the same rows again: `is_tight` has changed."""

    def row_shown(self, key: str | None) -> None:
        """Show what is known of the row under the cursor; None when there is none."""

    def row_chosen(self, key: str) -> None:
        """Do what enter does to a row."""

    def search_changed(self, query: str) -> None:
        """Show the rows for another query."""

    # For use by subclasses

    def show_rows(self, rows: Sequence[ListRow], *, empty: str = "") -> None:
        """Replace all rows; the cursor stays on its row if that is still there, else near it.

        Args:
            rows: In order.
            empty: What to say when there are none.
        """
        options = self.query_one("#rows", OptionList)
        key, position = self.key, options.highlighted or 0
        options.clear_options()
        options.add_options(_options(rows))
        keys = [row.key for row in rows]
        choosable = [index for index, row in enumerate(rows) if row.key]
        if key in keys:
            options.highlighted = keys.index(key)
        elif choosable:
            options.highlighted = min(choosable, key=lambda index: abs(index - position))
        else:
            options.add_option(Option(Content.styled(empty, "$foreground-muted"), id=NO_ROWS, disabled=True))
            self.show_detail(Content())

    def choose_row(self, key: str) -> None:
        """Move the cursor to a row."""
        options = self.query_one("#rows", OptionList)
        options.highlighted = next((i for i, option in enumerate(options.options) if option.id == key), None)

    def update_row(self, row: ListRow) -> None:
        """Redraw one row, if it is there."""
        options = self.query_one("#rows", OptionList)
        index = next((index for index, option in enumerate(options.options) if option.id == row.key), None)
        if index is not None:
            options.replace_option_prompt_at_index(index, row.line)

    def show_detail(self, detail: Content) -> None:
        """Show what is known of the row under the cursor."""
        self.query_one("#detail", Static).update(detail)

    @property
    def key(self) -> str | None:
        """The key of the row under the cursor."""
        option = self.query_one("#rows", OptionList).highlighted_option
        return None if option is None else option.id

    @property
    def query_text(self) -> str:
        """What is typed into the search field."""
        return self.query_one("#search", Input).value if self.HAS_SEARCH else ""

    def action_search(self) -> None:
        """Go to the search field."""
        self.query_one("#search", Input).focus()

    @on(Input.Changed, "#search")
    def _search_changed(self, event: Input.Changed) -> None:
        self.search_changed(event.value)

    @on(Input.Submitted, "#search")
    def _search_submitted(self) -> None:
        self.query_one("#rows").focus()

    @on(OptionList.OptionHighlighted, "#rows")
    def _row_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self.row_shown(event.option.id)

    @on(OptionList.OptionSelected, "#rows")
    def _row_selected(self, event: OptionList.OptionSelected) -> None:
        if event.option.id:
            self.row_chosen(event.option.id)


def _options(rows: Iterable[ListRow]) -> list[Option]:
    return [Option(row.line, id=row.key or None, disabled=not row.key) for row in rows]


def cell(text: str, cells: int, style: str = "") -> Content:
    """Return a text as a column of so many cells: cut or filled with spaces."""
    content = Content(sanitize(text.replace("\n", " ⏎ ").replace("\t", " ")))
    if content.cell_length > cells:
        content = content.truncate(cells, ellipsis=True)
    padded = content.pad_right(max(0, cells - content.cell_length))
    return padded.stylize(style) if style else padded


def fact_lines(facts: Iterable[tuple[str, str]]) -> Content:
    """Return facts below each other, their values in one column."""
    known = [(name, value) for name, value in facts if value]
    width = max((Content(name).cell_length for name, _ in known), default=0) + 2
    lines = [cell(name, width, "$foreground-muted") + Content(sanitize(value)) for name, value in known]
    return Content("\n").join(lines)
