"""Texts with markup in them, as clients send them: fragments of HTML or XML, placeholders, often not well formed.

A fragment is cut into units at the elements that separate texts; tags inside a unit are protected. What is not
translated comes back character for character.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from hymt_local.segment import ProtectedSpan, Span, TokenKind, UnitText

HTML_SPLITTING = frozenset(
    """address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption figure
    footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li main menu nav ol optgroup option p section select
    summary table tbody td tfoot th thead title tr ul""".split()  # noqa: SIM905
)
HTML_IGNORED = frozenset("code kbd math pre samp script style svg template textarea var".split())  # noqa: SIM905
HTML_VOID = frozenset(
    "area base br col embed hr img input link meta param source track wbr".split()  # noqa: SIM905
)

# No part may run over a `<`: a text full of them is read once, not once per `<`.
_TOKEN = re.compile(
    r"""(?P<comment><!--|<!\[CDATA\[)
    | (?P<tag></?[A-Za-z_:](?:"[^"<]*"|'[^'<]*'|[^'"<>])*>)
    | (?P<other><[!?][^<>]*>)
    | (?P<entity>&(?:\#[0-9]{1,7}|\#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});)
    | (?P<placeholder>\{[0-9]{1,4}\})""",
    re.VERBOSE,
)
_NAME = re.compile(r"</?([^\s/>]+)")
_UNTRANSLATED = re.compile(r"""\stranslate\s*=\s*["']?no\b|\sclass\s*=\s*["']?[^"'>]*\bnotranslate\b""", re.IGNORECASE)
_COMMENT_ENDS = {"<!--": "-->", "<![CDATA[": "]]>"}
_XML_ENTITIES = frozenset({"amp", "apos", "quot"})
_KEPT_ENTITIES = frozenset({"&lt;", "&gt;", "&LT;", "&GT;"})
"""Decoded, they could not be told from tags."""


@dataclass(frozen=True, slots=True)
class MarkupRules:
    """How the markup of a text is read."""

    is_html: bool = True
    splitting: frozenset[str] = HTML_SPLITTING
    """Elements that stand between texts."""
    ignored: frozenset[str] = HTML_IGNORED
    """Elements that stay as they are, content included."""
    unsplitting: frozenset[str] = frozenset()
    """Elements that never separate texts, whatever else says so."""
    finds_structure: bool = False
    """XML: elements that hold only elements separate the texts of those."""


HTML_RULES = MarkupRules()
INLINE_RULES = MarkupRules(splitting=frozenset(), ignored=frozenset())
"""Placeholders of browser extensions: tags stay where they belong, and separate nothing."""


class _Kind(Enum):
    TEXT = "text"
    OPEN = "open"
    CLOSE = "close"
    EMPTY = "empty"
    KEPT = "kept"
    """An ignored element, a character that must stay written as it is, a placeholder: part of the sentence."""
    OTHER = "other"
    """Comments and declarations."""


@dataclass(slots=True)
class _Token:
    kind: _Kind
    raw: str
    name: str = ""
    text: str = ""
    """Of TEXT: as people read it."""
    pair: int = 0
    """Of OPEN and CLOSE: which belong together; 0 for none."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A unit with the markup around it."""

    raw: str
    lead: str
    trail: str
    unit: UnitText | None


@dataclass(frozen=True, slots=True)
class TaggedText:
    """A fragment that was read."""

    pieces: tuple[_Piece, ...] = field(repr=False)

    @property
    def units(self) -> tuple[UnitText, ...]:
        """What is to be translated, in order."""
        return tuple(piece.unit for piece in self.pieces if piece.unit is not None)

    def joined(self, targets: Sequence[str]) -> str:
        """Return the fragment with one target per unit.

        Law: with the units' own texts it is the fragment, character for character.
        """
        wanted = iter(targets)
        return "".join(
            piece.raw if piece.unit is None else _filled(piece, piece.unit, next(wanted)) for piece in self.pieces
        )


def read_tagged(text: str, rules: MarkupRules = HTML_RULES) -> TaggedText:
    """Read a fragment; whatever it holds, this does not fail."""
    tokens = list(_with_ignored(_tokens(text, rules), rules))
    _pair(tokens)
    splitting = rules.splitting | (_structure(tokens) if rules.finds_structure else frozenset())
    return TaggedText(tuple(_piece(part) for part in _split(tokens, splitting - rules.unsplitting)))


# Reading


def _tokens(text: str, rules: MarkupRules) -> Iterator[_Token]:
    position = 0
    while match := _TOKEN.search(text, position):
        if match.start() > position:
            plain = text[position : match.start()]
            yield _Token(_Kind.TEXT, plain, text=plain)
        position = match.end()
        if match.lastgroup == "comment":
            end = text.find(_COMMENT_ENDS[match.group()], position)
            position = len(text) if end < 0 else end + len(_COMMENT_ENDS[match.group()])
            yield _Token(_Kind.OTHER, text[match.start() : position])
        else:
            yield _token(match.lastgroup or "", match.group(), rules)
    if position < len(text):
        yield _Token(_Kind.TEXT, text[position:], text=text[position:])


def _token(group: str, raw: str, rules: MarkupRules) -> _Token:
    if group == "entity":
        return _entity(raw, rules)
    if group != "tag":
        return _Token(_Kind.KEPT if group == "placeholder" else _Kind.OTHER, raw)
    found = _NAME.match(raw)
    name = found[1] if found else ""
    name = name.lower() if rules.is_html else name
    if raw.startswith("</"):
        return _Token(_Kind.CLOSE, raw, name)
    is_empty = raw.endswith("/>") or (rules.is_html and name in HTML_VOID)
    return _Token(_Kind.EMPTY if is_empty else _Kind.OPEN, raw, name)


def _entity(raw: str, rules: MarkupRules) -> _Token:
    name = raw[1:-1]
    is_known = name.startswith("#") or rules.is_html or name in _XML_ENTITIES
    text = html.unescape(raw) if is_known else raw
    if (
        raw in _KEPT_ENTITIES
        or text == raw
        or text in {"<", ">"}
        or "\0" in text
        or "\N{REPLACEMENT CHARACTER}" in text
    ):
        return _Token(_Kind.KEPT, raw)
    return _Token(_Kind.TEXT, raw, text=text)


def _with_ignored(tokens: Iterable[_Token], rules: MarkupRules) -> Iterator[_Token]:
    """Make one token of every ignored element; one that never ends goes on to the end."""
    name, depth, parts = "", 0, list[str]()
    for token in tokens:
        if depth:
            parts.append(token.raw)
            depth += (token.kind is _Kind.OPEN) - (token.kind is _Kind.CLOSE) if token.name == name else 0
            if depth == 0:
                yield _Token(_Kind.KEPT, "".join(parts), name)
        elif token.kind is _Kind.OPEN and (token.name in rules.ignored or _UNTRANSLATED.search(token.raw)):
            name, depth, parts = token.name, 1, [token.raw]
        else:
            yield token
    if depth:
        yield _Token(_Kind.KEPT, "".join(parts), name)


def _pair(tokens: Sequence[_Token]) -> None:
    """Join what opens with what closes; what is left over stays single."""
    opened: list[_Token] = []
    waiting = Counter[str]()
    n_pairs = 0
    for token in tokens:
        if token.kind is _Kind.OPEN:
            opened.append(token)
            waiting[token.name] += 1
        elif token.kind is _Kind.CLOSE and waiting[token.name]:
            while (last := opened.pop()).name != token.name:  # never closed
                waiting[last.name] -= 1
            waiting[token.name] -= 1
            n_pairs += 1
            last.pair = token.pair = n_pairs


def _structure(tokens: Sequence[_Token]) -> frozenset[str]:
    """Return the names of elements that stand in elements without text of their own, from the outside inwards."""
    root = _Element("")
    path = [root]
    for token in tokens:
        if token.kind in {_Kind.TEXT, _Kind.KEPT}:
            path[-1].has_text |= bool(token.text.strip()) or token.kind is _Kind.KEPT
            path[-1].has_lines |= "\n" in token.text
        elif token.kind is _Kind.OPEN and token.pair:
            path.append(path[-1].add(token.name))
        elif token.kind is _Kind.CLOSE and token.pair:
            path.pop()
    is_one_sentence = len(root.children) > 1 and not root.has_lines
    return frozenset() if is_one_sentence else frozenset(root.structural_names())


@dataclass(slots=True)
class _Element:
    name: str
    has_text: bool = False
    has_lines: bool = False
    children: list[_Element] = field(default_factory=list)

    def add(self, name: str) -> _Element:
        self.children.append(_Element(name))
        return self.children[-1]

    def structural_names(self) -> set[str]:
        names: set[str] = set()
        level = [self]
        while level:  # not by recursion: fragments may be nested deeper than Python's stack
            level = [child for element in level if not element.has_text for child in element.children]
            names |= {element.name for element in level}
        return names


# Cutting


def _split(tokens: Iterable[_Token], splitting: frozenset[str]) -> Iterator[list[_Token]]:
    part: list[_Token] = []
    for token in tokens:
        if token.name in splitting and token.kind is not _Kind.KEPT:
            yield part
            yield [token]
            part = []
        else:
            part.append(token)
    yield part


def _piece(tokens: list[_Token]) -> _Piece:
    start, end = _trimmed(tokens)
    inner = tokens[start:end]
    raw = "".join(token.raw for token in tokens)
    unit = _unit(inner)
    if unit is None:
        return _Piece(raw, "", "", None)
    text = "".join(token.text if token.kind is _Kind.TEXT else token.raw for token in inner)
    before = len(text) - len(text.lstrip())
    after = len(text) - len(text.rstrip())
    lead = "".join(token.raw for token in tokens[:start]) + text[:before]
    trail = (text[len(text) - after :] if after else "") + "".join(token.raw for token in tokens[end:])
    return _Piece(raw, lead, trail, unit)


def _trimmed(tokens: Sequence[_Token]) -> tuple[int, int]:
    """Leave out blanks, comments and tags at both ends that belong to the whole, not to a word in it."""
    start, end = 0, len(tokens)
    while start < end:
        first, last = tokens[start], tokens[end - 1]
        if _is_outside(first):
            start += 1
        elif _is_outside(last):
            end -= 1
        elif first.kind is _Kind.OPEN and first.pair and first.pair == last.pair:
            start, end = start + 1, end - 1
        else:
            break
    return start, end


def _is_outside(token: _Token) -> bool:
    if token.kind is _Kind.TEXT:
        return not token.text.strip()
    is_single_tag = token.kind in {_Kind.OPEN, _Kind.CLOSE} and not token.pair
    is_layout = token.kind is _Kind.EMPTY and token.name in HTML_VOID
    return is_single_tag or is_layout or token.kind is _Kind.OTHER


def _unit(tokens: Sequence[_Token]) -> UnitText | None:
    """Return the unit, or None when there is no text in it."""
    present = {token.kind for token in tokens}
    if _Kind.TEXT not in present:
        return None
    whole = "".join(token.text if token.kind is _Kind.TEXT else token.raw for token in tokens)
    offset = len(whole) - len(whole.lstrip())
    both_ends = {pair for pair, count in Counter(token.pair for token in tokens).items() if pair and count == 2}
    spans: list[ProtectedSpan] = []
    position = -offset
    for token in tokens:
        length = len(token.text if token.kind is _Kind.TEXT else token.raw)
        if token.kind is not _Kind.TEXT:
            spans.append(_protected(token, Span(position, position + length), is_paired=token.pair in both_ends))
        position += length
    return UnitText(whole.strip(), tuple(spans))


def _protected(token: _Token, span: Span, *, is_paired: bool) -> ProtectedSpan:
    if not is_paired:
        return ProtectedSpan(span)
    return ProtectedSpan(span, TokenKind.OPEN if token.kind is _Kind.OPEN else TokenKind.CLOSE, token.pair)


# Filling


def _filled(piece: _Piece, unit: UnitText, target: str) -> str:
    if target == unit.text:
        return piece.raw
    literals = {span.span.of(unit.text) for span in unit.protected}
    return f"{piece.lead}{_escaped(target, literals)}{piece.trail}"


def _escaped(target: str, literals: Iterable[str]) -> str:
    """Write a target as markup: what was protected as it is, all else with its special characters spelled out."""
    longest_first = sorted(literals, key=len, reverse=True)
    if not longest_first:
        return html.escape(target, quote=False)
    parts = re.split(f"({'|'.join(map(re.escape, longest_first))})", target)
    return "".join(part if index % 2 else html.escape(part, quote=False) for index, part in enumerate(parts))
