"""The tokens of an HTML text with their places: as browsers read it, in linear time whatever is unterminated.

Nothing is repaired and nothing is nested: joined, the tokens are the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from hymt_local.segment import Span


class TokenType(Enum):
    """What a token is."""

    TEXT = auto()
    START = auto()
    END = auto()
    OPAQUE = auto()
    """Comments, declarations, what cannot be read, and the content of scripts and styles."""
    TEMPLATE = auto()
    """Of a template language: `{{ }}`, `{% %}`, `<?php ?>`, `<% %>`."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of a start tag."""

    name: str
    """In lower case."""
    value: Span
    """Without quotes; empty where there is no value."""
    quote: str
    """`"`, `'`, or empty."""
    place: Span
    """Name, equals sign and quotes."""


@dataclass(frozen=True, slots=True)
class HtmlToken:
    """One token."""

    type: TokenType
    span: Span
    name: str = ""
    """Of a tag, in lower case."""
    attributes: tuple[Attribute, ...] = ()
    is_closed: bool = False
    """The tag ends with a slash."""


# Elements whose content is no markup: read up to their end tag. Title and textarea hold text with references.
_RAW = frozenset({"script", "style", "xmp", "iframe", "noembed", "noframes", "plaintext"})
_TEXT_ONLY = frozenset({"title", "textarea"})
_INTERESTING = re.compile(r"<|\{\{|\{%|\{#")
_NAME = re.compile(r"[A-Za-z][^\s/>]*")
_ATTRIBUTE = re.compile(
    r"(?P<name>[^\s/>][^\s/>=]*)(?P<equals>\s*=\s*(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<bare>[^\s>\"'][^\s>]*))?)?"
)
_BETWEEN = re.compile(r"[\s/]*")
_PAIRS = {"{{": "}}", "{%": "%}", "{#": "#}", "<?": "?>", "<%": "%>"}
_MAX_TEMPLATE_CHARACTERS = 5000
_XML = re.compile(r"\s*<\?xml\s")


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.is_xml = _XML.match(text) is not None
        self.last_seen: dict[str, int] = {}

    def find(self, terminator: str, start: int) -> int:
        """Return where a terminator ends; -1 without one, at once, however often it is asked for."""
        if terminator not in self.last_seen:
            self.last_seen[terminator] = self.text.rfind(terminator)
        if self.last_seen[terminator] < start:
            return -1
        return self.text.index(terminator, start) + len(terminator)

    def tokens(self) -> Iterator[HtmlToken]:
        position = text_start = 0
        while match := _INTERESTING.search(self.text, position):
            token = self.markup(match.start())
            if token is None:
                position = match.end()
                continue
            if token.span.start > text_start:
                yield HtmlToken(TokenType.TEXT, Span(text_start, token.span.start))
            yield token
            position = text_start = token.span.end
            if token.type is TokenType.START and not (self.is_xml and token.is_closed):
                content = self.content_of(token)
                if content is not None and content.span.end > content.span.start:
                    yield content
                    position = text_start = content.span.end
        if text_start < len(self.text):
            yield HtmlToken(TokenType.TEXT, Span(text_start, len(self.text)))

    def markup(self, start: int) -> HtmlToken | None:
        """Read what begins at a position; None if it is text."""
        two = self.text[start : start + 2]
        if two in _PAIRS:
            return self.template(start, two)
        if two == "<!":
            return HtmlToken(TokenType.OPAQUE, Span(start, self.declaration_end(start)))
        if two == "</":
            if _NAME.match(self.text, start + 2):
                return self.tag(start, start + 2, TokenType.END)
            return (
                HtmlToken(TokenType.OPAQUE, Span(start, self.end_or_all(">", start)))
                if len(self.text) > start + 2
                else None
            )
        return self.tag(start, start + 1, TokenType.START) if _NAME.match(self.text, start + 1) else None

    def template(self, start: int, opening: str) -> HtmlToken | None:
        if opening == "<?":
            is_code = self.text.startswith(("<?php", "<?="), start)
            is_instruction = is_code or self.text.startswith("<?xml", start)
            end = self.end_or_all("?>" if is_instruction else ">", start)
            return HtmlToken(TokenType.TEMPLATE if is_code else TokenType.OPAQUE, Span(start, end))
        end = self.text.find(_PAIRS[opening], start + 2, start + _MAX_TEMPLATE_CHARACTERS)
        if end < 0:
            return None
        end += 2 + (self.text.startswith("{{{", start) and self.text.startswith("}}}", end))
        return HtmlToken(TokenType.TEMPLATE, Span(start, end))

    def declaration_end(self, start: int) -> int:
        if self.text.startswith("<!--", start):
            if self.text.startswith((">", "->"), start + 4):
                return self.text.index(">", start) + 1
            return self.end_or_all("-->", start + 4)
        if self.text.startswith("<![CDATA[", start) and (end := self.find("]]>", start)) >= 0:
            return end
        return self.end_or_all(">", start)

    def end_or_all(self, terminator: str, start: int) -> int:
        end = self.find(terminator, start)
        return end if end >= 0 else len(self.text)

    def tag(self, start: int, name_start: int, kind: TokenType) -> HtmlToken:
        name = _NAME.match(self.text, name_start)
        assert name is not None
        position, attributes = name.end(), list[Attribute]()
        while True:
            between = _BETWEEN.match(self.text, position)
            position = between.end() if between else position
            if position >= len(self.text):  # never closed: no tag for a browser, but not text either
                return HtmlToken(TokenType.OPAQUE, Span(start, len(self.text)))
            if self.text[position] == ">":
                is_closed = self.text[position - 1] == "/"
                span = Span(start, position + 1)
                return HtmlToken(kind, span, name.group().lower(), tuple(attributes), is_closed)
            position = self.attribute(position, attributes)

    def attribute(self, position: int, attributes: list[Attribute]) -> int:
        """Read one attribute, or what a template language writes between them; return where it ends."""
        opening = self.text[position : position + 2]
        if opening in _PAIRS and (end := self.find(_PAIRS[opening], position)) >= 0:
            return end
        match = _ATTRIBUTE.match(self.text, position)
        assert match is not None
        if match["equals"] and self.text[match.end() : match.end() + 1] in ("'", '"'):
            return len(self.text)  # a quote without its partner runs to the end
        kind = next((kind for kind in ("double", "single", "bare") if match[kind] is not None), None)
        value = Span(*match.span(kind)) if kind else Span(match.end(), match.end())
        quote = {"double": '"', "single": "'"}.get(kind or "", "")
        attributes.append(Attribute(match["name"].lower(), value, quote, Span(*match.span())))
        return match.end()

    def content_of(self, tag: HtmlToken) -> HtmlToken | None:
        """Read the content of an element without markup inside."""
        if tag.name not in _RAW and tag.name not in _TEXT_ONLY:
            return None
        end_tag = re.compile(rf"</{re.escape(tag.name)}(?=[\s/>])", re.IGNORECASE)
        match = None if tag.name == "plaintext" else end_tag.search(self.text, tag.span.end)
        span = Span(tag.span.end, match.start() if match else len(self.text))
        return HtmlToken(TokenType.TEXT if tag.name in _TEXT_ONLY else TokenType.OPAQUE, span, tag.name)


def scan(text: str) -> Iterator[HtmlToken]:
    """Yield the tokens of an HTML text."""
    yield from _Scanner(text).tokens()
