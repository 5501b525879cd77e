"""Other translations on demand: up to four sampled candidates, and the translation translated back."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from hymt_local.events import Failed, Finished, Origin, SamplingParams, TextDelta, TranslationRequest
from hymt_local.sanitize import sanitize
from hymt_local.tui.environment import Environment
from hymt_local.tui.steady_screen import SteadyScreen

MOST_CANDIDATES = 4
TEMPERATURES = (0.0, 0.7, 0.9, 1.1)
"""The likeliest first, then bolder and bolder."""


class AlternativesScreen(SteadyScreen, ModalScreen[str | None]):
    """Shows candidates as they come; enter takes one.

    Args:
        environment: Service and wording.
        request: What was translated; it should not use the cache.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", show=False)]

    def __init__(self, environment: Environment, request: TranslationRequest) -> None:
        super().__init__()
        self._environment = environment
        self._wording = environment.wording
        self._request = request
        self._candidates: list[str] = []
        self._n_open = MOST_CANDIDATES

    def compose(self) -> ComposeResult:
        """Lay out title, candidates and keys."""
        with Vertical(id="dialog", classes="-wide"):
            yield Static(Content.styled(self._wording("alternatives.title"), "bold"), id="dialog-title", markup=False)
            yield OptionList(id="choices", markup=False)
            yield Static(self._wording("alternatives.asking"), id="dialog-help", markup=False)

    def on_mount(self) -> None:
        """Ask for all candidates at once: the engine decodes them together."""
        self.query_one(OptionList).focus()
        for seed, temperature in enumerate(TEMPERATURES, start=1):
            self._ask(
                msgspec.structs.replace(
                    self._request, sampling=SamplingParams(temperature, top_k=40, top_p=0.9, seed=seed)
                )
            )

    @work(group="alternatives", exit_on_error=False)
    async def _ask(self, request: TranslationRequest) -> None:
        job = self._environment.service.submit(request)
        try:
            async for event in job:
                if isinstance(event, Finished) and event.origin is not Origin.SOURCE:
                    self._add(event.text)
                elif isinstance(event, Failed):
                    self.query_one("#dialog-help", Static).update(sanitize(event.error.message))
        finally:
            job.cancel()
        self._n_open -= 1
        if not self._n_open and self._candidates:
            self.query_one("#dialog-help", Static).update(self._wording("alternatives.help"))

    def _add(self, text: str) -> None:
        if text in self._candidates:
            return
        self._candidates.append(text)
        options = self.query_one(OptionList)
        if len(self._candidates) > 1:
            options.add_option(None)  # a line between them
        options.add_option(Option(Content(sanitize(text)), id=str(len(self._candidates) - 1)))
        if options.highlighted is None:
            options.highlighted = 0

    @on(OptionList.OptionSelected)
    def _take(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._candidates[int(event.option.id or 0)])


class BackTranslationScreen(SteadyScreen, ModalScreen[None]):
    """Shows what a translation says when it is translated back.

    Args:
        environment: Service and wording.
        request: The translation as a text to translate.
        original: What it was translated from.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "dismiss(None)", show=False)]

    def __init__(self, environment: Environment, request: TranslationRequest, *, original: str) -> None:
        super().__init__()
        self._environment = environment
        self._wording = environment.wording
        self._request = request
        self._original = original

    def compose(self) -> ComposeResult:
        """Lay out the original and what came back."""
        with Vertical(id="dialog", classes="-wide"), VerticalScroll(id="help"):
            yield Static(self._heading("back.original"), markup=False)
            yield Static(sanitize(self._original), classes="passage", markup=False)
            yield Static(self._heading("back.title"), markup=False)
            yield Static(self._wording("back.asking"), id="back", classes="passage", markup=False)

    def on_mount(self) -> None:
        """Ask."""
        self._ask()

    def _heading(self, key: str) -> Content:
        return Content.styled(self._wording(key), "$text-accent bold")

    @work(group="back", exit_on_error=False)
    async def _ask(self) -> None:
        shown = ""
        job = self._environment.service.submit(self._request)
        try:
            async for event in job:
                match event:
                    case TextDelta() if event.segment == 0:
                        shown += event.text
                    case Finished():
                        shown = event.text
                    case Failed():
                        shown = event.error.message
                    case _:
                        continue
                self.query_one("#back", Static).update(sanitize(shown))
        finally:
            job.cancel()
