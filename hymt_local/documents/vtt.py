"""WebVTT captions. Header, styles, regions, notes, identifiers, timings and settings stay byte for byte."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from hymt_local.documents.base import Languages
from hymt_local.documents.cue_layout import CueLimits
from hymt_local.documents.cues import ARROW, CueDocument, CueRegion, CueSyntax, lines_of, read_cues
from hymt_local.documents.text_encoding import decode
from hymt_local.errors import DocumentError
from hymt_local.segment import Span

_TIME = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2}[.,]\d{1,3})"
_TIMING = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}(?!\S)")
_HEADER = re.compile(r"WEBVTT(?:[ \t].*)?")
_LANGUAGE = re.compile(r"Language:[ \t]*(\S+)[ \t]*", re.IGNORECASE)
_METADATA = re.compile(r"Kind:[ \t]*metadata[ \t]*", re.IGNORECASE)
"""The cues of such a file are data for scripts."""
_TAG = re.compile(r"</?[A-Za-z][^<>\n]*>|</>|<\d[\d:.]*>")
_NAMED = ("amp", "lt", "gt", "nbsp", "lrm", "rlm", "quot", "apos")
_ENTITY = re.compile(rf"&(?:{'|'.join(_NAMED)}|#\d{{2,7}}|#[xX][0-9A-Fa-f]{{2,6}});")
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_INVISIBLE = {"\u00a0": "&nbsp;", "\u200e": "&lrm;", "\u200f": "&rlm;"}
_SKIPPED = re.compile(r"(?:NOTE(?:[ \t].*)?|STYLE[ \t]*|REGION[ \t]*)")


class VttFormat:
    """WebVTT."""

    name = "vtt"
    extensions = (".vtt",)
    can_be_bilingual = True

    def __init__(self, limits: CueLimits | None = None) -> None:
        self._limits = limits or CueLimits()

    def sniffs(self, head: bytes) -> bool:
        """Tell whether it begins with the signature."""
        return re.match(rb"(?:\xef\xbb\xbf)?WEBVTT(?:[ \t\r\n]|$)", head) is not None

    def read(self, data: bytes, languages: Languages) -> CueDocument:
        """Read a file that has the signature.

        Raises:
            DocumentError: undecodable, or no signature.
        """
        decoded = decode(data)
        text = decoded.text
        lines = lines_of(text)
        if not _HEADER.fullmatch(lines[0].of(text)):
            raise DocumentError("a WebVTT file begins with `WEBVTT`", hint="is it SubRip? Name it .srt")
        end_of_header = _end_of_block(text, lines, 1)
        language = _language(text, lines[1:end_of_header])
        is_data = any(_METADATA.fullmatch(line.of(text)) for line in lines[1:end_of_header])
        regions = [] if is_data else _regions(text, lines, end_of_header)
        cues = read_cues(text, regions, _syntax())
        return CueDocument(decoded, cues, _syntax(), self._limits, language)


def _syntax() -> CueSyntax:
    return CueSyntax(_TAG, _decoded, _encoded)


def _decoded(words: str) -> str:
    return _ENTITY.sub(_character, words) if "&" in words else words


def _character(entity: re.Match[str]) -> str:
    """Return what an entity stands for; a control character stays written as an entity."""
    character = html.unescape(entity.group())
    return character if len(character) == 1 and (character.isprintable() or character in _INVISIBLE) else entity.group()


def _encoded(words: str, raw: str) -> str:
    for character, entity in _ESCAPES.items():
        words = words.replace(character, entity)
    for character, entity in _INVISIBLE.items():
        if entity in raw:
            words = words.replace(character, entity)
    return words


def _language(text: str, header: Sequence[Span]) -> Span | None:
    for line in header:
        if match := _LANGUAGE.fullmatch(line.of(text)):
            return Span(line.start + match.start(1), line.start + match.end(1))
    return None


def _regions(text: str, lines: Sequence[Span], number: int) -> list[CueRegion]:
    """Return the text of each cue that has a valid timing; the rules are those of the standard's parser."""
    regions: list[CueRegion] = []
    while number < len(lines):
        line = lines[number].of(text)
        if ARROW in line:
            end = _end_of_block(text, lines, number + 1)
            if match := _TIMING.match(line):
                start = lines[number + 1].start if end > number + 1 else lines[number].end
                regions.append(CueRegion(Span(start, max(start, lines[end - 1].end)), _duration_s(match)))
            number = end
        elif _SKIPPED.fullmatch(line):
            number = _end_of_block(text, lines, number + 1)
        elif not line or _has_timing_below(text, lines, number):
            number += 1
        else:
            number = _end_of_block(text, lines, number + 1)
    return regions


def _has_timing_below(text: str, lines: Sequence[Span], number: int) -> bool:
    return number + 1 < len(lines) and ARROW in lines[number + 1].of(text)


def _end_of_block(text: str, lines: Sequence[Span], number: int) -> int:
    """Return the number of the next line that is empty or begins another cue."""
    while number < len(lines):
        line = lines[number].of(text)
        if not line or ARROW in line:
            break
        number += 1
    return number


def _duration_s(timing: re.Match[str]) -> float:
    return _seconds(timing[4], timing[5], timing[6]) - _seconds(timing[1], timing[2], timing[3])


def _seconds(hours: str | None, minutes: str, seconds: str) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds.replace(",", "."))
