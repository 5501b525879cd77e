"""What the model is told beside the text: style, context and terms, as far as it was trained to take them."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static, TextArea

from hymt_local.catalog import ModelSpec
from hymt_local.prompts import takes_guidance
from hymt_local.sanitize import sanitize
from hymt_local.segment import Guidance, GuidanceKind, Term
from hymt_local.tui.environment import Environment
from hymt_local.tui.line_input import LineInput
from hymt_local.tui.panes import SourceArea
from hymt_local.tui.steady_screen import SteadyScreen

_ORDER = (GuidanceKind.STYLE, GuidanceKind.CONTEXT, GuidanceKind.TERMS)


class GuidanceDialog(SteadyScreen, ModalScreen[Guidance | None]):
    """Asks for style, context and terms; says what the model cannot be told, and keeps it for one that can.

    Args:
        environment: Wording and terminal.
        spec: The model in use.
        guidance: What it is told now.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False, priority=True),
        Binding("ctrl+s,ctrl+enter", "take", show=False, priority=True),
    ]

    def __init__(self, environment: Environment, spec: ModelSpec, guidance: Guidance) -> None:
        super().__init__()
        self._wording = environment.wording
        self._terminal = environment.terminal
        self._title = spec.title
        self._taken = frozenset(kind for kind in GuidanceKind if takes_guidance(spec, kind))
        self._guidance = guidance

    def compose(self) -> ComposeResult:
        """Lay out the three fields, each below its name."""
        wording, guidance = self._wording, self._guidance
        with Vertical(id="dialog", classes="-wide -guidance"):
            yield Static(self._heading(), id="dialog-title", markup=False)
            for kind in _ORDER:
                yield self._label(kind)
                if not self._is_open(kind):
                    continue
                if kind is GuidanceKind.STYLE:
                    hint = wording("guidance.style_hint")
                    yield LineInput(guidance.style, hint, id="guidance-style", select_on_focus=False)
                else:
                    yield self._area(kind)
            yield Static(id="problem", markup=False)
            help_key = "guidance.help" if any(map(self._is_open, GuidanceKind)) else "guidance.close"
            yield Static(wording(help_key), id="dialog-help", markup=False)

    def on_mount(self) -> None:
        """Show what is told now; begin with the first field that the model takes."""
        lines = "\n".join(f"{term.source} = {term.target}" for term in self._guidance.terms)
        for kind, text in ((GuidanceKind.CONTEXT, self._guidance.context), (GuidanceKind.TERMS, lines)):
            for area in self.query(f"#guidance-{kind}").results(SourceArea):
                area.rewrite(text)
        for kind in reversed(_ORDER):
            for field in self.query(f"#guidance-{kind}"):
                field.focus()

    def _is_open(self, kind: GuidanceKind) -> bool:
        """Tell whether there is a field: what the model does not take can still be changed, but not begun."""
        return kind in self._taken or kind in self._guidance.kinds

    def _heading(self) -> Content:
        key = "guidance.title" if self._taken else "guidance.nothing"
        return Content.styled(sanitize(self._wording(key, model=self._title)), "bold")

    def _label(self, kind: GuidanceKind) -> Static:
        name = Content.styled(self._wording(f"guidance.{kind}"), "$text-accent bold")
        note = self._wording(f"guidance.{kind}_note")
        if kind not in self._taken:
            note = sanitize(self._wording("guidance.not_taken", model=self._title))
        style = "$foreground-muted" if kind in self._taken else "$text-warning"
        return Static(name + Content.styled(f"  {note}", style), classes="guidance-label", markup=False)

    def _area(self, name: str) -> SourceArea:
        area = SourceArea(self._terminal, placeholder=self._wording(f"guidance.{name}_hint"), id=f"guidance-{name}")
        area.tab_behavior = "focus"
        return area

    @on(TextArea.Changed, "#guidance-terms")
    def _terms_changed(self) -> None:
        self._show_problem()

    @on(Input.Submitted, "#guidance-style")
    def _style_submitted(self) -> None:
        self.action_take()

    def action_take(self) -> None:
        """Take what is typed, unless a term lacks a side."""
        if self._show_problem():
            return
        styles = [field.value.strip() for field in self.query("#guidance-style").results(Input)]
        self.dismiss(
            Guidance(
                tuple(parsed_terms(self._text(GuidanceKind.TERMS))[0]),
                self._text(GuidanceKind.CONTEXT).strip(),
                "".join(styles),
            )
        )

    def action_leave(self) -> None:
        """Change nothing."""
        self.dismiss(None)

    def _text(self, kind: GuidanceKind) -> str:
        """Return what is typed into an area; nothing where there is none."""
        return "".join(area.text for area in self.query(f"#guidance-{kind}").results(SourceArea))

    def _show_problem(self) -> bool:
        """Say which line is no term; tell whether there is one."""
        wrong = parsed_terms(self._text(GuidanceKind.TERMS))[1]
        text = self._wording("guidance.wrong_term", line=sanitize(wrong[0])) if wrong else ""
        self.query_one("#problem", Static).update(Content.styled(text, "$text-error"))
        return bool(wrong)


def parsed_terms(text: str) -> tuple[list[Term], list[str]]:
    """Return the terms of lines such as `cat = chat`, and the lines that are none; of equal ones the last holds."""
    terms: dict[str, Term] = {}
    wrong: list[str] = []
    for line in filter(str.strip, text.split("\n")):
        source, _, target = (part.strip() for part in line.partition("="))
        if source and target:
            terms[source] = Term(source, target)
        else:
            wrong.append(line.strip())
    return list(terms.values()), wrong
