"""One unit of a Markdown block: what the translator sees of it, and how its target is written back as Markdown.

A target is written in the plainest way that still parses as the same block with the same markup; if none does, the
target is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.utils import EnvType

from hymt_local.documents.emphasis import Piece, mend_emphasis
from hymt_local.documents.inline_window import Role, find_marks, has_letters, is_clear, split_at_marks, text_window
from hymt_local.documents.markdown_blocks import Block, BlockKind, is_module_line, parse_blocks
from hymt_local.documents.markdown_inline import Event, parse_inline
from hymt_local.documents.patching import Patch, apply_patches
from hymt_local.segment import ProtectedSpan, Span, TokenKind

# What can become markup, and what in doubt could: a target is written with the first before the second is tried.
_MARKUP = re.compile(
    r"\\(?=[!-/:-@\[-`{-~]|$)|(?<!\w)_|_(?!\w)|\*(?!\s)|(?<!\s)\*|[`\[\]]|<(?=[A-Za-z/!?])|&(?=#?\w{1,32};)|~(?=~)|(?<=~)~"
    r"|\$(?=\S)|\{(?=[\w{%#.:])|!(?=\[)|(?<![\w:]):(?=[\w+-]+:)|^[-+=#>!:|~]|(?<!\S)#(?=#*$)|(?<=^\d)[.)](?=\s|$)"
)
_DOUBTFUL = re.compile(r"[\\`*_\[\]<&~$|{#]|!(?=\[)|:|^[-+=>!]|(?<=\d)[.)](?=\s|$)")
_LINE_START = re.compile(r"[-+=#>!:|~`*\d]|\[[ xX^!]")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_LINE_BREAKS = re.compile(r"[ \t]*[\r\n\v\f\x85\u2028\u2029]\s*")
_SPACE = re.compile(r" (?=\S)")
_BLOCK_EDGE = re.compile(r"\[[ xX]\][ \t]|\[![A-Za-z]")
_WITHOUT_SPACES = re.compile(r"[\u2e80-\u312f\u31a0-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]{2}")
_MIN_WRAP_CHARACTERS = 40
_PARENTS = {
    BlockKind.PARAGRAPH: ("paragraph_open", "", ""),
    BlockKind.ITEM: ("paragraph_open", "", ""),
    BlockKind.ATX: ("heading_open", "# ", ""),
    BlockKind.SETEXT: ("heading_open", "", "\n==="),
    BlockKind.CELL: ("table_open", "| ", " |\n| --- |"),
}


@dataclass(frozen=True, slots=True)
class Grammar:
    """The parser and the link definitions of one document."""

    markdown: MarkdownIt
    env: EnvType

    def events(self, content: str) -> list[Event]:
        """Parse the content of a block."""
        return parse_inline(content, self.markdown, self.env)

    def content_as(self, kind: BlockKind, content: str) -> str | None:
        """Return what is parsed as the content if it stands in such a block; None if it does not make exactly one."""
        parent, lead, trail = _PARENTS[kind]
        written = content.replace("|", "\\|") if kind is BlockKind.CELL else content
        env = {"references": dict(self.env.get("references", {}))}
        tokens = parse_blocks(self.markdown, f"{lead}{written}{trail}", env)
        inline = [token for token in tokens if token.type == "inline"]
        is_one = len(inline) == 1 and tokens[0].type == parent and tokens[0].nesting == 1
        n_tokens = 9 if kind is BlockKind.CELL else 3
        return inline[0].content if is_one and len(tokens) == n_tokens else None


@dataclass(frozen=True, slots=True)
class InlineUnit:
    """The part of a block that is translated."""

    block: Block
    head: str
    """Markup at the edges of the content that is no part of the unit."""
    tail: str
    text: str
    protected: tuple[ProtectedSpan, ...]
    keys: Counter[str]
    """The markup of the whole block."""
    edges: tuple[str, str]
    """Traces of head and tail."""
    has_strays: bool = False
    """Some literals look like markup and are protected with it."""

    def marks(self) -> frozenset[str]:
        """Return the protected strings."""
        return frozenset(mark.span.of(self.text) for mark in self.protected)


def inline_unit(block: Block, grammar: Grammar) -> InlineUnit | None:
    """Return the unit of a block, or None if there is nothing to translate in it."""
    if not any(character.isalpha() for character in block.content) or is_module_line(block.content):
        return None
    events = grammar.events(block.content)
    first, last = text_window(events)
    inner = events[first:last]
    if not has_letters(inner):
        return None
    text, protected = _joined(inner, keeps_escapes=False)
    strays: list[ProtectedSpan] = []
    if not is_clear(text, protected):  # literals that look like this block's markup stay as they are written
        text, protected = _joined(inner, keeps_escapes=True)
        strays = _stray_marks(text, protected)
        protected = sorted([*protected, *strays], key=lambda mark: mark.span.start)
    lead, trail = len(text) - len(text.lstrip()), len(text.rstrip())
    shifted = tuple(
        ProtectedSpan(Span(mark.span.start - lead, mark.span.end - lead), mark.kind, mark.pair) for mark in protected
    )
    head, tail = _raw(events[:first]) + text[:lead], text[trail:] + _raw(events[last:])
    edges = _trace_of(events[:first], marked=not strays), _trace_of(events[last:], marked=not strays)
    return InlineUnit(block, head, tail, text[lead:trail], shifted, _keys(events), edges, has_strays=bool(strays))


def written(unit: InlineUnit, target: str, grammar: Grammar) -> str | None:
    """Return a target as Markdown, to stand between head and tail, or None if there is no safe way of writing it."""
    pieces = _pieces(unit, target.strip())
    if Counter(_marks_of(pieces)) != Counter(_marks_of(_pieces(unit, unit.text))):
        return None
    for plain, candidate in _candidates(pieces):
        body = _wrapped(candidate, unit)
        if _is_faithful(f"{unit.head}{body}{unit.tail}", plain, unit, grammar):
            return body
    return None


def beside(unit: InlineUnit, body: str) -> Patch:
    """Return what puts a target after its source: a paragraph of its own, or within the line where there is none."""
    block = unit.block
    whole = f"{unit.head}{body}{unit.tail}".replace("\n", block.line_end + block.container)
    if block.kind is BlockKind.PARAGRAPH:
        gap = f"{block.line_end}{block.container.rstrip()}{block.line_end}{block.container}"
        return Patch(Span(block.end, block.end), gap + whole)
    if block.kind is BlockKind.ITEM:
        return Patch(Span(block.span.end, block.span.end), f"\\{block.line_end}{block.container}{whole}")
    source = block.content
    if source.startswith(unit.head) and source.endswith(unit.tail):
        source = source[len(unit.head) : len(source) - len(unit.tail)]
    joint = "<br>" if block.kind is BlockKind.CELL else " / "
    return Patch(block.span, raw_content(block, f"{unit.head}{source}{joint}{body}{unit.tail}"))


def raw_content(block: Block, content: str) -> str:
    """Return the content of a block as it stands in the document."""
    if block.kind is BlockKind.CELL:
        return content.replace("|", "\\|")
    return content.replace("\n", block.line_end + block.prefix)


def _joined(events: Sequence[Event], *, keeps_escapes: bool) -> tuple[str, list[ProtectedSpan]]:
    text = ""
    parts: list[str] = []
    protected: list[ProtectedSpan] = []
    pairs: list[int] = []
    length = n_pairs = 0
    for index, event in enumerate(events):
        is_escape = keeps_escapes and event.role is Role.LITERAL and event.raw.startswith("\\")
        if event.role is Role.SOFT_BREAK:
            text = _joint(events[index - 1], events[index + 1] if index + 1 < len(events) else None)
        elif event.role is Role.LITERAL and not is_escape:
            text = event.text
        else:
            text = event.raw
            kind, pair = TokenKind.ATOMIC, 0
            if event.role is Role.OPEN:
                n_pairs += 1
                pairs.append(n_pairs)
                kind, pair = TokenKind.OPEN, n_pairs
            elif event.role is Role.CLOSE and pairs:
                kind, pair = TokenKind.CLOSE, pairs.pop()
            protected.append(ProtectedSpan(Span(length, length + len(text)), kind, pair))
        parts.append(text)
        length += len(text)
    return "".join(parts), protected


def _joint(before: Event, after: Event | None) -> str:
    """Return what joins two lines of source text: nothing between characters of scripts that have no word spaces."""
    left = before.text[-1:] or before.raw[-1:]
    right = (after.text or after.raw)[:1] if after else ""
    return "" if _WITHOUT_SPACES.fullmatch(left + right) else " "


def _stray_marks(text: str, protected: Sequence[ProtectedSpan]) -> list[ProtectedSpan]:
    """Return where literal text looks like one of the protected strings."""
    marks = frozenset(mark.span.of(text) for mark in protected)
    strays: list[ProtectedSpan] = []
    position = 0
    for mark in [*protected, ProtectedSpan(Span(len(text), len(text)))]:
        strays += [
            ProtectedSpan(Span(position + span.start, position + span.end))
            for span in find_marks(text[position : mark.span.start], marks)
        ]
        position = mark.span.end
    return strays


def _raw(events: Sequence[Event]) -> str:
    return "".join(event.raw for event in events)


def _keys(events: Sequence[Event]) -> Counter[str]:
    return Counter(event.key for event in events if event.key)


def _pieces(unit: InlineUnit, target: str) -> list[Piece]:
    """Split a target into protected strings and literal text; line breaks in the text are spaces."""
    return [
        Piece(text, is_markup=True) if is_mark else Piece(_LINE_BREAKS.sub(" ", text))
        for text, is_mark in split_at_marks(target, unit.marks())
    ]


def _marks_of(pieces: Sequence[Piece]) -> list[str]:
    return [piece.text for piece in pieces if piece.is_markup]


def _candidates(pieces: list[Piece]) -> Iterator[tuple[list[Piece], list[Piece]]]:
    """Yield ways of writing a target, the plainest first: what it says, and how it is written."""
    mended = mend_emphasis(pieces)
    yield pieces, pieces
    if mended != pieces:
        yield mended, mended
    for pattern in (_MARKUP, _DOUBTFUL):
        yield pieces, _escaped(pieces, pattern)
        if mended != pieces:
            yield mended, _escaped(mended, pattern)


def _escaped(pieces: Sequence[Piece], pattern: re.Pattern[str]) -> list[Piece]:
    return [piece if piece.is_markup else Piece(pattern.sub(r"\\\g<0>", piece.text)) for piece in pieces]


def _wrapped(pieces: Sequence[Piece], unit: InlineUnit) -> str:
    """Return the pieces as text, in lines as long as the source's where that had several."""
    body = "".join(piece.text for piece in pieces)
    block = unit.block
    has_lines = block.kind in (BlockKind.PARAGRAPH, BlockKind.ITEM) and "\n" in block.content
    width = max(block.width_characters, _MIN_WRAP_CHARACTERS) - len(block.prefix)
    if not has_lines or len(body) <= width:
        return body
    chosen: list[Patch] = []
    start = last = -1
    for position in [*_breakable(pieces), len(body)]:
        start = max(start, body.rfind("\n", start + 1, position))
        if position - start > width + 1 and last > start:
            chosen.append(Patch(Span(last, last + 1), "\n"))
            start = last
        last = position
    return apply_patches(body, chosen)


def _breakable(pieces: Sequence[Piece]) -> Iterator[int]:
    """Yield the spaces at which a line may end: the next must not begin like a block."""
    body = "".join(piece.text for piece in pieces)
    position = 0
    for piece in pieces:
        if not piece.is_markup:
            for match in _SPACE.finditer(piece.text):
                after = position + match.end()
                if not _LINE_START.match(body, after) and body[after - 2 : after - 1] not in ("\\", "\n"):
                    yield position + match.start()
        position += len(piece.text)


def _is_faithful(content: str, plain: Sequence[Piece], unit: InlineUnit, grammar: Grammar) -> bool:
    """Tell whether a content is parsed as the unit's kind of block, with its markup around the same text."""
    if not content.strip() or _BLOCK_EDGE.match(content) or is_module_line(content):
        return False
    parsed = grammar.content_as(unit.block.kind, content)
    if parsed is None:
        return False
    events = grammar.events(parsed)
    if _keys(events) != unit.keys:
        return False
    marked = not unit.has_strays
    body = "".join(
        _trace(_literal(piece.text), marked=marked and piece.is_markup and not _is_escape(piece.text))
        for piece in plain
    )
    return _trace_of(events, marked=marked) == f"{unit.edges[0]}{body}{unit.edges[1]}"


def _is_escape(text: str) -> bool:
    return _ESCAPED.fullmatch(text) is not None


def _literal(text: str) -> str:
    return text[1:] if _is_escape(text) else text


def _trace_of(events: Sequence[Event], *, marked: bool) -> str:
    return "".join(
        _trace(event.text, marked=False) if event.role is Role.LITERAL else _trace(event.raw, marked=marked)
        for event in events
    )


def _trace(text: str, *, marked: bool) -> str:
    """Return the characters without spaces; those of markup are marked as such, however they are grouped."""
    visible = "".join(text.split())
    return "".join(f"\0{character}" for character in visible) if marked else visible
