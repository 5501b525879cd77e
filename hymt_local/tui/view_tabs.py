"""The first line: all views with their numbers, the present one marked. They can be clicked."""

from __future__ import annotations

from textual.content import Content
from textual.style import Style
from textual.widgets import Static

from hymt_local.tui.views import View
from hymt_local.tui.wording import Wording


class ViewTabs(Static):
    """Shows where one is and where one can go.

    Args:
        current: The view it is part of.
        wording: What the views are called.
        hint: Which key goes to the next view.
    """

    def __init__(self, current: View, *, wording: Wording, hint: str) -> None:
        super().__init__(id="tabs", markup=False)
        self._current = current
        self._wording = wording
        self._hint = hint

    def on_resize(self) -> None:
        """Show the tabs; where they have no room, only the one in front has a name."""
        whole = self._line(has_names=True)
        self.update(whole if whole.cell_length <= self.content_size.width else self._line(has_names=False))

    def _line(self, *, has_names: bool) -> Content:
        tabs = Content("").join(self._tab(view, has_name=has_names or view is self._current) for view in View)
        return tabs + Content.styled(f"  {self._hint}", "$foreground-muted")

    def _tab(self, view: View, *, has_name: bool) -> Content:
        name = self._wording(f"view.{view}") if has_name else ""
        if view is self._current:
            return Content.styled(f" {view.number} {name} ", "$text-primary bold on $primary-muted")
        click = Style.from_meta({"@click": f"app.view('{view}')"})
        label = Content.assemble((f" {view.number}", "$foreground-muted"), f" {name} " if name else " ")
        return label.stylize(click)
