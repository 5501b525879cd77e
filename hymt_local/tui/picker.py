"""Lists to pick from by typing: languages and models."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from hymt_local.language import Language
from hymt_local.sanitize import sanitize
from hymt_local.tui.choices import ModelChoice
from hymt_local.tui.language_bar import Side, language_name
from hymt_local.tui.languages import DETECT, search
from hymt_local.tui.line_input import LineInput
from hymt_local.tui.steady_screen import SteadyScreen
from hymt_local.tui.wording import Wording

PickT = TypeVar("PickT")
_LEAST_CELLS = 10


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a list."""

    key: str
    columns: tuple[str, ...]
    """Shown left to right; the last may be in any script, since nothing stands behind it."""


class PickerScreen(SteadyScreen, ModalScreen[PickT | None], Generic[PickT]):
    """A searchable list. The search field keeps the focus; arrows move the choice, enter takes it, escape leaves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close", show=False),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "move(-8)", show=False),
        Binding("pagedown", "move(8)", show=False),
    ]
    COLUMN_CELLS: ClassVar[tuple[int, ...]] = (24, 9)

    def __init__(self, wording: Wording) -> None:
        super().__init__()
        self.wording = wording

    def compose(self) -> ComposeResult:
        """Lay out title, search field, list and a line of help."""
        with Vertical(id="dialog"):
            yield Static(id="dialog-title", markup=False)
            yield LineInput(placeholder=self.wording("picker.search"), id="search", select_on_focus=False)
            yield OptionList(id="choices", markup=False)
            yield Static(self.help_line(), id="dialog-help", markup=False)

    def on_mount(self) -> None:
        """Fill the list."""
        self.query_one(OptionList).can_focus = False
        self.reload()

    @abstractmethod
    def title_line(self) -> Content:
        """Return what is being chosen."""

    @abstractmethod
    def help_line(self) -> str:
        """Return the keys that are not obvious."""

    @abstractmethod
    def rows(self, query: str) -> Sequence[Row]:
        """Return the rows for a query, best first."""

    @abstractmethod
    def current_key(self) -> str:
        """Return the key of the row that is in force now."""

    @abstractmethod
    def picked(self, key: str) -> PickT:
        """Return what picking a row means."""

    def reload(self) -> None:
        """Rebuild the list for what is typed."""
        query = self.query_one(Input).value
        rows = self.rows(query)
        self.query_one("#dialog-title", Static).update(self.title_line())
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([Option(self._line(row), id=row.key) for row in rows])
        keys = [row.key for row in rows]
        at_current = keys.index(self.current_key()) if not query and self.current_key() in keys else 0
        options.highlighted = at_current if rows else None

    def _column_cells(self) -> tuple[int, ...]:
        """Return how wide the columns are: on a narrow terminal the last one must not fall off the edge."""
        most = max(_LEAST_CELLS, self.app.size.width * 2 // 5)
        return tuple(min(cells, most) for cells in self.COLUMN_CELLS)

    def _line(self, row: Row) -> Content:
        padded = [
            Content(sanitize(text)).truncate(cells).pad_right(max(0, cells - Content(sanitize(text)).cell_length))
            for text, cells in zip(row.columns, self._column_cells(), strict=False)
        ]
        last = [Content(sanitize(text)) for text in row.columns[len(self.COLUMN_CELLS) :]]
        mark = Content.styled("● ", "$text-accent") if row.key == self.current_key() else Content("  ")
        return mark + Content("").join([*padded, *last])

    @on(Input.Changed, "#search")
    def _search(self) -> None:
        self.reload()

    @on(Input.Submitted, "#search")
    def _search_submitted(self) -> None:
        self.submit()

    def submit(self) -> None:
        """Take the row under the cursor, if there is one."""
        options = self.query_one(OptionList)
        if options.highlighted is not None:
            self._take(options.get_option_at_index(options.highlighted))

    @on(OptionList.OptionSelected, "#choices")
    def _take_clicked(self, event: OptionList.OptionSelected) -> None:
        self._take(event.option)

    def _take(self, option: Option) -> None:
        """Take one row."""
        self.dismiss(self.picked(option.id or ""))

    def action_move(self, rows: int) -> None:
        """Move the choice by a number of rows."""
        options = self.query_one(OptionList)
        if options.option_count:
            position = (options.highlighted or 0) + rows
            options.highlighted = max(0, min(position, options.option_count - 1))


@dataclass(frozen=True, slots=True)
class LanguagePicked:
    """A language was chosen."""

    side: Side
    tag: str | None
    """None means: detect it."""


class LanguagePicker(PickerScreen[LanguagePicked]):
    """Chooses one of the two languages; F2 or tab turns to the other.

    Args:
        languages: In the order to show them.
        side: Which one is chosen first.
        tags: The languages in force; None stands for detection.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f2,tab,shift+tab", "turn", "Other language", show=False, priority=True)
    ]

    def __init__(
        self, languages: Sequence[Language], *, wording: Wording, side: Side, tags: dict[Side, str | None]
    ) -> None:
        super().__init__(wording)
        self._languages = languages
        self._side = side
        self._tags = tags

    def title_line(self) -> Content:
        """Show both sides, the active one marked."""
        parts = [
            Content.styled(f" {name} ", "$text-accent bold underline" if side is self._side else "$foreground-muted")
            for side, name in ((Side.SOURCE, self.wording("picker.from")), (Side.TARGET, self.wording("picker.into")))
        ]
        return Content("  ").join(parts)

    def help_line(self) -> str:
        """Return the keys."""
        return self.wording("picker.language_help")

    def rows(self, query: str) -> Sequence[Row]:
        """Return the matching languages; detection comes first on the source side."""
        found = [
            Row(language.tag, (language_name(language, self.wording), language.tag, language.native))
            for language in search(query, self._languages)
        ]
        detect = self.wording("languages.detect")
        is_detection_shown = self._side is Side.SOURCE and detect.casefold().startswith(query.strip().casefold())
        return [Row(DETECT, (detect, DETECT, "")), *found] if is_detection_shown else found

    def current_key(self) -> str:
        """Return the tag in force on this side."""
        return self._tags[self._side] or DETECT

    def picked(self, key: str) -> LanguagePicked:
        """Return the choice."""
        return LanguagePicked(self._side, None if key == DETECT else key)

    def action_turn(self) -> None:
        """Turn to the other language."""
        self._side = self._side.other
        self.query_one(Input).value = ""
        self.reload()


class ModelPicker(PickerScreen[ModelChoice]):
    """Chooses the model. Args: what can be used now, and the one in force."""

    COLUMN_CELLS = (30,)

    def __init__(self, models: Sequence[ModelChoice], *, wording: Wording, current: ModelChoice) -> None:
        super().__init__(wording)
        self._models = models
        self._current = current

    def title_line(self) -> Content:
        """Return what is being chosen."""
        return Content.styled(self.wording("picker.model"), "bold")

    def help_line(self) -> str:
        """Return the keys, and where more models come from."""
        return self.wording("picker.model_help")

    def rows(self, query: str) -> Sequence[Row]:
        """Return the models whose reference or title holds the query."""
        wanted = query.strip().casefold()
        return [
            Row(model.ref, (model.ref, model.title))
            for model in self._models
            if wanted in f"{model.ref} {model.title}".casefold()
        ]

    def current_key(self) -> str:
        """Return the reference in force."""
        return self._current.ref

    def picked(self, key: str) -> ModelChoice:
        """Return the choice."""
        return next(model for model in self._models if model.ref == key)
