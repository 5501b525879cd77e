"""An HTML text with its translatable parts, and how targets are put back into it.

A page knows nothing of bytes and files: the HTML inside a Markdown document is a page too.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

from hymt_local.documents.html_reader import AttributePart, HtmlPart, HtmlReader, TextPart, tag_name
from hymt_local.documents.html_scan import Attribute, HtmlToken, TokenType, scan
from hymt_local.documents.inline_window import split_at_marks, unwritable
from hymt_local.documents.patching import Patch, apply_patches
from hymt_local.segment import Span, TokenKind

_BRACES = re.compile(r"\{\{|\{%|\{#|\}\}|%\}|#\}")
_TERMINATOR = re.compile(r"(?<=[-%?\]])>")  # could end what the page has begun and never ended
_SPACES = re.compile(r"[ \t\n\r\f]+")


class HtmlPage:
    """An HTML text that was read."""

    def __init__(self, text: str) -> None:
        self.text = text
        reader = HtmlReader(text)
        self.parts: Sequence[HtmlPart] = sorted(reader.parts(), key=lambda part: (part.span.start, -part.span.end))
        self.html_tag: HtmlToken | None = reader.html_tag
        self.language_meta: Attribute | None = reader.language_meta

    def fault(self, part: HtmlPart, target: str) -> str | None:
        """Say in one line why a target cannot be written."""
        if target == part.text:
            return None
        if problem := unwritable(target):
            return problem
        pieces = split_target(part, target)
        if Counter(_marks(pieces)) != Counter(mark.span.of(part.text) for mark in part.protected):
            return "it does not hold the markup of its source"
        literals = "".join(text for text, is_mark in pieces if not is_mark)
        if not literals.strip():
            return "it has no text"
        if ("{" in literals or "}" in literals) and not self._keeps_templates(part, target):
            return "it would add template code to the page"
        if isinstance(part, TextPart) and not _is_nested(part, _marks(pieces)):
            return "its tags are not in an order that keeps their elements"
        return None

    def written(self, part: HtmlPart, target: str, inner: Sequence[Patch] = ()) -> str:
        """Return a target as HTML.

        Args:
            part: Of this page.
            target: Without fault.
            inner: Patches of attributes inside the part, in order.
        """
        if isinstance(part, AttributePart):
            return _attribute_text(part, target)
        places: dict[str, deque[int]] = {}
        for mark, place in zip(part.protected, part.places, strict=True):
            places.setdefault(mark.span.of(part.text), deque()).append(place)
        pieces = []
        for text, is_mark in split_target(part, target):
            if is_mark:
                pieces.append(self._with_inner(text, places[text].popleft(), inner))
            else:
                pieces.append(_escaped(text, part.written_as))
        return "".join(pieces)

    def patches(self, targets: Sequence[tuple[HtmlPart, str]]) -> list[tuple[HtmlPart, Patch]]:
        """Return what puts targets without fault into the page, in order."""
        attributes = [
            Patch(part.span, self.written(part, target)) for part, target in targets if isinstance(part, AttributePart)
        ]
        starts = [patch.span.start for patch in attributes]
        patches: list[tuple[HtmlPart, Patch]] = []
        end = 0
        for part, target in targets:
            if part.span.start < end:
                continue  # an attribute inside the text before, written with it
            inner = attributes[bisect_left(starts, part.span.start) : bisect_left(starts, part.span.end)]
            patches.append((part, Patch(part.span, self.written(part, target, inner))))
            end = part.span.end
        return patches

    def _keeps_templates(self, part: HtmlPart, target: str) -> bool:
        """Tell whether a target adds no template code to the page, and no braces that could become some."""
        source, written = part.span.of(self.text), self.written(part, target)
        adds_some = Counter(_templates(written)) - Counter(_templates(source))
        return not adds_some and _literal_braces(part, part.text) == _literal_braces(part, target)

    def _with_inner(self, mark: str, place: int, inner: Sequence[Patch]) -> str:
        moved = [
            Patch(Span(patch.span.start - place, patch.span.end - place), patch.text)
            for patch in inner
            if place <= patch.span.start < place + len(mark)
        ]
        return apply_patches(mark, moved)


def split_target(part: HtmlPart, target: str) -> list[tuple[str, bool]]:
    """Return the literal texts and the protected strings of a target."""
    return split_at_marks(target, frozenset(mark.span.of(part.text) for mark in part.protected))


def _templates(text: str) -> list[str]:
    return [token.span.of(text) for token in scan(text) if token.type is TokenType.TEMPLATE]


def _literal_braces(part: HtmlPart, target: str) -> list[str]:
    literals = (text for text, is_mark in split_target(part, target) if not is_mark)
    return _BRACES.findall("\0".join(literals))


def _marks(pieces: Iterable[tuple[str, bool]]) -> list[str]:
    return [text for text, is_mark in pieces if is_mark]


def _is_nested(part: TextPart, marks: Sequence[str]) -> bool:
    """Tell whether the tags of a target nest; tags without partner keep the order of the source."""
    if part.has_loose_tags:
        return list(marks) == [mark.span.of(part.text) for mark in part.protected]
    opens = {mark.span.of(part.text): mark.pair for mark in part.protected if mark.kind is TokenKind.OPEN}
    closes = {mark.span.of(part.text) for mark in part.protected if mark.kind is TokenKind.CLOSE}
    stack: list[str] = []
    for mark in marks:
        if mark in opens:
            stack.append(tag_name(mark))
        elif mark in closes and (not stack or stack.pop() != tag_name(mark)):
            return False
    return not stack


def _encoded(text: str) -> str:
    encoded = _SPACES.sub(" ", text).replace("&", "&amp;").replace("<", "&lt;")
    return _TERMINATOR.sub("&gt;", encoded)


def _escaped(text: str, written_as: Mapping[str, str]) -> str:
    shown = _encoded(text)
    for character, reference in written_as.items():
        shown = shown.replace(character, reference)
    return shown


def _attribute_text(part: AttributePart, target: str) -> str:
    pieces = []
    for text, is_mark in split_target(part, target):
        shown = text if is_mark else _encoded(text)
        pieces.append(shown.replace("'", "&#39;") if part.quote == "'" else shown.replace('"', "&quot;"))
    return "".join(pieces) if part.quote else f'"{"".join(pieces)}"'
