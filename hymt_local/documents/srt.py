"""SubRip subtitles. Numbers, timings, coordinates and everything between cues stay byte for byte."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hymt_local.documents.base import Languages
from hymt_local.documents.cue_layout import CueLimits
from hymt_local.documents.cues import CueDocument, CueRegion, CueSyntax, lines_of, read_cues
from hymt_local.documents.text_encoding import decode
from hymt_local.errors import DocumentError
from hymt_local.segment import Span

_TIME = r"(?:\d{1,4}:)?\d{1,2}:\d{1,2}(?:[.,]\d{1,6})?"
_TIMING = re.compile(rf"\s*({_TIME})\s*-->\s*({_TIME})(?!\S)")
_NUMBER = re.compile(r"\s*\d{1,9}\s*")
_TAG = re.compile(
    r"</?(?:i|b|u|s|font|c|v|ruby|rt|rp|em|strong|br|span|p)(?=[\s/>.])[^<>\n]*>|\{\\[^{}\n]*\}", re.IGNORECASE
)


class SrtFormat:
    """SubRip: a number, a timing line, lines of text, an empty line."""

    name = "srt"
    extensions = (".srt",)
    can_be_bilingual = True

    def __init__(self, limits: CueLimits | None = None) -> None:
        self._limits = limits or CueLimits()

    def sniffs(self, head: bytes) -> bool:
        """Tell whether there is a timing line of SubRip near the beginning."""
        text = head.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
        return re.match(rf"\d+\s*\r?\n{_TIMING.pattern}", text) is not None

    def read(self, data: bytes, languages: Languages) -> CueDocument:
        """Read a file of any quality that has at least one timing line, or nothing in it.

        Raises:
            DocumentError: undecodable, or no timing line.
        """
        decoded = decode(data)
        regions = _regions(decoded.text)
        if not regions and decoded.text.strip():
            raise DocumentError("there is no timing line (`00:00:01,000 --> 00:00:02,000`) in it", hint="is it SubRip?")
        syntax = CueSyntax(_TAG)
        return CueDocument(decoded, read_cues(decoded.text, regions, syntax), syntax, self._limits)


@dataclass(frozen=True, slots=True)
class _Timing:
    line: int
    duration_s: float


def _regions(text: str) -> list[CueRegion]:
    lines = lines_of(text)
    timings = [timing for number, line in enumerate(lines) if (timing := _timing(number, line.of(text)))]
    if not timings:
        return []
    starts = [_first_line(text, lines, timing.line) for timing in timings]
    regions = list(_stray_regions(text, lines, range(starts[0])))
    for timing, end in zip(timings, [*starts[1:], len(lines)], strict=True):
        regions += _cue_regions(text, lines, timing, end=end)
    return regions


def _timing(number: int, line: str) -> _Timing | None:
    match = _TIMING.match(line) if "-->" in line else None
    return _Timing(number, _seconds(match[2]) - _seconds(match[1])) if match else None


def _seconds(time: str) -> float:
    total = 0.0
    for part in time.replace(",", ".").split(":"):
        total = total * 60 + float(part)
    return total


def _first_line(text: str, lines: Sequence[Span], timing_line: int) -> int:
    """Return the line of the cue's number, or of its timing where it has none."""
    has_number = timing_line > 0 and _NUMBER.fullmatch(lines[timing_line - 1].of(text)) is not None
    return timing_line - 1 if has_number else timing_line


def _cue_regions(text: str, lines: Sequence[Span], timing: _Timing, *, end: int) -> Iterator[CueRegion]:
    """Yield the text of one cue, blank lines in it included, then that of blocks whose timing is missing."""
    blocks = _blocks(text, lines, range(timing.line + 1, end))
    n_own = next(
        (position for position, block in enumerate(blocks) if position and _is_untimed(text, lines, block)), len(blocks)
    )
    if blocks and _is_untimed(text, lines, blocks[0]) and blocks[0].start > timing.line + 1:
        n_own = 0
    hugs_next = (
        end < len(lines) and bool(blocks) and blocks[-1].stop == end and _TIMING.match(lines[end].of(text)) is not None
    )
    own = blocks[:n_own]
    if own:
        yield CueRegion(_span(lines, own[0].start, own[-1].stop), timing.duration_s, hugs_next and n_own == len(blocks))
    else:
        yield CueRegion(Span(lines[timing.line].end, lines[timing.line].end))
    for block in blocks[n_own:]:
        yield _untimed_region(text, lines, block)


def _stray_regions(text: str, lines: Sequence[Span], numbers: range) -> Iterator[CueRegion]:
    """Yield what stands before the first timing as if it were a cue that lost its own."""
    for block in _blocks(text, lines, numbers):
        yield _untimed_region(text, lines, block)


def _blocks(text: str, lines: Sequence[Span], numbers: range) -> list[range]:
    """Return runs of lines that are not blank."""
    blocks: list[range] = []
    for number in numbers:
        if lines[number].of(text).strip():
            begin = blocks.pop().start if blocks and blocks[-1].stop == number else number
            blocks.append(range(begin, number + 1))
    return blocks


def _is_untimed(text: str, lines: Sequence[Span], block: range) -> bool:
    return len(block) > 1 and _NUMBER.fullmatch(lines[block.start].of(text)) is not None


def _untimed_region(text: str, lines: Sequence[Span], block: range) -> CueRegion:
    start = block.start + 1 if _is_untimed(text, lines, block) else block.start
    return CueRegion(_span(lines, start, block.stop))


def _span(lines: Sequence[Span], start: int, stop: int) -> Span:
    return Span(lines[start].start, lines[stop - 1].end)
