"""Owns stdout: data only, exact bytes to a pipe, sanitized text to a terminal."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hymt_local.errors import UsageError
from hymt_local.sanitize import sanitize

if TYPE_CHECKING:  # a help text needs neither
    from hymt_local.segment import Attempt, Finding


def stdout_is_terminal() -> bool:
    """Say whether a person reads stdout."""
    return sys.stdout.isatty()


def write_text(text: str, *, raw: bool = False) -> None:
    """Write text; a terminal gets it sanitized unless `raw`, a pipe gets exactly these characters as UTF-8.

    Line ends are not translated and lone surrogates (undecodable bytes of an argument) come back as those bytes.

    Raises:
        OSError: the disk is full, stdout is closed, or (BrokenPipeError) nobody reads the pipe any more.
    """
    if stdout_is_terminal() and not raw:
        text = sanitize(text)
    try:
        # Not through the text layer: it would translate line ends and obey PYTHONIOENCODING.
        sys.stdout.flush()
        _write_all(text.encode("utf-8", "surrogateescape"))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from error


def _write_all(data: bytes) -> None:
    rest = memoryview(data)
    while rest:  # with PYTHONUNBUFFERED the layer below takes what fits into the pipe, and says how much that was
        n_written = sys.stdout.buffer.write(rest)
        if n_written is None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        rest = rest[n_written:]


def write_json(value: Any) -> None:
    """Write one JSON document, indented, with a final newline."""
    write_text(_encoded(value, indent=2) + "\n", raw=True)


def write_json_line(value: Any) -> None:
    """Write one JSON document on a line of its own, for a stream of them."""
    write_text(_encoded(value, indent=None) + "\n", raw=True)


def _encoded(value: Any, *, indent: int | None) -> str:
    import msgspec

    try:
        encoded = msgspec.json.encode(value)
        return (msgspec.json.format(encoded, indent=indent) if indent else encoded).decode()
    except UnicodeEncodeError:  # undecodable bytes of an argument or a path: JSON can only spell them \udcXX
        import json

        return json.dumps(value, indent=indent)


def finding_object(finding: Finding) -> dict[str, Any]:
    """Return a finding as `--json` shows it; `span` is `[start, end]` in code points of the target, or null."""
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "message": finding.message,
        "remedy": finding.remedy,
        "span": [finding.span.start, finding.span.end] if finding.span else None,
    }


def attempt_objects(attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
    """Return the history of a segment as `--json` shows it."""
    import msgspec

    return [msgspec.structs.asdict(attempt) for attempt in attempts]


def write_table(rows: Sequence[Sequence[str]], *, header: Sequence[str]) -> None:
    """Write columns padded to the widest cell, measured in terminal cells so that CJK names line up."""
    table = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(cell_width(row[i]) for row in table) for i in range(len(header))]
    lines = []
    for row in table:
        cells = [cell + " " * (width - cell_width(cell)) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip() + "\n")
    write_text("".join(lines))


def cell_width(text: str) -> int:
    """Return how many terminal cells `text` takes: 2 for wide and full-width characters, 0 for combining marks."""
    import unicodedata

    def width(character: str) -> int:
        if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
            return 0
        return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1

    return sum(width(character) for character in text)


def read_stdin() -> bytes:
    """Return all of standard input as bytes.

    Raises:
        UsageError: it cannot be read, for example because it is a folder.
    """
    try:
        return sys.stdin.buffer.read() or b""  # None: a parent has made it non-blocking, and there is nothing
    except OSError as error:
        raise UsageError(
            f"cannot read standard input: {error.strerror or error}", hint='name a text instead: hymt "Hello" -t fr'
        ) from error


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
