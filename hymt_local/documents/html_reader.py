"""What is translated in an HTML text: runs of text between block elements, and attributes that people read."""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hymt_local.documents.html_scan import Attribute, HtmlToken, TokenType, scan
from hymt_local.documents.inline_window import Role, has_letters, is_clear, text_window
from hymt_local.documents.untranslated import is_left_alone
from hymt_local.segment import ProtectedSpan, Span, TokenKind

VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"}
)
# Elements that stand inside a sentence; all others, custom ones included, end it.
_INLINE = frozenset(
    {
        *(
            "a",
            "abbr",
            "acronym",
            "b",
            "bdi",
            "bdo",
            "big",
            "br",
            "cite",
            "code",
            "data",
            "del",
            "dfn",
            "em",
            "font",
            "i",
        ),
        *(
            "img",
            "input",
            "ins",
            "kbd",
            "mark",
            "math",
            "nobr",
            "output",
            "q",
            "rb",
            "rp",
            "rt",
            "rtc",
            "ruby",
            "s",
            "samp",
        ),
        *("script", "small", "span", "strike", "strong", "sub", "sup", "svg", "time", "tt", "u", "var", "wbr"),
    }
)
# Of those that are left alone: what is a word of the sentence around it.
_WORDS = frozenset(
    {"code", "kbd", "samp", "var", "math", "tt", "span", "b", "i", "em", "strong", "a", "mark", "q", "cite"}
)
_IMPLIED_END = frozenset({"p", "li", "td", "th", "tr", "dt", "dd", "option"})
_ATTRIBUTES = frozenset(
    {
        *("alt", "title", "placeholder", "aria-label", "aria-description", "aria-roledescription", "aria-placeholder"),
        *("aria-valuetext", "label", "summary", "abbr", "data-tooltip"),
    }
)
_META = frozenset(
    {
        *("description", "keywords", "title", "subject", "abstract", "dcterms.title", "dc.title", "dc.description"),
        *("og:title", "og:description", "og:image:alt", "twitter:title", "twitter:description", "twitter:image:alt"),
    }
)
_BUTTONS = frozenset({"submit", "button", "reset"})
_SPACES = re.compile(r"[ \t\n\r\f]+")
_REFERENCE = re.compile(r"&(?:#\d{1,7};?|#[xX][0-9A-Fa-f]{1,6};?|[A-Za-z][A-Za-z0-9]{1,31};)")
_SYNTAX_REFERENCE = re.compile(r"&(?:lt|gt|amp|LT|GT|AMP|#0*(?:38|60|62)|#[xX]0*(?:26|3[cCeE]));?")
_EXPRESSION = re.compile(r"\{\{|<\?=|<%=|<\?php\s+(?:echo|print)\b")
_EXPRESSIONS = re.compile(
    r"\{\{\{[^{}]{1,500}\}\}\}|\{\{[^{}]{1,500}\}\}|\{%[^%]{1,500}%\}|<\?[^?]{1,500}\?>|<%[^%]{1,500}%>"
)
_TAG_NAME = re.compile(r"</?([A-Za-z][^\s/>]*)")
_LAST_REFERENCE = re.compile(r"&[#A-Za-z0-9]{2,10};\Z")
_UNSEEN = frozenset({"Zs", "Zl", "Zp", "Cf"})
_PLAIN_ELEMENTS = frozenset({"option", "button"})


@dataclass(frozen=True, slots=True)
class HtmlEvent:
    """A stretch of a text run."""

    role: Role
    raw: str
    start: int
    """In the page."""
    text: str = ""
    name: str = ""
    """Of a start or end tag that wants a partner: `b`, `/b`."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """A run of text with inline markup that is translated as one."""

    span: Span
    text: str
    protected: tuple[ProtectedSpan, ...]
    places: tuple[int, ...]
    """Where in the page each protected string stands."""
    written_as: Mapping[str, str]
    """Invisible characters that the source writes as references."""
    element: str = ""
    """The block element that holds it, in lower case."""
    wrapper: tuple[Span, Span] | None = None
    """Start and end tag of a block element that holds nothing else."""
    has_loose_tags: bool = False
    """Some tags do not pair: their order is kept."""
    is_plain: bool = False
    """Title or option: no markup may be added."""


@dataclass(frozen=True, slots=True)
class AttributePart:
    """The value of one attribute."""

    span: Span
    text: str
    protected: tuple[ProtectedSpan, ...]
    name: str
    quote: str


HtmlPart = TextPart | AttributePart


class HtmlReader:
    """One pass over the tokens of a page."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(scan(text))
        self.partners = _partners(self.tokens)
        self.html_tag: HtmlToken | None = None
        self.language_meta: Attribute | None = None
        self.run: list[HtmlEvent] = []
        self.opening: HtmlToken | None = None
        """The start tag of a block element right before the run."""

    def parts(self) -> Iterator[HtmlPart]:
        """Yield everything to translate."""
        index = 0
        while index < len(self.tokens):
            token = self.tokens[index]
            last = self._skipped_to(index) if token.type is TokenType.START else index
            if last > index or (token.type is TokenType.START and is_left_alone(token.span.of(self.text))):
                yield from self._skip(index, last)
            elif token.type is TokenType.START:
                yield from self._start(token)
            else:
                yield from self._other(token)
            index = last + 1
        yield from self._flush(None)

    def _skipped_to(self, index: int) -> int:
        """Return the last token of an element that is left alone; the index itself for all others."""
        token = self.tokens[index]
        if token.is_closed or token.name in VOID or not is_left_alone(token.span.of(self.text)):
            return index
        if index in self.partners:
            return self.partners[index]
        if token.name not in _INLINE and token.name not in _IMPLIED_END:
            return len(self.tokens) - 1
        for later in range(index + 1, len(self.tokens)):
            if self._ends_run(self.tokens[later]):
                return later - 1
        return len(self.tokens) - 1

    def _skip(self, index: int, last: int) -> Iterator[HtmlPart]:
        token = self.tokens[index]
        if is_inline(token.name):
            raw = self.text[token.span.start : self.tokens[last].span.end]
            is_word = token.name in _WORDS and index in self.partners  # behind one without end no text may stand
            self.run.append(HtmlEvent(Role.ATOMIC, raw, token.span.start, raw if is_word else ""))
        else:
            yield from self._flush(None)

    def _start(self, token: HtmlToken) -> Iterator[HtmlPart]:
        yield from self._attributes(token)
        if token.name == "html" and self.html_tag is None:
            self.html_tag = token
        if not is_inline(token.name):
            yield from self._flush(None)
            self.opening = token
            return
        if token.name == "br" and self._after_break():
            yield from self._flush(None)
        self._add(token)

    def _other(self, token: HtmlToken) -> Iterator[HtmlPart]:
        if token.type is TokenType.TEXT and token.name == "title":
            yield from self._title(token)
        elif token.type is TokenType.END and not is_inline(token.name):
            yield from self._flush(token)
        elif token.type is TokenType.TEMPLATE and not _EXPRESSION.match(self.text, token.span.start):
            yield from self._flush(None)
        else:
            self._add(token)

    def _add(self, token: HtmlToken) -> None:
        raw = token.span.of(self.text)
        if token.type is TokenType.TEXT:
            event = HtmlEvent(Role.LITERAL, raw, token.span.start, _decoded(raw))
        else:
            is_start = token.type is TokenType.START and token.name not in VOID and not token.is_closed
            name = token.name if is_start else f"/{token.name}" if token.type is TokenType.END else ""
            is_word = token.type is TokenType.TEMPLATE and raw.endswith(("}}", "?>", "%>"))
            event = HtmlEvent(Role.ATOMIC, raw, token.span.start, raw if is_word else "", name)
        self.run.append(event)

    def _title(self, token: HtmlToken) -> Iterator[HtmlPart]:
        events: list[HtmlEvent] = []
        position = token.span.start
        ends = [match.span() for match in _EXPRESSIONS.finditer(self.text, token.span.start, token.span.end)]
        for start, end in [*ends, (token.span.end, token.span.end)]:
            for role, span in ((Role.LITERAL, Span(position, start)), (Role.ATOMIC, Span(start, end))):
                raw = span.of(self.text)
                if raw:
                    events.append(HtmlEvent(role, raw, span.start, _decoded(raw) if role is Role.LITERAL else raw))
            position = end
        yield from _text_parts(events, is_plain=True)

    def _attributes(self, token: HtmlToken) -> Iterator[AttributePart]:
        values = {attribute.name: attribute.value.of(self.text) for attribute in token.attributes}
        if token.name == "meta" and values.get("http-equiv", "").lower() == "content-language":
            self.language_meta = next((one for one in token.attributes if one.name == "content"), None)
        for attribute in token.attributes:
            if attribute.value.end > attribute.value.start and _is_translated(token.name, attribute.name, values):
                yield from self._attribute(attribute)

    def _attribute(self, attribute: Attribute) -> Iterator[AttributePart]:
        raw = attribute.value.of(self.text)
        trimmed = raw.strip()
        start = attribute.value.start + raw.find(trimmed)
        text = _SPACES.sub(" ", _REFERENCE.sub(lambda match: html.unescape(match.group()), trimmed)).strip()
        expressions = [match.span() for match in _EXPRESSIONS.finditer(text)]
        if any(map(str.isalpha, _EXPRESSIONS.sub("", text))):
            protected = tuple(ProtectedSpan(Span(*span)) for span in expressions)
            span = Span(start, start + len(trimmed)) if attribute.quote else attribute.value
            yield AttributePart(span, text, protected, attribute.name, attribute.quote)

    def _after_break(self) -> bool:
        """Tell whether only spaces stand between here and a line break."""
        for event in reversed(self.run):
            if event.role is not Role.LITERAL or event.text.strip():
                return tag_name(event.raw) == "br"
        return False

    def _ends_run(self, token: HtmlToken) -> bool:
        return token.type in (TokenType.START, TokenType.END) and not is_inline(token.name)

    def _flush(self, closing: HtmlToken | None) -> Iterator[HtmlPart]:
        """Yield the parts of the run that ends here, before the end tag `closing` or something else."""
        run, opening = self.run, self.opening
        self.run, self.opening = [], None
        if not has_letters(run):
            return
        element = opening.name if opening else ""
        is_whole = opening is not None and closing is not None and opening.name == closing.name
        wrapper = (opening.span, closing.span) if is_whole and opening and closing else None
        yield from _text_parts(_paired(run), element=element, wrapper=wrapper, is_plain=element in _PLAIN_ELEMENTS)


def tag_name(tag: str) -> str:
    """Return the name of a start or end tag in lower case; empty for anything else."""
    match = _TAG_NAME.match(tag)
    return match[1].lower() if match else ""


def is_inline(name: str) -> bool:
    """Tell whether an element stands inside a sentence."""
    return name in _INLINE or ":" in name


def _partners(tokens: Sequence[HtmlToken]) -> dict[int, int]:
    """Return start -> end tag by name alone, whatever else is open between."""
    partners: dict[int, int] = {}
    open_tags: dict[str, list[int]] = {}
    for index, token in enumerate(tokens):
        if token.type is TokenType.START and token.name not in VOID and not token.is_closed:
            open_tags.setdefault(token.name, []).append(index)
        elif token.type is TokenType.END and (waiting := open_tags.get(token.name)):
            partners[waiting.pop()] = index
    return partners


def _is_translated(element: str, name: str, values: Mapping[str, str]) -> bool:
    if element == "meta":
        return name == "content" and values.get("name", values.get("property", "")).lower() in _META
    if element == "input" and name == "value":
        return values.get("type", "").lower() in _BUTTONS
    if name == "abbr":
        return element in ("th", "td")
    if name == "label":
        return element in ("option", "optgroup", "track", "menu", "menuitem")
    return name in _ATTRIBUTES and not (name == "summary" and element != "table")


def _decoded(raw: str) -> str:
    return html.unescape(_SPACES.sub(" ", raw))


def _paired(run: Sequence[HtmlEvent]) -> list[HtmlEvent]:
    """Return the events with the tags that nest properly as pairs."""
    events = list(run)
    stack: list[int] = []
    waiting: Counter[str] = Counter()
    for index, event in enumerate(run):
        if event.name.startswith("/"):
            name = event.name[1:]
            while waiting[name]:
                opening = stack.pop()
                waiting[run[opening].name] -= 1
                if run[opening].name == name:
                    events[opening] = replace(events[opening], role=Role.OPEN)
                    events[index] = replace(event, role=Role.CLOSE)
                    break
        elif event.name:
            stack.append(index)
            waiting[event.name] += 1
    return events


def _text_parts(
    events: Sequence[HtmlEvent],
    *,
    element: str = "",
    wrapper: tuple[Span, Span] | None = None,
    is_plain: bool = False,
) -> Iterator[TextPart]:
    sentences = list(_sentences(events))
    for first, last in sentences:
        part = _text_part(events[first:last])
        is_alone = len(sentences) == 1
        yield replace(part, element=element, wrapper=wrapper if is_alone else None, is_plain=is_plain)


def _sentences(events: Sequence[HtmlEvent]) -> Iterator[tuple[int, int]]:
    """Yield the ranges that are translated each as one: links in a row are not one sentence."""
    first, last = text_window(events)
    groups: list[tuple[int, int]] = []
    depth = start = 0
    for index in range(first, last):
        event = events[index]
        if event.role is Role.OPEN:
            start = index if depth == 0 else start
            depth += 1
        elif event.role is Role.CLOSE:
            depth -= 1
            if depth == 0 and has_letters(events[start : index + 1]):
                groups.append((start, index + 1))
        elif depth == 0 and (event.name or has_letters((event,))):
            groups = []
            break
    if len(groups) < 2:
        groups = [(first, last)] if has_letters(events[first:last]) else []
    for left, right in groups:
        inner_first, inner_last = text_window(events[left:right])
        yield left + inner_first, left + inner_last


def _text_part(events: Sequence[HtmlEvent]) -> TextPart:
    """Return the part of events without textless markup at the edges."""
    trimmed = _without_outer_space(events)
    has_loose_tags = any(event.name and event.role is Role.ATOMIC for event in trimmed)
    text, protected, places = _joined(trimmed, keeps_references=False)
    if not is_clear(text, protected):  # text that looks like this run's tags stays as it is written
        text, protected, places = _joined(trimmed, keeps_references=True)
    start, end = trimmed[0].start, trimmed[-1].start + len(trimmed[-1].raw)
    written_as = {
        character: match.group()
        for event in trimmed
        if event.role is Role.LITERAL
        for match in _REFERENCE.finditer(event.raw)
        if len(character := html.unescape(match.group())) == 1 and unicodedata.category(character) in _UNSEEN
    }
    return TextPart(Span(start, end), text, tuple(protected), tuple(places), written_as, has_loose_tags=has_loose_tags)


def _without_outer_space(events: Sequence[HtmlEvent]) -> list[HtmlEvent]:
    trimmed = list(events)
    if trimmed[0].role is Role.LITERAL:
        cut = _n_leading_space(trimmed[0].raw)
        raw = trimmed[0].raw[cut:]
        trimmed[0] = replace(trimmed[0], raw=raw, start=trimmed[0].start + cut, text=_decoded(raw))
    if trimmed[-1].role is Role.LITERAL:
        raw = _without_trailing_space(trimmed[-1].raw)
        trimmed[-1] = replace(trimmed[-1], raw=raw, text=_decoded(raw))
    return trimmed


def _n_leading_space(raw: str) -> int:
    position = 0
    while True:
        position = len(raw) - len(raw[position:].lstrip())
        match = _REFERENCE.match(raw, position)
        if match is None or not html.unescape(match.group()).isspace():
            return position
        position = match.end()


def _without_trailing_space(raw: str) -> str:
    while True:
        raw = raw.rstrip()
        match = _LAST_REFERENCE.search(raw, max(len(raw) - 12, 0))
        if match is None or not html.unescape(match.group()).isspace():
            return raw
        raw = raw[: match.start()]


def _joined(events: Sequence[HtmlEvent], *, keeps_references: bool) -> tuple[str, list[ProtectedSpan], list[int]]:
    parts: list[str] = []
    protected: list[ProtectedSpan] = []
    places: list[int] = []
    pairs: list[int] = []
    length = n_pairs = 0

    def protect(text: str, place: int, kind: TokenKind = TokenKind.ATOMIC, pair: int = 0) -> None:
        protected.append(ProtectedSpan(Span(length, length + len(text)), kind, pair))
        places.append(place)

    for event in events:
        for text, place in _pieces_of(event, keeps_references=keeps_references):
            if event.role is Role.OPEN:
                n_pairs += 1
                pairs.append(n_pairs)
                protect(text, place, TokenKind.OPEN, n_pairs)
            elif event.role is Role.CLOSE and pairs:
                protect(text, place, TokenKind.CLOSE, pairs.pop())
            elif place >= 0:
                protect(text, place)
            parts.append(text)
            length += len(text)
    return "".join(parts), protected, places


def _pieces_of(event: HtmlEvent, *, keeps_references: bool) -> Iterator[tuple[str, int]]:
    """Yield the texts of an event with their places; the place of literal text is -1."""
    if event.role is not Role.LITERAL:
        yield event.raw, event.start
        return
    if not keeps_references:
        yield event.text, -1
        return
    position = 0
    for match in _SYNTAX_REFERENCE.finditer(event.raw):
        yield _decoded(event.raw[position : match.start()]), -1
        yield match.group(), event.start + match.start()
        position = match.end()
    yield _decoded(event.raw[position:]), -1
