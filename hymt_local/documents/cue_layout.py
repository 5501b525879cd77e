"""The lines of a subtitle: how wide a text is, where it may break, and what a reader can follow."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from hymt_local.segment import Finding, Severity


@dataclass(frozen=True, slots=True)
class CueLimits:
    """What a cue may hold. Cells: a Latin letter is one, a Chinese character two.

    The defaults are the usual house rules of subtitling for adults: two lines of 42 letters (21 characters of Chinese)
    and 20 letters a second, plus what rounding of the timings may hide.
    """

    max_lines: int = 2
    max_cells: int = 42
    max_cells_per_second: float = 21.0


MARKUP = re.compile(r"</?[A-Za-z0-9][^<>\n]*>|\{\\[^{}\n]*\}")
"""What takes no room on the screen: tags, timestamps and `{\\an8}`."""
_SPEAKER = re.compile(r"(?:</?[A-Za-z0-9][^<>\n]*>|\{\\[^{}\n]*\}|\s)*[-‐–—](?![-‐–—])|<v[ .\t]")
_JOINED_SPEAKERS = re.compile(r"(?<=\S)\s+(?=[-‐–—]\s?\w|<v[ .\t])")
# No line begins or ends with these.
_CLOSERS = frozenset("、。，．：；！？）」』】〉》〕］｝”’…ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ!?,.:;)]}%")
_OPENERS = frozenset("（「『【〈《〔［｛“‘([{")
_ATOM = re.compile(r"\s+|</?[A-Za-z0-9][^<>\n]*>|\{\\[^{}\n]*\}|[^\s<{]+|.", re.DOTALL)


@lru_cache(maxsize=4096)
def _character_cells(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def cells(text: str) -> int:
    """Return how wide `text` is without its markup."""
    if "<" in text or "{" in text:
        text = MARKUP.sub("", text)
    return len(text) if text.isascii() else sum(map(_character_cells, text))


def is_speaker_line(line: str) -> bool:
    """Tell whether a line begins with the dash or the tag of a speaker."""
    return _SPEAKER.match(line) is not None


def join_lines(lines: Sequence[str]) -> str:
    """Return the lines of a cue as one text: only the lines of two speakers stay lines."""
    has_speakers = len(lines) > 1 and any(is_speaker_line(line) for line in lines[1:])
    parts: list[str] = []
    for line in lines:
        if parts:
            parts.append("\n" if has_speakers and is_speaker_line(line) else _joiner(parts[-1], line))
        parts.append(line)
    return "".join(parts)


def _joiner(before: str, after: str) -> str:
    return "" if _is_ideographic(before[-1:]) and _is_ideographic(after[:1]) else " "


def _is_ideographic(character: str) -> bool:
    """Tell whether words are written without spaces around this character. Hangul is wide, too, but has spaces."""
    return bool(character) and unicodedata.east_asian_width(character) in {"W", "F"} and not "가" <= character <= "힣"


def lay_out(target: str, source: str, *, n_source_lines: int, limits: CueLimits) -> list[str]:
    """Return the lines of a target: no empty ones, as few as its width allows, all about as long.

    At most `limits.max_lines`, or as many as the source has. Text without a place to break (Thai, Khmer) may be wider
    than the limit.
    """
    lines = [line for each in re.split(r"[\r\n]+", target) if (line := each.strip())]
    max_lines = max(limits.max_lines, n_source_lines)
    source_speakers = [line for line in source.split("\n") if is_speaker_line(line)] if "\n" in source else []
    if source_speakers:
        lines = _with_speakers(lines, source_speakers)
        if len(lines) <= max_lines:
            return lines
    elif len(lines) <= max_lines and all(cells(line) <= limits.max_cells for line in lines):
        return lines
    return _wrapped(" ".join(lines), max_lines=max_lines, max_cells=limits.max_cells)


def _with_speakers(lines: list[str], source_speakers: Sequence[str]) -> list[str]:
    """Give each speaker a line again, and the dash where it was lost."""
    n_speakers = len(source_speakers)
    if len(lines) < n_speakers:
        lines = [part for line in lines for part in _JOINED_SPEAKERS.split(line)]
    if len(lines) == n_speakers and not any(is_speaker_line(line) for line in lines[1:]):
        dash = re.match(r"[-‐–—]\s?", source_speakers[-1])
        return [line if is_speaker_line(line) else (dash.group() if dash else "") + line for line in lines]
    return lines


@dataclass(frozen=True, slots=True)
class _Atom:
    """A part that is never broken, and the space before it."""

    text: str
    width: int
    space: str


def _wrapped(text: str, *, max_lines: int, max_cells: int) -> list[str]:
    atoms = _glued(_atoms(text))
    total = cells(text)
    n_lines = max(1, min(max_lines, -(-total // max_cells)))
    while True:
        lines = _balanced(atoms, n_lines=n_lines)
        if n_lines >= max_lines or all(cells(line) <= max_cells for line in lines):
            return lines
        n_lines += 1


def _balanced(atoms: Sequence[_Atom], *, n_lines: int) -> list[str]:
    """Fill lines of the smallest width that needs no more than `n_lines`."""
    low, high = max(atom.width for atom in atoms), sum(atom.width + len(atom.space) for atom in atoms)
    while low < high:
        middle = (low + high) // 2
        if len(_filled(atoms, width=middle)) <= n_lines:
            high = middle
        else:
            low = middle + 1
    return _filled(atoms, width=low)


def _filled(atoms: Sequence[_Atom], *, width: int) -> list[str]:
    lines: list[str] = []
    line, used = "", 0
    for atom in atoms:
        needed = atom.width + (len(atom.space) if line else 0)
        if line and used + needed > width:
            lines.append(line)
            line, used, needed = "", 0, atom.width
        line += (atom.space if line else "") + atom.text
        used += needed
    return [*lines, line]


def _atoms(text: str) -> Iterator[_Atom]:
    space = ""
    for match in _ATOM.finditer(text):
        part = match.group()
        if part.isspace():
            space = " "
            continue
        for piece in _pieces(part):
            yield _Atom(piece, cells(piece), space)
            space = ""


def _pieces(word: str) -> Iterator[str]:
    """Split a word where no space is needed: beside Chinese and Japanese characters and after a Tibetan tsheg."""
    if word.isascii():
        yield word
        return
    start = 0
    for position in range(1, len(word)):
        before, after = word[position - 1], word[position]
        if unicodedata.combining(after) or _character_cells(after) == 0 or before == "\N{ZERO WIDTH JOINER}":
            continue
        if _is_ideographic(before) or _is_ideographic(after) or before == "\N{TIBETAN MARK INTERSYLLABIC TSHEG}":
            yield word[start:position]
            start = position
    yield word[start:]


def _glued(atoms: Iterator[_Atom]) -> list[_Atom]:
    """Join what must stay on one line: markup with its text, brackets and punctuation with what they belong to."""
    glued: list[_Atom] = []
    for atom in atoms:
        if glued and not atom.space and _is_glued(glued[-1].text, atom.text):
            last = glued[-1]
            glued[-1] = _Atom(last.text + atom.text, last.width + atom.width, last.space)
        else:
            glued.append(atom)
    return glued


def _is_glued(before: str, after: str) -> bool:
    if after[0] in "<{" or before[-1] in ">}":
        return True
    if after[0] in _CLOSERS or before[-1] in _OPENERS:
        return True
    breaks = _is_ideographic(before[-1]) or _is_ideographic(after[0])
    return not (breaks or before[-1] == "\N{TIBETAN MARK INTERSYLLABIC TSHEG}")


def cue_findings(lines: Sequence[str], *, duration_s: float | None, limits: CueLimits) -> tuple[Finding, ...]:
    """Return what a reader of these lines would complain about; warnings only.

    Args:
        lines: As they are shown.
        duration_s: How long; None leaves the reading speed out.
        limits: What is still good.
    """
    findings = []
    width = max(map(cells, lines), default=0)
    if len(lines) > limits.max_lines:
        findings.append(_warning("cue_lines", f"{len(lines)} lines instead of at most {limits.max_lines}"))
    if width > limits.max_cells:
        findings.append(_warning("line_length", f"a line is {width} cells wide instead of at most {limits.max_cells}"))
    total = sum(map(cells, lines))
    if duration_s is not None and total > duration_s * limits.max_cells_per_second:
        speed = f"{total / duration_s:.0f} a second" if duration_s > 0 else "in no time"
        findings.append(
            _warning("reading_speed", f"{total} cells, {speed}, instead of at most {limits.max_cells_per_second:g}")
        )
    return tuple(findings)


def _warning(code: str, message: str) -> Finding:
    return Finding(code, Severity.WARNING, message, remedy="shorten the text")
