"""Plain text: a paragraph or a line is a unit, every other character stays where it is.

Lines that were broken at a fixed width are joined to one unit and broken again at the same width. Lines that mean
something (items, addresses, verses) stay lines of their own.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hymt_local.documents.base import Languages, Merged, MergeOptions, Unit
from hymt_local.documents.patching import Patch, apply_patches
from hymt_local.documents.text_encoding import DecodedText, decode
from hymt_local.literals import without_literals
from hymt_local.segment import Span, UnitText

WRAP_WIDTHS = range(50, 85)
"""Median width, in cells, of lines that a program or a typist broke; with some air around the usual 60 to 80."""
_WIDEST_WRAP = 100
"""A longer line was not broken at any width."""
_RAGGED_CELLS = 3
"""Editors and typists break a little before the last possible place."""
_WORDS_OF_PROSE = 3
_CONTEXT_CHARACTERS = 200

_INVISIBLE = "\ufeff\u200b"
_MARKER = re.compile(r"(?:[-*+•·>]|\(?\d{1,3}[.)]|\(?[A-Za-z]\))[ \t\u3000]+")
_BEGINS_ANEW = re.compile(r"[-*+•·>|#–—「『]|\(?\d{1,3}[.)]\s|\(?[A-Za-z]\)\s")
_ENDS_SENTENCE = re.compile(r"[.!?:;。！？：；…।۔։።]['\"”’»)\]」』）]*\Z")
_UNSPACED = r"\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff60\U00020000-\U0003ffff"
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_PIECE = re.compile(
    rf"[（「『“‘《〈【]*(?:[{_UNSPACED}]|[^\s{_UNSPACED}]+)[、。，．！？：；）」』”’》〉】…ーっゃゅょッャュョ々]*[^\S\n]*"
)


@dataclass(frozen=True, slots=True)
class _Line:
    """One line; a marker such as `- ` or `1. ` stands before its body."""

    number: int
    start: int
    body: Span
    end: int
    """After its line end."""
    width: int
    """Cells up to the end of the body."""

    @property
    def is_blank(self) -> bool:
        return self.body.start == self.body.end


@dataclass(frozen=True, slots=True)
class _Paragraph:
    """A unit and the lines that it fills."""

    unit: Unit
    lines: tuple[_Line, ...]
    is_alone: bool
    """No other unit is in its block, and the text has other blocks."""

    @property
    def span(self) -> Span:
        return Span(self.lines[0].body.start, self.lines[-1].body.end)


@dataclass(frozen=True, slots=True)
class TextDocument:
    """One text that was read."""

    decoded: DecodedText
    paragraphs: tuple[_Paragraph, ...]
    wrap_width: int | None
    """Cells of a line, where the text is hard-wrapped."""
    line_end: str
    """Of the first line: for a last line without one."""

    @property
    def units(self) -> Sequence[Unit]:
        """Everything with a letter in it."""
        return [paragraph.unit for paragraph in self.paragraphs]

    def fault(self, unit: Unit, target: str) -> str | None:
        """Refuse a line that would become several, and what no text file can hold."""
        if "\0" in target:
            return "the target holds a NUL character"
        if unit.id.startswith("line-") and len(target.splitlines()) > 1:
            return "a single line would become several"
        return None

    def merge(self, targets: Mapping[str, str], options: MergeOptions) -> Merged:
        """Put the targets in place; those of hard-wrapped paragraphs are broken at the width of the text."""
        patches, rejected = [], {}
        for paragraph in self.paragraphs:
            target = targets.get(paragraph.unit.id, paragraph.unit.source.text)
            if target == paragraph.unit.source.text:
                continue
            if fault := self.decoded.lacks(target):
                rejected[paragraph.unit.id] = fault
            else:
                patches.append(self._patch(paragraph, target, is_bilingual=options.is_bilingual))
        text = apply_patches(self.decoded.text, patches) if patches else self.decoded.text
        return Merged(self.decoded.encode(text), rejected)

    def _patch(self, paragraph: _Paragraph, target: str, *, is_bilingual: bool) -> Patch:
        source, span = self.decoded.text, paragraph.span
        if len(paragraph.lines) > 1:
            target = self._wrapped(paragraph, target)
        if not is_bilingual:
            return Patch(span, target)
        first, last = paragraph.lines[0], paragraph.lines[-1]
        line_end = self._line_end(first) or self.line_end
        gap = line_end * 2 if paragraph.is_alone else line_end
        indent = source[first.start : first.body.start]
        return Patch(Span(last.body.end, last.body.end), f"{gap}{indent}{target}")

    def _wrapped(self, paragraph: _Paragraph, target: str) -> str:
        source, (first, second) = self.decoded.text, paragraph.lines[:2]
        indent = source[second.start : second.body.start]
        width = self.wrap_width or max(line.width for line in paragraph.lines)
        room = [width - cells(source[line.start : line.body.start]) for line in (first, second)]
        return f"{self._line_end(first)}{indent}".join(wrap(target, first_width=room[0], width=room[1]))

    def _line_end(self, line: _Line) -> str:
        return _end_of(self.decoded.text[line.start : line.end])


class TextFormat:
    """`text`: plain text in UTF-8, or UTF-16 with its byte order mark."""

    @property
    def name(self) -> str:
        """As a user types it."""
        return "text"

    @property
    def extensions(self) -> tuple[str, ...]:
        """Of files that hold plain text."""
        return (".txt", ".text")

    @property
    def can_be_bilingual(self) -> bool:
        """The target follows its source."""
        return True

    def sniffs(self, head: bytes) -> bool:
        """Nothing is surely plain text."""
        return False

    def read(self, data: bytes, languages: Languages) -> TextDocument:
        """Find the paragraphs.

        Raises:
            DocumentError: not UTF-8 nor marked as UTF-16, or not a text at all.
        """
        decoded = decode(data)
        lines = list(_lines(decoded.text))
        blocks = list(_blocks(lines))
        width = wrap_width(decoded.text, blocks)
        paragraphs = []
        context = ""
        for block in blocks:
            runs = list(_runs(decoded.text, block, width=width))
            for run in runs:
                is_alone = len(runs) == 1 and len(blocks) > 1
                if paragraph := _paragraph(decoded.text, run, context=context, is_alone=is_alone):
                    paragraphs.append(paragraph)
                    context = paragraph.unit.source.text
        line_end = _end_of(decoded.text[: lines[0].end]) if lines else ""
        return TextDocument(decoded, tuple(paragraphs), width, line_end or "\n")


def _lines(text: str) -> Iterator[_Line]:
    start = 0
    for number, whole in enumerate(text.splitlines(keepends=True), 1):
        if whole.isspace():
            yield _Line(number, start, Span(start, start), start + len(whole), 0)
            start += len(whole)
            continue
        body = _stripped(whole)
        begin = start + (whole.find(body) if body else 0)
        marker = _MARKER.match(body)
        end = begin + len(body)
        first = begin + (marker.end() if marker else 0)
        yield _Line(number, start, Span(first, end), start + len(whole), cells(whole[: end - start]))
        start += len(whole)


def _end_of(line: str) -> str:
    return line[len("".join(line.splitlines())) :]


def _stripped(text: str) -> str:
    before = None
    while before != text:
        before, text = text, text.strip().strip(_INVISIBLE)
    return text


def _blocks(lines: Sequence[_Line]) -> Iterator[list[_Line]]:
    """Yield the runs of lines that are not blank."""
    block: list[_Line] = []
    for line in lines:
        if not line.is_blank:
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def wrap_width(text: str, blocks: Sequence[Sequence[_Line]]) -> int | None:
    """Return the width, in cells, at which most lines of a text were broken; None when lines end where they mean to."""
    inner = [line for block in blocks for line in block[:-1]]
    widths = sorted(line.width for line in inner)
    if not widths or widths[len(widths) // 2] not in WRAP_WIDTHS:
        return None
    n_ended = sum(bool(_ENDS_SENTENCE.search(line.body.of(text)[-4:])) for line in inner)
    widest = min(widths[len(widths) * 19 // 20], _WIDEST_WRAP)
    return widest if n_ended * 2 < len(inner) else None


def _runs(text: str, block: Sequence[_Line], *, width: int | None) -> Iterator[list[_Line]]:
    """Split a block wherever a line end means something."""
    room = width or max(line.width for line in block)
    run = [block[0]]
    for line, after in pairwise(block):
        if _goes_on(text, line, after, width=room, is_wrapped=width is not None):
            run.append(after)
        else:
            yield run
            run = [after]
    yield run


def _goes_on(text: str, line: _Line, after: _Line, *, width: int, is_wrapped: bool) -> bool:
    """Tell whether a line end only means that the line was full."""
    before, body = line.body.of(text), after.body.of(text)
    has_marker = after.body.start > after.start and _MARKER.search(text, after.start, after.body.start)
    if line.width > _WIDEST_WRAP or has_marker or _BEGINS_ANEW.match(body) or not any(map(str.isalpha, before)):
        return False
    piece = _PIECE.match(body)
    was_full = line.width + 1 + cells(piece.group().rstrip() if piece else body) > width - _RAGGED_CELLS
    if is_wrapped:
        return was_full or (line.width * 2 > width and not body[0].isupper() and not _ENDS_SENTENCE.search(before[-4:]))
    is_prose = len(before.split(maxsplit=_WORDS_OF_PROSE)) >= _WORDS_OF_PROSE
    return was_full and is_prose and body[0].islower() and not _ENDS_SENTENCE.search(before[-4:])


def _paragraph(text: str, lines: Sequence[_Line], *, context: str, is_alone: bool) -> _Paragraph | None:
    source = _joined([line.body.of(text) for line in lines])
    if not any(map(str.isalpha, without_literals(source))):
        return None
    number = lines[0].number
    unit = Unit(
        id=f"line-{number}" if len(lines) == 1 else f"lines-{number}-{lines[-1].number}",
        source=UnitText(source, context=(_shortened(context),) if context else ()),
        location=f"line {number}",
    )
    return _Paragraph(unit, tuple(lines), is_alone)


def _joined(bodies: Sequence[str]) -> str:
    joined = bodies[0]
    for body in bodies[1:]:
        is_close = _IS_UNSPACED.match(joined[-1]) and _IS_UNSPACED.match(body[0])
        is_hyphenated = joined[-1] == "-" and joined[-2:-1].isalpha()
        joined += body if is_close or is_hyphenated else f" {body}"
    return joined


def _shortened(context: str) -> str:
    """Return the end of a text, from the start of a word."""
    if len(context) <= _CONTEXT_CHARACTERS:
        return context
    end = context[-_CONTEXT_CHARACTERS:]
    return end.partition(" ")[2].strip() or end


def wrap(text: str, *, first_width: int, width: int) -> list[str]:
    """Break a text into lines of at most so many cells, between words or between characters of unspaced scripts."""
    lines: list[str] = []
    line, used, room = "", 0, first_width
    for piece in _PIECE.findall(" ".join(text.splitlines())) or [text]:
        size = cells(piece.rstrip())
        if line and used + size > room:
            lines.append(line.rstrip())
            line, used, room = "", 0, width
        line += piece
        used += cells(piece)
    return [*lines, line.rstrip()]


def cells(text: str) -> int:
    """Return how wide a text is in cells of a fixed-width font."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))
