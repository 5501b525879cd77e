"""The syntax of gettext catalogues: entries, their strings, and where each stands in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hymt_local.documents.cue_layout import cells
from hymt_local.documents.cues import lines_of
from hymt_local.errors import DocumentError
from hymt_local.segment import Span

_STRINGS = r'(?:"(?:[^"\\]|\\.)*"[ \t]*)+'
_KEYWORD = re.compile(
    rf"[ \t]*(msgctxt|msgid_plural|msgid|msgstr)(?:[ \t]*\[[ \t]*(\d{{1,3}})[ \t]*\])?[ \t]*({_STRINGS})"
)
_CONTINUATION = re.compile(rf"[ \t]*({_STRINGS})")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|.)", re.DOTALL)
_MEANINGS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", '"': '"', "\\": "\\"}
_WRITTEN = {meaning: f"\\{letter}" for letter, meaning in _MEANINGS.items()}
_NEEDS_ESCAPE = re.compile(r'[\n\t\r\a\b\f\v"\\]')
_WRAPPING_UNIT = re.compile(r"[^\n ]*(?: +|\n|$)")


@dataclass(frozen=True, slots=True)
class PoString:
    """One string of an entry."""

    span: Span
    """From the first quote to the last."""
    value: str
    """Decoded."""


@dataclass(frozen=True, slots=True)
class PoEntry:
    """One message with everything around it."""

    number: int
    """Its place in the file, the header included."""
    line: int
    """Of its first keyword, from 1."""
    start: int
    """Where its first keyword's line begins."""
    end: int
    """After its last string."""
    source: PoString
    targets: Mapping[int, PoString]
    """By plural slot; a message without plural has only slot 0."""
    context: PoString | None = None
    source_plural: PoString | None = None
    comments: tuple[PoComment, ...] = ()

    @property
    def is_header(self) -> bool:
        """Whether this is the header of the file."""
        return self.context is None and self.source.value == ""

    @property
    def flags(self) -> frozenset[str]:
        """The words of its `#,` lines."""
        return frozenset(flag for comment in self.comments for flag in comment.flags)

    def comments_of(self, kind: str) -> list[PoComment]:
        """Return the comment lines of one kind: `#,`, `#.`, `#|`."""
        return [comment for comment in self.comments if comment.kind == kind]


@dataclass(frozen=True, slots=True)
class PoComment:
    """One comment line."""

    kind: str
    """Its first two characters."""
    text: str
    """After them, without outer whitespace."""
    span: Span
    """With its line end."""
    mark: int
    """Where its `#` stands."""

    @property
    def flags(self) -> list[str]:
        """The flags of a `#,` line."""
        return [word for part in self.text.split(",") if (word := part.strip())] if self.kind == "#," else []


@dataclass(slots=True)
class _Pending:
    """A string while its lines are read."""

    start: int
    end: int
    parts: list[str]

    def finished(self) -> PoString:
        return PoString(Span(self.start, self.end), "".join(self.parts))


_Key = tuple[str, int]


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._entries: list[PoEntry] = []
        self._comments: list[PoComment] = []
        self._strings: dict[_Key, _Pending] = {}
        self._last: _Pending | None = None
        """What a line without a keyword continues."""
        self._line = self._start = 0

    def parsed(self) -> list[PoEntry]:
        lines = lines_of(self._text)
        for position, line in enumerate(lines):
            next_start = lines[position + 1].start if position + 1 < len(lines) else line.end
            self._read_line(line, number=position + 1, next_start=next_start)
        self._finish()
        return self._entries

    def _read_line(self, span: Span, *, number: int, next_start: int) -> None:
        line = span.of(self._text)
        stripped = line.strip(" \t")
        if not stripped:
            return
        if stripped.startswith("#"):
            self._read_comment(stripped, Span(span.start, next_start), mark=span.start + line.index("#"))
        elif match := _KEYWORD.fullmatch(line):
            self._read_keyword(match, span, number=number)
        elif (match := _CONTINUATION.fullmatch(line)) and self._last:
            self._last.parts.append(_value(match[1]))
            self._last.end = span.start + len(line.rstrip(" \t"))
        else:
            raise _unexpected(number, line)

    def _read_comment(self, line: str, span: Span, *, mark: int) -> None:
        self._last = None
        if self._has_target():
            self._finish()
        if line.startswith("#~"):  # the flags above an obsolete message are not those of the next one
            self._comments = []
        else:
            self._comments.append(PoComment(line[:2], line[2:].strip(), span, mark))

    def _has_target(self) -> bool:
        return bool(self._strings) and next(reversed(self._strings))[0] == "msgstr"

    def _read_keyword(self, match: re.Match[str], span: Span, *, number: int) -> None:
        key = match[1], int(match[2] or 0)
        if self._has_target() and match[1] != "msgstr":
            self._finish()
        if not self._is_expected(key):
            raise _unexpected(number, match.group())
        if not self._strings:
            self._line, self._start = number, span.start
        start = span.start + match.start(3)
        self._last = _Pending(start, start + len(match[3].rstrip(" \t")), [_value(match[3])])
        self._strings[key] = self._last

    def _is_expected(self, key: _Key) -> bool:
        has_source = ("msgid", 0) in self._strings
        if key[0] in {"msgid", "msgctxt"}:
            return key not in self._strings and not has_source
        return key not in self._strings and has_source

    def _finish(self) -> None:
        strings = {key: pending.finished() for key, pending in self._strings.items()}
        targets = {slot: string for (keyword, slot), string in strings.items() if keyword == "msgstr"}
        if strings and not targets:
            raise _unexpected(self._line, "a message without msgstr")
        if targets:
            entry = PoEntry(
                number=len(self._entries) + 1,
                line=self._line,
                start=self._start,
                end=max(string.span.end for string in targets.values()),
                source=strings["msgid", 0],
                targets=targets,
                context=strings.get(("msgctxt", 0)),
                source_plural=strings.get(("msgid_plural", 0)),
                comments=tuple(self._comments),
            )
            self._entries.append(entry)
            self._comments = []
        self._strings, self._last = {}, None


def parse_po(text: str) -> list[PoEntry]:
    """Return the entries that are not obsolete, in order.

    Raises:
        DocumentError: a line that is not gettext; the message has its number.
    """
    return _Parser(text).parsed()


def _unexpected(number: int, line: str) -> DocumentError:
    return DocumentError(f"line {number} is not gettext: {line.strip()[:60]!r}", hint="`msgfmt --check` says more")


def _value(written: str) -> str:
    """Decode the strings that stand on one line."""
    if written.count('"') == 2 and "\\" not in written:
        return written.strip()[1:-1]
    return "".join(_ESCAPE.sub(_meaning, match[1]) for match in _STRING.finditer(written))


def _meaning(escape: re.Match[str]) -> str:
    code = escape[1]
    if code in _MEANINGS:
        return _MEANINGS[code]
    if code[0] in "01234567":
        return chr(int(code, 8))
    return chr(int(code[1:], 16)) if code[0] == "x" and len(code) > 1 else code


def escaped(value: str) -> str:
    """Return a value as it stands between quotes."""
    return _NEEDS_ESCAPE.sub(lambda match: _WRITTEN[match.group()], value)


@dataclass(frozen=True, slots=True)
class PoStyle:
    """How a file writes its strings."""

    line_end: str
    width_cells: int
    """Of a line with its quotes; 0 where the file does not wrap."""

    def written(self, value: str, *, keyword: str) -> str:
        """Return a value as quoted strings: on one line if it fits beside its keyword, else below an empty one."""
        lines = list(self._lines(value))
        if len(lines) <= 1 and (not self.width_cells or len(keyword) + 3 + cells(escaped(value)) <= self.width_cells):
            return f'"{escaped(value)}"'
        return self.line_end.join(['""', *(f'"{escaped(line)}"' for line in lines)])

    def _lines(self, value: str) -> Iterator[str]:
        """Break after each line end, and after spaces where the file wraps."""
        line, used = "", 0
        for match in _WRAPPING_UNIT.finditer(value):
            part = match.group()
            needed = cells(escaped(part)) if self.width_cells else 0
            if line and self.width_cells and used + needed + 2 > self.width_cells:
                yield line
                line, used = "", 0
            line, used = line + part, used + needed
            if part.endswith("\n"):
                yield line
                line, used = "", 0
        if line:
            yield line


_USUAL_WIDTH_CELLS = 79


def style_of(text: str, entries: Sequence[PoEntry], line_end: str) -> PoStyle:
    """Tell how a file writes: it wraps unless a string stands on a line that wrapping would have broken."""
    for entry in entries:
        for string in (entry.source, entry.source_plural, *entry.targets.values()):
            if string is None or string.span.end - string.span.start <= _USUAL_WIDTH_CELLS:
                continue
            written = string.span.of(text)
            lines = [line.of(written) for line in lines_of(written)]
            if any(len(line) > _USUAL_WIDTH_CELLS + 1 and " " in line.strip('" ') for line in lines):
                return PoStyle(line_end, 0)
            if any(not line.rstrip().endswith('\\n"') for line in lines[1:-1]):
                return PoStyle(line_end, _USUAL_WIDTH_CELLS)
    return PoStyle(line_end, _USUAL_WIDTH_CELLS)


@dataclass(frozen=True, slots=True)
class PoHeader:
    """The fields of the header entry and where their values stand."""

    fields: Mapping[str, tuple[str, Span]]
    """Lower-case name -> value, span of the written value; of the space after the colon where there is none."""
    end: int
    """Where another field can be added: after the last string."""
    ends_line: bool
    """Whether the last field ends with a line end."""


def header_of(text: str, entry: PoEntry) -> PoHeader | None:
    """Read the header from its entry."""
    string = entry.targets.get(0)
    if string is None:
        return None
    characters = list(_characters(text, string.span))
    fields: dict[str, tuple[str, Span]] = {}
    position = 0
    for line in string.value.split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            start = position + len(name) + 1
            if value.strip():
                start += len(value) - len(value.lstrip())
            end = position + len(line)
            written = Span(
                characters[start - 1].end if not value.strip() else characters[start].start, characters[end - 1].end
            )
            fields[name.strip().lower()] = (value.strip(), written)
        position += len(line) + 1
    return PoHeader(fields, string.span.end, string.value.endswith("\n"))


def _characters(text: str, span: Span) -> Iterator[Span]:
    """Yield where each decoded character of a string is written."""
    for string in _STRING.finditer(text, span.start, span.end):
        position = string.start(1)
        while position < string.end(1):
            escape = _ESCAPE.match(text, position, string.end(1)) if text[position] == "\\" else None
            end = escape.end() if escape else position + 1
            yield Span(position, end)
            position = end
