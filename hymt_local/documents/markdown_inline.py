"""The inline grammar of Markdown: one block's content as literal text and markup, in order.

markdown-it parses it; its tokens are given back the source text they came from, which the library does not keep.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType

from hymt_local.documents.inline_window import Role
from hymt_local.documents.untranslated import is_left_alone

# Constructs of the dialects around CommonMark that come through as they are, by the character they begin with. Every
# repetition is bounded: a search from each position stays linear.
_BRACED = r"\{[^{}\n]{0,200}\}"
_JSX_ATTRIBUTE = (
    r"\s{1,20}[\w:.-]{1,60}(?:=(?:\"[^\"\n]{0,300}\"|'[^'\n]{0,300}'|\{(?:[^{}\n]|" + _BRACED + r"){0,300}\}))?"
)
_OPAQUE = {
    "$": re.compile(r"\$\$[^$]{1,2000}\$\$|\$(?![\s$])(?:[^$\\\n]|\\.){0,500}(?<!\s)\$(?!\d)"),
    ":": re.compile(r"(?<![\w:]):[a-z0-9_+-]{1,50}:(?![\w:])"),
    "{": re.compile(
        r"\{\{\{[^{}\n]{1,200}\}\}\}|\{\{[^\n{}]{1,500}\}\}|\{%[^\n]{1,500}?%\}"
        r"|[{][#.:][^{}\n]{1,200}\}|\{[\w:-]{1,60}\}(?=`)|\{[A-Za-z_][\w.]{0,60}\}"
    ),
    "[": re.compile(r"\[\^[^\]\[\s]{1,100}\]|\[-?@[^\]\[\n]{1,200}\]"),
    "<": re.compile(r"</?[A-Z][\w.]{0,60}(?:" + _JSX_ATTRIBUTE + r"){0,30}\s{0,20}/?>"),
    # The second half of a definition list; a row of what is no table for GFM, but means to be one.
    "\n": re.compile(r"\n[ \t]{0,3}:[ \t]{1,8}(?=\S)|\n[ \t]{0,3}\|[ \t:|-]{0,500}"),
}
_NO_WORD = re.compile(r"\[\^|\{[#.:]|:[a-z]|\n|\{%|<")
_TAG = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z][\w.-]*)[^>]*?(?P<alone>/?)>", re.DOTALL)
_EMPHASIS = {
    **dict.fromkeys(("em_open", "strong_open", "s_open"), Role.OPEN),
    **dict.fromkeys(("em_close", "strong_close", "s_close"), Role.CLOSE),
}
_VOID = frozenset({"area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"})


@dataclass(frozen=True, slots=True)
class Event:
    """A stretch of a block's content."""

    role: Role
    raw: str
    """As it stands in the content."""
    text: str = ""
    """What a reader reads of it: literals, and markup that is a word of the sentence, such as code."""
    key: str = ""
    """For markup: what it is, however it is written; empty for what only changes how literals are written."""


@dataclass(slots=True)
class _Builder:
    """Events under construction, with the stretch of content each came from."""

    events: list[Event]
    spans: list[tuple[int, int]]

    def add(self, event: Event, start: int, end: int) -> None:
        self.events.append(event)
        self.spans.append((start, end))


class _State(StateInline):
    """Remembers where the innermost finished label ended: there begins the closing half of a link."""

    label_end = 0


class InlineParser(ParserInline):
    """The library's loop, with the source span of each token in its `meta`."""

    def __init__(self) -> None:
        super().__init__()
        self.ruler2.disable("fragments_join")
        self.ruler.before("newline", "opaque", _opaque)

    def tokenize(self, state: StateInline) -> None:
        """Generate tokens for the state's range."""
        end = state.posMax
        rules = self.ruler.getRules("")
        is_deep = state.level >= state.md.options["maxNesting"]
        while state.pos < end:
            start, n_tokens = state.pos, len(state.tokens)
            if not is_deep and any(rule(state, False) for rule in rules):
                _note_spans(state, start, n_tokens)
                continue
            state.append_pending(state.src[state.pos])
            state.pos += 1
        if state.pending:
            state.pushPending()
        cast("_State", state).label_end = end

    def parse(self, src: str, md: MarkdownIt, env: EnvType, tokens: list[Token]) -> list[Token]:
        """Parse the content of one block."""
        state = _State(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


def parse_inline(content: str, markdown: MarkdownIt, env: EnvType) -> list[Event]:
    """Return the events of a block's content; joined, their `raw` is that content but for spaces at line ends."""
    builder = _Builder([], [])
    tokens: list[Token] = []
    markdown.inline.parse(content, markdown, env, tokens)
    _walk(tokens, builder, content, offset=0)
    return _without_skipped(builder, content)


def _opaque(state: StateInline, silent: bool) -> bool:
    pattern = _OPAQUE.get(state.src[state.pos])
    match = pattern.match(state.src, state.pos, state.posMax) if pattern else None
    if match is None:
        return False
    if not silent:
        state.push("opaque", "", 0)
    state.pos = match.end()
    return True


def _note_spans(state: StateInline, start: int, n_tokens: int) -> None:
    new = state.tokens[n_tokens:]
    if not new:
        return
    if new[-1].type == "link_close" and new[-1].markup != "autolink":
        opening = next(token for token in new if token.type == "link_open")
        opening.meta["span"] = (start, start + 1)
        new[-1].meta["span"] = (cast("_State", state).label_end, state.pos)
        return
    if new[-1].type == "text":  # delimiters of emphasis: one or two characters each
        position = state.pos
        for token in reversed(new):
            if token.content.strip("*_~"):
                break
            token.meta["span"] = (position - len(token.content), position)
            position -= len(token.content)
        return
    new[-1].meta["span"] = (start, state.pos)


def _walk(tokens: Iterable[Token], builder: _Builder, content: str, *, offset: int) -> None:
    is_autolink = False
    for token in tokens:
        if token.markup == "autolink":
            is_autolink = token.type == "link_open"
            if not is_autolink:
                start, end = token.meta["span"]
                raw = content[offset + start : offset + end]
                builder.add(Event(Role.ATOMIC, raw, raw, key=raw), offset + start, offset + end)
        elif not is_autolink:
            _add(token, builder, content, offset=offset)


def _add(token: Token, builder: _Builder, content: str, *, offset: int) -> None:
    span = token.meta.get("span")
    start, end = (offset + span[0], offset + span[1]) if span else (-1, -1)
    raw = content[start:end] if span else ""
    match token.type:
        case "text":
            if token.content:
                builder.add(Event(Role.LITERAL, token.content, token.content), start, end)
        case "text_special":
            _add_special(token, builder, start, end)
        case "softbreak":
            builder.add(Event(Role.SOFT_BREAK, "\n"), start, end)
        case "hardbreak":
            shown = "\\\n" if raw.startswith("\\") else "  \n"
            builder.add(Event(Role.ATOMIC, shown, key="break"), start, end)
        case "link_open" | "link_close":
            _add_link(token, builder, content, span=(start, end))
        case "image":
            _add_image(token, builder, content, span=(start, end))
        case name if name in _EMPHASIS:
            builder.add(Event(_EMPHASIS[name], token.markup, key=name), start, end)
        case "html_inline":
            builder.add(Event(Role.ATOMIC, raw, key=raw), start, end)
        case _:
            builder.add(Event(Role.ATOMIC, raw, "" if _NO_WORD.match(raw) else raw, key=raw), start, end)


def _add_special(token: Token, builder: _Builder, start: int, end: int) -> None:
    is_word = all(unicodedata.category(character).startswith("L") for character in token.content)
    if token.info == "escape" or is_word:
        builder.add(Event(Role.LITERAL, token.markup, token.content), start, end)
    else:
        builder.add(Event(Role.ATOMIC, token.markup, key=token.markup), start, end)


def _add_link(token: Token, builder: _Builder, content: str, *, span: tuple[int, int]) -> None:
    start, end = span
    if token.type == "link_open":
        key = f"link {token.attrs.get('href')} {token.attrs.get('title', '')}"
        builder.add(Event(Role.OPEN, "[", key=key), start, end)
        return
    opening = _last_open_bracket(builder)
    label = content[builder.spans[opening][1] : start]
    builder.add(Event(Role.CLOSE, _closing(content[start:end], label), key="link_close"), start, end)


def _last_open_bracket(builder: _Builder) -> int:
    for index in range(len(builder.events) - 1, -1, -1):
        if builder.events[index].key.startswith("link "):
            return index
    raise AssertionError("a link that closes was opened")


def _closing(raw: str, label: str) -> str:
    """A link whose text is its label keeps the label when the text is translated: `[id]` becomes `[text][id]`."""
    return f"][{label}]" if raw in ("]", "][]") else raw


def _add_image(token: Token, builder: _Builder, content: str, *, span: tuple[int, int]) -> None:
    start, end = span
    label_end = start + 2 + len(token.content)
    key = f"image {token.attrs.get('src')} {token.attrs.get('title', '')}"
    if not any(character.isalpha() for character in token.content):
        builder.add(Event(Role.ATOMIC, content[start:end], key=key), start, end)
        return
    builder.add(Event(Role.OPEN, "![", key=key), start, start + 2)
    _walk(token.children or (), builder, content, offset=start + 2)
    closing = _closing(content[label_end:end], token.content)
    builder.add(Event(Role.CLOSE, closing, key="image_close"), label_end, end)


def _without_skipped(builder: _Builder, content: str) -> list[Event]:
    """Join elements that are left alone into one event each, and pair the other HTML tags."""
    closes = _closing_tags(builder.events)
    closing = frozenset(closes.values())
    events: list[Event] = []
    index = 0
    while index < len(builder.events):
        event = builder.events[index]
        close = closes.get(index)
        if close is not None and is_left_alone(event.raw):
            raw = content[builder.spans[index][0] : builder.spans[close][1]]
            events.append(Event(Role.ATOMIC, raw, raw, key=raw))
            index = close
        elif close is not None:
            events.append(Event(Role.OPEN, event.raw, key=event.raw))
        elif index in closing:
            events.append(Event(Role.CLOSE, event.raw, key=event.raw))
        else:
            events.append(event)
        index += 1
    return events


def _closing_tags(events: Sequence[Event]) -> dict[int, int]:
    """Return opening -> closing index of the HTML tags that nest properly with each other and with the emphasis."""
    pairs: dict[int, int] = {}
    stack: list[tuple[str, int]] = []
    for index, event in enumerate(events):
        if event.role is Role.OPEN:
            stack.append(("", index))
        elif event.role is Role.CLOSE:
            while stack and stack.pop()[0]:
                pass
        elif event.role is Role.ATOMIC and (match := _TAG.fullmatch(event.raw)):
            name = match["name"].lower()
            if match["close"]:
                if stack and stack[-1][0] == name:
                    pairs[stack.pop()[1]] = index
            elif not match["alone"] and name not in _VOID:
                stack.append((name, index))
    return pairs
