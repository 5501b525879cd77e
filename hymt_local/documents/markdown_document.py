"""A Markdown document that was read: its units, and the document with their targets in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.utils import EnvType

from hymt_local.documents.base import Merged, MergeOptions, Unit
from hymt_local.documents.front_matter import FrontValue, front_matter_end, front_values
from hymt_local.documents.html_document import ReadingContext
from hymt_local.documents.html_document import beside as html_beside
from hymt_local.documents.html_document import unit_of as html_unit
from hymt_local.documents.html_page import HtmlPage
from hymt_local.documents.html_reader import HtmlPart
from hymt_local.documents.inline_window import unwritable
from hymt_local.documents.markdown_blocks import (
    BlockKind,
    Lines,
    block_skeleton,
    blocks_of,
    check_nesting,
    markdown_parser,
    parse_blocks,
)
from hymt_local.documents.markdown_target import Grammar, InlineUnit, beside, inline_unit, raw_content, written
from hymt_local.documents.patching import Patch, apply_patches, in_order
from hymt_local.documents.text_encoding import DecodedText, decode
from hymt_local.segment import Span, TokenGroup, UnitText

_NO_SAFE_FORM = "there is no way to write it that keeps the Markdown around it as it is"


@dataclass(frozen=True, slots=True)
class PagePart:
    """A part of the raw HTML in a document."""

    page: HtmlPage
    offset: int
    """Where the page stands in the document."""
    part: HtmlPart


MarkdownPart = InlineUnit | FrontValue | PagePart


@dataclass(frozen=True, slots=True)
class MarkdownDocument:
    """Immutable."""

    decoded: DecodedText
    lines: Lines
    grammar: Grammar
    skeleton: Sequence[int]
    units: Sequence[Unit]
    parts: Mapping[str, MarkdownPart] = field(repr=False)

    def fault(self, unit: Unit, target: str) -> str | None:
        """Say why a target cannot be written."""
        part = self.parts[unit.id]
        if target == unit.source.text:
            return None
        if isinstance(part, PagePart):
            return part.page.fault(part.part, target)
        if isinstance(part, FrontValue) or _problem(target):
            return _problem(target)
        return None if written(part, target, self.grammar) is not None else _NO_SAFE_FORM

    def merge(self, targets: Mapping[str, str], options: MergeOptions) -> Merged:
        """Return the document with these targets; what would change its structure is left out and named."""
        rejected: dict[str, str] = {}
        patches: dict[str, Patch] = {}
        accepted: dict[str, str] = {}
        for unit in self.units:
            target = targets.get(unit.id)
            if target is None or target == unit.source.text:
                continue
            part = self.parts[unit.id]
            is_fit = self.decoded.lacks(target) is None
            if isinstance(part, PagePart):
                if is_fit and part.page.fault(part.part, target) is None:
                    accepted[unit.id] = target
                    continue
            elif is_fit and (patch := self._patch(part, target, options)) is not None:
                patches[unit.id] = patch
                continue
            rejected[unit.id] = self.decoded.lacks(target) or self.fault(unit, target) or _NO_SAFE_FORM
        fixed = self._html_patches(accepted, options)
        if not options.is_bilingual:
            self._reject_changes(patches, fixed, rejected)
        text = apply_patches(self.lines.text, in_order([*patches.values(), *fixed]))
        return Merged(self.decoded.encode(text), rejected)

    def _patch(self, part: InlineUnit | FrontValue, target: str, options: MergeOptions) -> Patch | None:
        if _problem(target):
            return None
        if isinstance(part, FrontValue):
            shown = f"{part.text} / {target}" if options.is_bilingual else target
            return Patch(part.span, part.written(shown))
        body = written(part, target, self.grammar)
        if body is None:
            return None
        if options.is_bilingual:
            return beside(part, body)
        return Patch(part.block.span, raw_content(part.block, f"{part.head}{body}{part.tail}"))

    def _html_patches(self, accepted: Mapping[str, str], options: MergeOptions) -> list[Patch]:
        """Return the patches of the raw HTML in the document: they cannot change the blocks around it."""
        pages: dict[int, list[tuple[PagePart, str]]] = {}
        for unit_id, target in accepted.items():
            part = self.parts[unit_id]
            if isinstance(part, PagePart):
                pages.setdefault(part.offset, []).append((part, target))
        patches: list[Patch] = []
        for offset, chosen in pages.items():
            page = chosen[0][0].page
            inner = [(part.part, target) for part, target in chosen]
            lang = options.languages.target_lang
            if options.is_bilingual:
                moved = [html_beside(page, part, target, lang) for part, target in inner]
            else:
                moved = [patch for _, patch in page.patches(inner)]
            patches += [Patch(Span(offset + one.span.start, offset + one.span.end), one.text) for one in moved]
        return patches

    def _reject_changes(self, patches: dict[str, Patch], fixed: Sequence[Patch], rejected: dict[str, str]) -> None:
        """Leave out what parses alone but not in its place, such as text that continues a link definition."""
        n_suspects = 1
        while patches and self._is_changed([*patches.values(), *fixed]):
            unit_ids = list(patches)
            first, last = 0, len(unit_ids)
            while last - first > 1:  # the blocks change with the patches before `last`, not with those before `first`
                middle = (first + last) // 2
                if self._is_changed([patches[unit_id] for unit_id in unit_ids[:middle]]):
                    last = middle
                else:
                    first = middle
            for unit_id in unit_ids[first : first + n_suspects]:
                del patches[unit_id]
                rejected[unit_id] = _NO_SAFE_FORM
            n_suspects *= 2  # the number of parses stays small, whatever the engine wrote

    def _is_changed(self, patches: Sequence[Patch]) -> bool:
        text = apply_patches(self.lines.text, in_order(patches))
        tokens, _ = _parsed(Lines.of(text), front_matter_end(text), self.grammar.markdown)
        return block_skeleton(tokens) != self.skeleton


def read_markdown(data: bytes) -> MarkdownDocument:
    """Parse a document.

    Raises:
        DocumentError: undecodable, or nested beyond the limit.
    """
    decoded = decode(data)
    lines = Lines.of(decoded.text)
    markdown = markdown_parser()
    start = front_matter_end(decoded.text)
    tokens, env = _parsed(lines, start, markdown)
    check_nesting(tokens)
    grammar = Grammar(markdown, env)
    parts: dict[str, MarkdownPart] = {}
    units: list[Unit] = []
    context = ReadingContext()
    for part in _parts(decoded.text, tokens, lines, grammar):
        unit = _unit(part, f"u{len(units) + 1}", lines, context)
        parts[unit.id] = part
        units.append(unit)
    return MarkdownDocument(decoded, lines, grammar, block_skeleton(tokens), units, parts)


def _parsed(lines: Lines, start: int, markdown: MarkdownIt) -> tuple[list[Token], EnvType]:
    env: EnvType = {}
    return parse_blocks(markdown, lines.normalized(lines.number(start) if start else 0), env), env


def _parts(text: str, tokens: Sequence[Token], lines: Lines, grammar: Grammar) -> Iterator[MarkdownPart]:
    yield from front_values(text)
    start = front_matter_end(text)
    for block in blocks_of(tokens, lines, first_line=lines.number(start) if start else 0):
        if block.kind is BlockKind.HTML:
            page = HtmlPage(block.content)
            yield from (PagePart(page, block.span.start, part) for part in page.parts)
        elif (unit := inline_unit(block, grammar)) is not None:
            yield unit


def _problem(target: str) -> str | None:
    return unwritable(target) or (None if target.strip() else "it is empty")


def _unit(part: MarkdownPart, unit_id: str, lines: Lines, context: ReadingContext) -> Unit:
    if isinstance(part, FrontValue):
        location = f"line {lines.number(part.span.start) + 1}"
        return Unit(unit_id, UnitText(part.text), location, note=part.key)
    if isinstance(part, PagePart):
        line = lines.number(part.offset + part.part.span.start) + 1
        return html_unit(part.part, unit_id, line, ReadingContext())
    around = context.of(part.text, is_heading=part.block.kind in (BlockKind.ATX, BlockKind.SETEXT))
    text = UnitText(part.text, part.protected, frozenset({TokenGroup.TEXT}), around)
    return Unit(unit_id, text, f"line {part.block.line + 1}")
