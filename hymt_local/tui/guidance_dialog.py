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


class GuidanceDialog(ModalScreen[Guidance | None]):
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
            yield self._label(GuidanceKind.STYLE)
            yield LineInput(
                value=guidance.style,
                placeholder=wording("guidance.style_hint"),
                id="guidance-style",
                select_on_focus=False,
            )
            yield self._label(GuidanceKind.CONTEXT)
            yield self._area("context")
            yield self._label(GuidanceKind.TERMS)
            yield self._area("terms")
            yield Static(id="problem", markup=False)
            yield Static(wording("guidance.help"), id="dialog-help", markup=False)

    def on_mount(self) -> None:
        """Show what is told now; begin with the first field that the model takes."""
        self.query_one("#guidance-context", SourceArea).rewrite(self._guidance.context)
        lines = "\n".join(f"{term.source} = {term.target}" for term in self._guidance.terms)
        self.query_one("#guidance-terms", SourceArea).rewrite(lines)
        for kind in GuidanceKind:
            self.query_one(f"#guidance-{kind}").disabled = not self._is_open(kind)
        order = (GuidanceKind.STYLE, GuidanceKind.CONTEXT, GuidanceKind.TERMS)
        first = next((kind for kind in order if self._is_open(kind)), None)
        if first is not None:
            self.query_one(f"#guidance-{first}").focus()

    def _is_open(self, kind: GuidanceKind) -> bool:
        """Tell whether a field can be changed: what the model does not take can still be emptied."""
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
        self.dismiss(
            Guidance(
                tuple(parsed_terms(self._terms_text)[0]),
                self.query_one("#guidance-context", SourceArea).text.strip(),
                self.query_one("#guidance-style", Input).value.strip(),
            )
        )

    def action_leave(self) -> None:
        """Change nothing."""
        self.dismiss(None)

    @property
    def _terms_text(self) -> str:
        return self.query_one("#guidance-terms", SourceArea).text

    def _show_problem(self) -> bool:
        """Say which line is no term; tell whether there is one."""
        wrong = parsed_terms(self._terms_text)[1]
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
