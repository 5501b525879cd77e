"""The block grammar of Markdown: CommonMark, GFM tables, and the block constructs of the common dialects."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token
from markdown_it.utils import EnvType

from hymt_local.documents.markdown_inline import InlineParser
from hymt_local.errors import DocumentError
from hymt_local.segment import Span

MAX_NESTING = 60
"""Containers inside each other; the library skips what lies deeper, which is then left as it is."""
_LINE_END = re.compile(r"\r\n|\n|\r")
_INDENTED_CONTAINER = re.compile(
    r"(?P<footnote>\[\^[^\]\s]{1,200}\]:)|(?:!!!|\?\?\?\+?)[ \t]+\w[^\n]*|===[!+]?[ \t]+\"[^\n]*"
)
_DIRECTIVE = re.compile(r":{3,}[ \t]*(?:\{[^\n]*|[\w-][^\n]*)?")
_MODULE_LINE = re.compile(
    r"import\s+(?:[\w*{][^'\"]{0,300}\sfrom\s+)?['\"][^'\"]+['\"]|export\s+(?:default|const|let|var|function|async|class|\{|\*)[^\n]*[={(;*]"
)
_ALERT = re.compile(r"\[!\w{1,30}\][+-]?[ \t]*(?:\n|$)")
_TASK_BOX = re.compile(r"\[[ xX]\][ \t]+")
_CELL_BOUND = re.compile(r"(?<!\\)\|")
_BLANKS = " \t\v\f"
_CONTAINER_MARK = re.compile(r"[^\s>]")


class BlockKind(Enum):
    """What an inline block is: its target must parse as the same."""

    PARAGRAPH = auto()
    ITEM = auto()
    """A paragraph of a tight list."""
    ATX = auto()
    SETEXT = auto()
    CELL = auto()
    HTML = auto()
    """Raw HTML: `content` is the source text itself."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block with inline content, and where that content stands in the document."""

    kind: BlockKind
    content: str
    """Without container prefixes; lines joined by `\\n`."""
    span: Span
    """From the first to the last character of the content, prefixes of the lines between included."""
    line: int
    """From 0."""
    prefix: str = ""
    """What a further line of the same paragraph begins with."""
    container: str = ""
    """What a further paragraph of the same container begins with."""
    line_end: str = "\n"
    end: int = 0
    """Where the last line of the block ends, before its line end."""
    width_characters: int = 80
    """Of its longest line."""
    markup: str = ""
    """Of a heading: `##`, `=`."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a document without their ends."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def of(cls, text: str) -> Lines:
        """Split at CRLF, LF and CR."""
        ends = [match.span() for match in _LINE_END.finditer(text)]
        return cls(text, [0, *(end for _, end in ends)], [*(start for start, _ in ends), len(text)])

    def line(self, index: int) -> str:
        """Return one line."""
        return self.text[self.starts[index] : self.ends[index]]

    def normalized(self, first: int) -> str:
        """Return the text from a line on, with LF line ends."""
        return "\n".join(self.line(index) for index in range(first, len(self.starts)))

    def line_end(self, index: int) -> str:
        """Return the end of a line, or of the one before where the document ends without."""
        for candidate in (index, index - 1):
            if 0 <= candidate < len(self.starts) - 1:
                return self.text[self.ends[candidate] : self.starts[candidate + 1]]
        return "\n"

    def number(self, offset: int) -> int:
        """Return the line, from 0, that an offset stands in."""
        return bisect_right(self.starts, offset) - 1


@cache
def markdown_parser() -> MarkdownIt:
    """Return the parser of our dialect; its inline part is used apart from the block part. It keeps no state."""
    markdown = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING}).enable(["table", "strikethrough"])
    interrupts: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    markdown.block.ruler.before("fence", "math_block", _math_block, interrupts)
    markdown.block.ruler.before("fence", "directive", _directive, interrupts)
    markdown.block.ruler.before("fence", "indented_container", _indented_container, interrupts)
    inline = InlineParser()
    inline.ruler.enableOnly(["opaque", *markdown.inline.ruler.get_active_rules()])
    markdown.inline = inline
    return markdown


def parse_blocks(markdown: MarkdownIt, text: str, env: EnvType) -> list[Token]:
    """Return the block tokens of a text with LF line ends; link definitions go into `env`."""
    tokens: list[Token] = []
    markdown.block.parse(text, markdown, env, tokens)
    return tokens


def block_skeleton(tokens: Sequence[Token]) -> Sequence[int]:
    """Return a hash per token of what a translation must not change: which blocks there are, and code in them."""
    return array("q", map(_token_hash, tokens))


def _token_hash(token: Token) -> int:
    content = "" if token.type in ("inline", "html_block") else token.content
    return hash((token.type, token.tag, token.markup, token.info, content, str(token.attrs or "")))


def check_nesting(tokens: Sequence[Token]) -> None:
    """Make sure that the library has read everything.

    Raises:
        DocumentError: the document is nested deeper than that.
    """
    for token in tokens:
        if token.level >= MAX_NESTING - 1:
            line = f" at line {token.map[0] + 1}" if token.map else ""
            raise DocumentError(
                f"the Markdown{line} is nested deeper than {MAX_NESTING} levels", hint="is this really Markdown?"
            )


def blocks_of(tokens: Sequence[Token], lines: Lines, *, first_line: int) -> Iterator[Block]:
    """Yield the blocks that may have something to translate, in order.

    Args:
        tokens: Of the document from `first_line` on.
        lines: Of the whole document.
        first_line: Front matter stands before it.
    """
    row: list[Token] = []
    for index, token in enumerate(tokens):
        if token.type == "tr_open":
            row = []
        elif token.type == "tr_close" and row:
            yield from _row_blocks(row, lines, first_line)
        elif token.type == "html_block" and token.map:
            yield from _html_block(lines, first_line + token.map[0], first_line + token.map[1])
        elif token.type == "inline" and token.map:
            parent = tokens[index - 1]
            if parent.tag in ("td", "th"):
                row.append(token)
            else:
                yield from _text_block(token, lines, first_line + token.map[0], parent)


def _text_block(token: Token, lines: Lines, first: int, parent: Token) -> Iterator[Block]:
    if parent.type == "heading_open" and parent.markup.startswith("#"):
        yield from _atx_block(token, lines, first, parent.markup)
    else:
        yield from _paragraph_block(token, lines, first, parent)


def _html_block(lines: Lines, first: int, last: int) -> Iterator[Block]:
    """Yield raw HTML, unless the marks of a quote stand between its lines."""
    prefix, _, _ = lines.line(first).partition("<")
    last = min(last, len(lines.starts))
    if last - first == 1 or ">" not in prefix:
        span = Span(lines.starts[first] + len(prefix), lines.ends[last - 1])
        yield Block(BlockKind.HTML, span.of(lines.text), span, first, end=span.end)


def _row_blocks(cells: Sequence[Token], lines: Lines, first_line: int) -> Iterator[Block]:
    """Yield the cells of a table row, found again by splitting it as the library does."""
    line = first_line + (cells[0].map or [0])[0]
    row, start = lines.line(line), lines.starts[line]
    bounds = [match.start() for match in _CELL_BOUND.finditer(row)]
    columns = list(zip([0, *(bound + 1 for bound in bounds)], [*bounds, len(row)], strict=True))
    for shift in (0, 1):  # 1: the row begins with a pipe, and only containers stand before it
        spans = [_cell_span(row, span, cell.content) for span, cell in zip(columns[shift:], cells, strict=False)]
        if all(spans):
            break
    for cell, span in zip(cells, spans, strict=False):
        if span and cell.content:
            place = Span(start + span.start, start + span.end)
            yield Block(BlockKind.CELL, cell.content, place, line, end=place.end)


def _cell_span(row: str, column: tuple[int, int], content: str) -> Span | None:
    """Return where the content of a cell stands, or None if it is not that cell's.

    Containers of the table stand before its first cell, so the content is looked for from the right.
    """
    left, right = column
    raw = content.replace("|", "\\|")
    trimmed = row[left:right].rstrip(_BLANKS)
    if not trimmed.endswith(raw) or (not raw and trimmed.strip(_BLANKS + ">")):
        return None
    end = left + len(trimmed)
    return Span(end - len(raw), end)


def _atx_block(token: Token, lines: Lines, line: int, markup: str) -> Iterator[Block]:
    row, start = lines.line(line), lines.starts[line]
    mark = row.find(markup)
    left = row.find(token.content, mark + len(markup)) if mark >= 0 and token.content else -1
    if left >= 0:
        span = Span(start + left, start + left + len(token.content))
        yield Block(BlockKind.ATX, token.content, span, line, end=lines.ends[line], markup=markup)


def _paragraph_block(token: Token, lines: Lines, first: int, parent: Token) -> Iterator[Block]:
    """Yield a paragraph or setext heading: each line of the content is the end of a source line."""
    parts = token.content.split("\n")
    starts: list[int] = []
    for index, part in enumerate(parts):
        body = part.strip(_BLANKS)
        line = lines.line(first + index).rstrip(_BLANKS) if first + index < len(lines.starts) else ""
        if not line.endswith(body):
            return
        starts.append(len(line) - len(body))
    last = first + len(parts) - 1
    end = lines.starts[last] + starts[-1] + len(parts[-1].strip(_BLANKS))
    kind = (
        BlockKind.SETEXT if parent.type == "heading_open" else BlockKind.ITEM if parent.hidden else BlockKind.PARAGRAPH
    )
    own_prefix = lines.line(first)[: starts[0]]
    container = _CONTAINER_MARK.sub(" ", own_prefix)
    yield _without_marker(
        Block(
            kind,
            token.content,
            Span(lines.starts[first] + starts[0], end),
            first,
            prefix=lines.line(first + 1)[: starts[1]] if len(starts) > 1 else container,
            container=container,
            line_end=lines.line_end(first),
            end=lines.ends[last] if kind is not BlockKind.SETEXT else lines.ends[last + 1],
            width_characters=max(len(lines.line(index)) for index in range(first, last + 1)),
            markup=parent.markup,
        )
    )


def _without_marker(block: Block) -> Block:
    """Cut the task box of an item or the first line of an alert off the content: no text."""
    match = _TASK_BOX.match(block.content) or _ALERT.match(block.content)
    if match is None or match.end() >= len(block.content):
        return block
    cut = match.end()
    skipped = block.content[:cut].count("\n") * (len(block.prefix) + len(block.line_end) - 1)
    return Block(
        block.kind,
        block.content[cut:].lstrip(),
        Span(block.span.start + cut + skipped, block.span.end),
        block.line + block.content[:cut].count("\n"),
        prefix=block.prefix,
        container=block.container,
        line_end=block.line_end,
        end=block.end,
        width_characters=block.width_characters,
        markup=block.markup,
    )


def is_module_line(content: str) -> bool:
    """Tell whether a paragraph is an `import` or `export` of MDX."""
    return _MODULE_LINE.match(content) is not None


def _line_at(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def _math_block(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    if state.is_code_block(start_line) or not state.src.startswith(
        "$$", state.bMarks[start_line] + state.tShift[start_line]
    ):
        return False
    opening = _line_at(state, start_line).strip()
    if len(opening) > 2 and (opening.endswith("$$") or "$" in opening[2:]):
        return False  # opened and closed on one line: inline
    hopeless = state.env.setdefault("unclosed_math", set())
    if (end_line, state.blkIndent) in hopeless:
        return False
    line = start_line + 1
    while line < end_line and not _line_at(state, line).rstrip().endswith("$$"):
        line += 1
    if line >= end_line:
        hopeless.add((end_line, state.blkIndent))
        return False
    if silent:
        return True
    state.line = line + 1
    _push(state, "math_block", 0, span=(start_line, state.line)).content = state.getLines(
        start_line, state.line, state.blkIndent, False
    )
    return True


def _directive(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    line = _line_at(state, start_line)
    if not line.startswith(":::") or state.is_code_block(start_line) or not _DIRECTIVE.fullmatch(line.rstrip()):
        return False
    if not silent:
        state.line = start_line + 1
        _push(state, "directive", 0, span=(start_line, state.line)).content = line
    return True


def _indented_container(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Read footnotes, admonitions and tabs: a first line, then blocks indented by four."""
    line = _line_at(state, start_line)
    match = _INDENTED_CONTAINER.match(line) if line[:1] in ("[", "!", "?", "=") else None
    if match is None or state.is_code_block(start_line) or state.level >= MAX_NESTING:
        return False
    if silent:
        return True
    _push(state, "container_open", 1, span=(start_line, start_line + 1)).content = match.group()
    _read_container(state, start_line, end_line, width=match.end() if match["footnote"] else None)
    _push(state, "container_close", -1)
    return True


def _read_container(state: StateBlock, start_line: int, end_line: int, *, width: int | None) -> None:
    kept = state.bMarks[start_line], state.tShift[start_line], state.sCount[start_line], state.parentType
    state.parentType = "footnote"
    if width is not None:
        rest = state.bMarks[start_line] + state.tShift[start_line] + width
        blanks = len(state.src[rest : state.eMarks[start_line]]) - len(
            state.src[rest : state.eMarks[start_line]].lstrip(" \t")
        )
        state.bMarks[start_line], state.tShift[start_line] = rest, blanks
        state.sCount[start_line] = state.blkIndent + 4
    state.blkIndent += 4
    first = start_line if width is not None else start_line + 1
    state.line = first
    if first < end_line:
        state.md.block.tokenize(state, first, end_line)
    state.blkIndent -= 4
    state.bMarks[start_line], state.tShift[start_line], state.sCount[start_line], state.parentType = kept


def _push(state: StateBlock, name: str, nesting: Literal[-1, 0, 1], *, span: tuple[int, int] | None = None) -> Token:
    token = state.push(name, "", nesting)
    token.map = list(span) if span else None
    return token
