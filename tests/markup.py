"""Doubles of the translator for documents with markup, and what of a document must not change."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser

from markdown_it import MarkdownIt
from markdown_it.token import Token

from hymt_local.documents.base import Document, Languages, MergeOptions, Unit
from hymt_local.segment import UnitText

LANGUAGES = Languages("en", "zh")
PLAIN = MergeOptions(LANGUAGES, sets_metadata=False)
_WIDE = {code: code + 0xFEE0 for code in range(ord("A"), ord("Z") + 1)}
_LETTER = re.compile(r"[^\W\d_]")


def parts_of(text: UnitText) -> list[tuple[str, bool]]:
    """Return the parts of a unit's text and whether each is protected."""
    parts, position = list[tuple[str, bool]](), 0
    for mark in text.protected:
        parts += [(text.text[position : mark.span.start], False), (mark.span.of(text.text), True)]
        position = mark.span.end
    return [*parts, (text.text[position:], False)]


def outside_protected(text: UnitText, change: Callable[[str], str]) -> str:
    """Return a unit's text with a change to what is not protected."""
    return "".join(part if is_protected else change(part) for part, is_protected in parts_of(text))


def literals(text: UnitText, change: Callable[[str], str] = str) -> str:
    """Return what is not protected in a text, changed."""
    return "".join(change(part) for part, is_protected in parts_of(text) if not is_protected)


def foreign(part: str) -> str:
    """Return text of which every stretch differs, whatever its script."""
    return _LETTER.sub(r"\g<0>ø", part.swapcase(), count=1)


def pseudo(unit: Unit) -> str:
    """Return a target whose every stretch of text differs and whose markup is the source's."""
    return outside_protected(unit.source, foreign)


def wide(unit: Unit) -> str:
    """Return a target as a script without word spaces has it: no spaces between letters, full-width punctuation."""
    return outside_protected(
        unit.source, lambda part: part.upper().translate(_WIDE | {ord(","): "，", ord("."): "。"}).replace(" ", "")
    )


def targets_of(document: Document, translate: Callable[[Unit], str]) -> dict[str, str]:
    """Return the targets of the units that the format accepts."""
    targets = {unit.id: translate(unit) for unit in document.units}
    return {unit.id: targets[unit.id] for unit in document.units if document.fault(unit, targets[unit.id]) is None}


def markdown_skeleton(text: str) -> list[tuple[object, ...]]:
    """Return the blocks of a text as the library reads it, each with the markup in it in any order."""
    return [
        (token.type, token.tag, token.info, "" if token.type == "inline" else _content(token), _inline(token))
        for token in _library().parse(text)
    ]


@cache
def _library() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def _content(token: Token) -> str:
    return "" if token.type == "html_block" else token.content


def _inline(token: Token) -> Counter[tuple[str, str, str]]:
    return Counter(
        (child.type, str(child.attrs), child.content if child.type in ("code_inline", "html_inline") else "")
        for child in token.children or ()
        if child.type not in ("text", "softbreak")
    )


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = ",".join(sorted(name for name, _ in attrs))
        self.tags.append(f"<{tag} {names}>")

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"</{tag}>")

    def handle_comment(self, data: str) -> None:
        self.tags.append(f"<!--{data}-->")


def html_skeleton(text: str) -> list[str]:
    """Return the tags and comments of a text as the standard library reads it, in order."""
    parser = _Tags()
    parser.feed(text)
    parser.close()
    return parser.tags
