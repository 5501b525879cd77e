"""The line above the panes: from which language, into which, and the swap between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from hymt_local.language import Language
from hymt_local.sanitize import sanitize
from hymt_local.tui.wording import Wording


class Side(StrEnum):
    """Which of the two languages."""

    SOURCE = "source"
    TARGET = "target"

    @property
    def other(self) -> Side:
        """The opposite one."""
        return Side.TARGET if self is Side.SOURCE else Side.SOURCE


class Pressable(Static):
    """A word that acts when it is clicked, or with enter while it has the focus."""

    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space", "press", "Choose", show=False)]

    class Pressed(Message):
        """It was clicked or entered."""

        def __init__(self, pressable: Pressable) -> None:
            super().__init__()
            self.pressable = pressable

        @property
        def control(self) -> Pressable:
            """For `on` selectors."""
            return self.pressable

    def on_click(self, event: events.Click) -> None:
        """Act on a click."""
        event.stop()
        self.action_press()

    def action_press(self) -> None:
        """Tell the screen."""
        self.post_message(self.Pressed(self))


class LanguageBar(Horizontal):
    """Shows both languages. Args: the languages by tag, and the language of the program itself."""

    def __init__(self, languages: Mapping[str, Language], *, wording: Wording, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._languages = languages
        self._wording = wording

    def compose(self) -> ComposeResult:
        """Lay out the two languages and the swap sign."""
        yield Pressable(id="source-language", markup=False)
        yield Pressable("⇄", id="swap", markup=False)
        yield Pressable(id="target-language", markup=False)

    def show_source(self, tag: str | None, *, detected: str | None, confidence: float | None) -> None:
        """Show the source language, or what was detected when it is left open."""
        text = self._label(tag) if tag is not None else self._detected(detected, confidence)
        self.query_one("#source-language", Static).update(text)

    def show_target(self, tag: str, *, is_second: bool = False, guidance: str = "") -> None:
        """Show the target language and what shapes the translation.

        Args:
            tag: The language.
            is_second: It stands in because the text is in the first one already.
            guidance: What the model is told, in a few words.
        """
        second = f" · {self._wording('languages.second')}" if is_second else ""
        told = f" · {sanitize(guidance)}" if guidance else ""
        self.query_one("#target-language", Static).update(
            self._label(tag) + Content.styled(second, "$foreground-muted") + Content.styled(told, "$text-accent")
        )

    def _detected(self, tag: str | None, confidence: float | None) -> Content:
        if tag is None or tag not in self._languages:
            return Content.styled(self._wording("languages.detect"), "bold")
        share = "" if confidence is None else f" {confidence:.0%}"
        return self._label(tag) + Content.styled(
            f" · {self._wording('languages.detected')}{share}", "$foreground-muted"
        )

    def _label(self, tag: str) -> Content:
        """Return the name in the program's language, then the language's own where it differs."""
        language = self._languages.get(tag)
        if language is None:
            return Content.styled(tag, "bold")
        name = language_name(language, self._wording)
        own = "" if language.native == name else f" · {language.native}"
        return Content.assemble((name, "bold"), (own, "$foreground-muted"))


def language_name(language: Language, wording: Wording) -> str:
    """Return what a language is called in the language of the program."""
    return language.chinese if wording.language == "zh" else language.english
