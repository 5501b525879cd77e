"""Small questions: a path, a text to change, a yes or no."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from hymt_local.sanitize import REPLACEMENT, sanitize
from hymt_local.tui.environment import Environment
from hymt_local.tui.panes import SourceArea
from hymt_local.tui.picker import PickerScreen, Row
from hymt_local.tui.steady_screen import SteadyScreen
from hymt_local.tui.wording import Wording

_MOST_ROWS = 200
"""Of a folder: who has more types a few letters."""


class PathDialog(PickerScreen[Path]):
    """Asks for a file: what is typed is completed from the folder it names.

    Args:
        wording: The language of the program.
        title: What the file is for.
        start: What stands in the field at first: a folder to look in, or a file to write.
        is_new: The file may not exist yet; enter then takes what is typed.
    """

    COLUMN_CELLS = ()
    BINDINGS: ClassVar[list[BindingType]] = [Binding("tab", "complete", show=False, priority=True)]

    def __init__(self, wording: Wording, *, title: str, start: str, is_new: bool) -> None:
        super().__init__(wording)
        self._title = title
        self._start = start
        self._is_new = is_new

    def on_mount(self) -> None:
        """Begin with the folder."""
        super().on_mount()
        self.query_one(Input).value = self._start

    def title_line(self) -> Content:
        """Return what the file is for."""
        return Content.styled(self._title, "bold")

    def help_line(self) -> str:
        """Return the keys."""
        return self.wording("path.help_new" if self._is_new else "path.help")

    def rows(self, query: str) -> Sequence[Row]:
        """Return the entries of the folder that begin as typed: folders first, hidden ones when asked for."""
        folder, beginning = _folder_and_beginning(query)
        wanted = [entry for entry in _entries(folder) if entry.name.casefold().startswith(beginning.casefold())]
        shown = [entry for entry in wanted if beginning.startswith(".") or not entry.name.startswith(".")]
        return [Row(str(entry), (_shown_name(entry),)) for entry in shown[:_MOST_ROWS]]

    def current_key(self) -> str:
        """Return nothing: no entry is in force."""
        return ""

    def picked(self, key: str) -> Path:
        """Return the file."""
        return Path(key)

    def action_complete(self) -> None:
        """Take the highlighted entry into the field."""
        options = self.query_one(OptionList)
        if options.highlighted is not None:
            self._write(options.get_option_at_index(options.highlighted).id or "")

    def submit(self) -> None:
        """Take what is typed where it is a file, or may become one; else enter the folder under the cursor."""
        typed = _expanded(self.query_one(Input).value)
        options = self.query_one(OptionList)
        highlighted = None if options.highlighted is None else options.get_option_at_index(options.highlighted).id
        may_be_made = self._is_new and typed.name and not _is_folder(typed) and _is_folder(typed.parent)
        if _is_file(typed) or may_be_made:
            self.dismiss(typed)
        elif highlighted is not None:
            self._enter(Path(highlighted))

    def _take(self, option: Option) -> None:
        self._enter(Path(option.id or ""))

    def _enter(self, path: Path) -> None:
        if _is_folder(path) or self._is_new:
            self._write(str(path))
        else:
            self.dismiss(path)

    def _write(self, path: str) -> None:
        field = self.query_one(Input)
        field.value = path + ("/" if _is_folder(Path(path)) and not path.endswith("/") else "")
        field.cursor_position = len(field.value)


def _folder_and_beginning(query: str) -> tuple[Path, str]:
    folder, slash, beginning = query.rpartition("/")
    return _expanded(folder + slash or "."), beginning


def _expanded(typed: str) -> Path:
    """Return the path that is meant; `~` of a user who does not exist stays as it is."""
    return Path(os.path.expanduser(typed))  # noqa: PTH111 - Path.expanduser raises for such a user


# Half of what is typed is no path yet: unlike those of Path, these answer no instead of raising.


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113


def _entries(folder: Path) -> Iterator[Path]:
    """Yield the folders in a folder, then its files; pipes and devices, which never end, are left out."""
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name.casefold())
    except (OSError, ValueError):
        return
    yield from (entry for entry in entries if _is_folder(entry))
    yield from (entry for entry in entries if _is_file(entry))


def _shown_name(entry: Path) -> str:
    """Return the name in one line."""
    return entry.name.replace("\n", REPLACEMENT) + ("/" if _is_folder(entry) else "")


class TextDialog(SteadyScreen, ModalScreen[str | None]):
    """Lets a text be changed; ctrl+s takes it.

    Args:
        environment: Wording and terminal.
        title: What the text is.
        note: What stands above it, such as the source of a translation.
        text: What it is now.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False, priority=True),
        Binding("ctrl+s,ctrl+enter", "take", show=False, priority=True),
    ]

    def __init__(self, environment: Environment, *, title: str, note: str, text: str) -> None:
        super().__init__()
        self._environment = environment
        self._title = title
        self._note = note
        self._text = text

    def compose(self) -> ComposeResult:
        """Lay out title, note and text."""
        with Vertical(id="dialog", classes="-wide"):
            yield Static(Content.styled(self._title, "bold"), id="dialog-title", markup=False)
            yield Static(sanitize(self._note), id="dialog-note", markup=False)
            yield SourceArea(self._environment.terminal, placeholder="", id="dialog-text")
            yield Static(self._environment.wording("dialog.text_help"), id="dialog-help", markup=False)

    def on_mount(self) -> None:
        """Show the text."""
        area = self.query_one(SourceArea)
        area.rewrite(self._text)
        area.focus()

    def action_take(self) -> None:
        """Take the text as it is now."""
        self.dismiss(self.query_one(SourceArea).text)

    def action_leave(self) -> None:
        """Change nothing."""
        self.dismiss(None)


class QuestionDialog(SteadyScreen, ModalScreen[bool]):
    """Asks a question that `y` or enter answers with yes.

    Args:
        wording: The language of the program.
        title: The question.
        text: What is to be known before answering.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "answer(False)", show=False),
        Binding("y,enter", "answer(True)", show=False),
    ]

    def __init__(self, wording: Wording, *, title: str, text: str) -> None:
        super().__init__()
        self._wording = wording
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        """Lay out question and answers."""
        with Vertical(id="dialog", classes="-question"):
            yield Static(Content.styled(sanitize(self._title), "bold"), classes="dialog-question", markup=False)
            yield Static(sanitize(self._text), id="dialog-note", markup=False)
            yield Static(self._wording("dialog.question_help"), id="dialog-help", markup=False)

    def action_answer(self, answer: bool) -> None:
        """Give the answer."""
        self.dismiss(answer)
