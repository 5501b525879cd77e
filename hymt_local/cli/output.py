"""Owns stdout: data only, exact bytes to a pipe, sanitized text to a terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any

from hymt_local.events import SegmentDone, Started, TextDelta
from hymt_local.sanitize import sanitize
from hymt_local.segment import Segment


def stdout_is_terminal() -> bool:
    """Say whether a person reads stdout."""
    return sys.stdout.isatty()


def write_text(text: str, *, raw: bool = False) -> None:
    """Write text; a terminal gets it sanitized unless `raw`, a pipe gets exactly these characters as UTF-8.

    Line ends are not translated and lone surrogates (undecodable bytes of an argument) come back as those bytes.
    """
    if stdout_is_terminal() and not raw:
        text = sanitize(text)
    data = text.encode("utf-8", "surrogateescape")
    stream = sys.stdout
    stream.flush()
    buffer = getattr(stream, "buffer", None)
    if buffer is None:  # a test's StringIO has no bytes underneath
        stream.write(text)
    else:
        buffer.write(data)
    stream.flush()


def write_json(value: Any) -> None:
    """Write one JSON document, indented, with a final newline."""
    import msgspec

    encoded = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    write_text(encoded + "\n", raw=True)


def write_table(rows: Sequence[Sequence[str]], *, header: Sequence[str]) -> None:
    """Write columns padded to the widest cell, measured in terminal cells so that CJK names line up."""
    table = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(cell_width(row[i]) for row in table) for i in range(len(header))]
    for row in table:
        cells = [cell + " " * (width - cell_width(cell)) for cell, width in zip(row, widths, strict=True)]
        write_text("  ".join(cells).rstrip() + "\n")


def cell_width(text: str) -> int:
    """Return how many terminal cells `text` takes: 2 for wide and full-width characters, 0 for combining marks."""
    import unicodedata

    def width(character: str) -> int:
        if unicodedata.combining(character) or unicodedata.category(character) in {"Mn", "Me", "Cf"}:
            return 0
        return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1

    return sum(width(character) for character in text)


class TerminalStream:
    """Writes streamed segments to a terminal in text order: one segment flows, later ones wait for their turn."""

    def __init__(self, *, raw: bool = False) -> None:
        self._raw = raw
        self._segments: tuple[Segment, ...] = ()
        self._current = 0
        self._opened = -1  # the last segment whose lead was written
        self._shown = ""  # what of the current segment is on the screen
        self._waiting: dict[int, str] = {}
        self._done: dict[int, str] = {}
        self._last = "\n"

    def start(self, event: Started) -> None:
        """Learn the segments; writes what stands before the first one."""
        self._segments = event.segments
        self._advance()

    def delta(self, event: TextDelta) -> None:
        """Write new text at once when its segment's turn has come, else keep it."""
        if event.segment == self._current:
            self._show(event.text)
        else:
            self._waiting[event.segment] = self._waiting.get(event.segment, "") + event.text

    def settle(self, event: SegmentDone) -> None:
        """Take the authoritative text of a segment; a correction of streamed text starts on a fresh line."""
        self._done[event.segment] = event.target
        self._advance()

    def finish(self) -> None:
        """End the line, so that the shell's prompt does not stick to the text."""
        if self._last != "\n":
            self._write("\n")

    def _advance(self) -> None:
        while self._current < len(self._segments):
            segment = self._segments[self._current]
            if self._opened < self._current:
                self._opened = self._current
                self._write(segment.lead)
                self._show(self._waiting.pop(self._current, ""))
            if self._current not in self._done:
                return
            self._complete(segment, self._done.pop(self._current))

    def _complete(self, segment: Segment, target: str) -> None:
        corrected = not target.startswith(self._shown)
        self._write(f"\n{target}" if corrected else target[len(self._shown) :])
        self._write(segment.trail)
        self._current += 1
        self._shown = ""

    def _show(self, text: str) -> None:
        self._write(text)
        self._shown += text

    def _write(self, text: str) -> None:
        if text:
            write_text(text, raw=self._raw)
            self._last = text[-1]


def read_stdin() -> bytes:
    """Return all of standard input as bytes."""
    stream = getattr(sys.stdin, "buffer", None)
    return stream.read() if isinstance(stream, io.BufferedIOBase) else sys.stdin.read().encode()
