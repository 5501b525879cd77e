"""What SRT and WebVTT share: a cue's text as one unit, and its target back in the cue.

A unit belongs to the place of its cue in the file, never to the number that is printed there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hymt_local.documents.base import Merged, MergeOptions, Unit
from hymt_local.documents.cue_layout import CueLimits, cue_findings, join_lines, lay_out
from hymt_local.documents.inline_markup import Markup, protected_spans
from hymt_local.documents.patching import Patch, apply_patches
from hymt_local.documents.text_encoding import DecodedText
from hymt_local.segment import Finding, Span, UnitText

ARROW = "-->"
_TIMED = re.compile(r"\d\s*-->\s*\d")
_LINE_END = re.compile(r"\r\n|\r|\n")
_MUSIC = "♪♫♬♩"
_BRACKETS = {"[": "]", "(": ")", "（": "）", "［": "］", "【": "】"}
_TAG_NAME = re.compile(r"<(/?)([A-Za-z0-9]+)")
_DECORATION = re.compile(rf"[{_MUSIC}\s]+")
_SINGLE_DASH = re.compile(r"[-‐–—](?![-‐–—])\s*")
_N_CONTEXT = 2
_MAX_DECORATIONS = 30
"""At the edges of one cue; what comes after them is part of the text."""


@dataclass(frozen=True, slots=True)
class CueSyntax:
    """What a subtitle format writes in a cue beside words."""

    markup: re.Pattern[str]
    """Tags, timestamps and overrides."""
    decoded: Callable[[str], str] = str
    """From words as they stand in the file."""
    encoded: Callable[[str, str], str] = lambda words, raw: words
    """From words to what stands in the file; the second argument is the cue's own raw text, for its style."""


@dataclass(frozen=True, slots=True)
class Cue:
    """One cue with something to translate."""

    unit: Unit
    region: Span
    """All its text, without outer whitespace."""
    inner: Span
    """The part that is replaced: without the decorations (`♪`, `{\\an8}`, a tag around it all) at its edges."""
    n_lines: int
    duration_s: float | None
    hugs_next: bool
    """Whether the next line is the timing of another cue, which would take a number above it for its own."""


@dataclass(frozen=True, slots=True)
class CueRegion:
    """Where the text of a cue stands, before it is read."""

    span: Span
    duration_s: float | None = None
    hugs_next: bool = False


def lines_of(text: str) -> list[Span]:
    """Return the lines of a text without their ends; a text that ends in a line end has an empty last line."""
    spans, start = [], 0
    for end in _LINE_END.finditer(text):
        spans.append(Span(start, end.start()))
        start = end.end()
    return [*spans, Span(start, len(text))]


def line_end_of(text: str) -> str:
    """Return the first line end of a text."""
    match = _LINE_END.search(text)
    return match.group() if match else "\n"


@dataclass(frozen=True, slots=True)
class CueDocument:
    """A subtitle file that was read."""

    decoded: DecodedText
    cues: Mapping[str, Cue]
    """By the id of their unit, in order."""
    syntax: CueSyntax
    limits: CueLimits = field(default_factory=CueLimits)
    language: Span | None = None
    """Where the file names its language."""

    @property
    def units(self) -> Sequence[Unit]:
        """One per cue."""
        return tuple(cue.unit for cue in self.cues.values())

    def fault(self, unit: Unit, target: str) -> str | None:
        """Return why a target would break the file."""
        if not target.strip():
            return "a cue cannot be empty"
        if target.count(ARROW) > unit.source.text.count(ARROW) or _TIMED.search(target):
            return f"the text of a cue cannot have {ARROW!r}"
        if "\0" in target:
            return "the text of a cue cannot have a NUL"
        if self.cues[unit.id].hugs_next and target.strip().isdigit():
            return "a bare number would be taken for the number of the next cue"
        return None

    def findings(self, unit: Unit, target: str) -> tuple[Finding, ...]:
        """Return warnings on length and reading speed of a target as it would be written, but for the source's own."""
        cue = self.cues[unit.id]
        known = {finding.code for finding in self._too_much(cue, unit.source.text)}
        return tuple(finding for finding in self._too_much(cue, target) if finding.code not in known)

    def _too_much(self, cue: Cue, text: str) -> tuple[Finding, ...]:
        return cue_findings(self._lines(cue, text), duration_s=cue.duration_s, limits=self.limits)

    def merge(self, targets: Mapping[str, str], options: MergeOptions) -> Merged:
        """Replace the text of cues; side by side, the target stands under the source."""
        patches = list(self._language_patch(options))
        rejected: dict[str, str] = {}
        for cue in self.cues.values():
            target = targets.get(cue.unit.id)
            if target is None or target == cue.unit.source.text:
                continue
            patch = self._patch(cue, target, is_bilingual=options.is_bilingual)
            fault = self.fault(cue.unit, target) or self.decoded.lacks(patch.text)
            if fault:
                rejected[cue.unit.id] = fault
            else:
                patches.append(patch)
        return Merged(self.decoded.encode(apply_patches(self.decoded.text, patches)), rejected)

    def _language_patch(self, options: MergeOptions) -> Iterator[Patch]:
        if self.language and options.sets_metadata:
            yield Patch(self.language, options.languages.target_lang)

    def _lines(self, cue: Cue, target: str) -> list[str]:
        lines = lay_out(target, cue.unit.source.text, n_source_lines=cue.n_lines, limits=self.limits)
        if cue.hugs_next and len(lines) > 1 and lines[-1].isdigit():
            lines[-2:] = [" ".join(lines[-2:])]
        return lines

    def _patch(self, cue: Cue, target: str, *, is_bilingual: bool) -> Patch:
        text, line_end = self.decoded.text, line_end_of(self.decoded.text)
        raw = cue.inner.of(text)
        lines = [self._encoded_line(cue, line, raw) for line in self._lines(cue, target)]
        written = line_end.join(lines)
        if not is_bilingual:
            return Patch(cue.inner, written)
        lead = re.sub(r"\{\\[^{}\n]*\}|[\r\n]+", "", text[cue.region.start : cue.inner.start])
        trail = re.sub(r"[\r\n]+", "", text[cue.inner.end : cue.region.end])
        return Patch(Span(cue.region.end, cue.region.end), f"{line_end}{lead}{written}{trail}")

    def _encoded_line(self, cue: Cue, line: str, raw: str) -> str:
        """Encode the words and keep the source's own tags as they are."""
        source = cue.unit.source
        own = {
            span.span.of(source.text)
            for span in source.protected
            if self.syntax.markup.fullmatch(span.span.of(source.text))
        }
        if not own:
            return self.syntax.encoded(line, raw)
        pattern = "|".join(re.escape(tag) for tag in sorted(own, key=len, reverse=True))
        parts = re.split(f"({pattern})", line)
        return "".join(part if position % 2 else self.syntax.encoded(part, raw) for position, part in enumerate(parts))


def read_cues(text: str, regions: Sequence[CueRegion], syntax: CueSyntax) -> dict[str, Cue]:
    """Return the cues of these regions that have words, by unit id; numbered by their place among all."""
    cues: list[Cue] = []
    for number, region in enumerate(regions, start=1):
        span = _trimmed(text, region.span)
        inner = _inner(text, span, syntax)
        if inner.start < inner.end:
            cues.append(_cue(text, number, region, span, inner=inner, syntax=syntax, before=cues[-_N_CONTEXT:]))
    return {cue.unit.id: cue for cue in cues}


def _cue(
    text: str, number: int, region: CueRegion, span: Span, *, inner: Span, syntax: CueSyntax, before: Sequence[Cue]
) -> Cue:
    lines = [line for each in lines_of(inner.of(text)) if (line := each.of(inner.of(text)).strip())]
    source, markup = _read_words(join_lines(lines), syntax)
    context = tuple(cue.unit.source.text for cue in before)
    unit_text = UnitText(source, protected_spans(source, markup), context=context)
    unit = Unit(f"cue-{number}", unit_text, f"cue {number}")
    return Cue(unit, span, inner, len(lines), region.duration_s, region.hugs_next)


def _trimmed(text: str, span: Span) -> Span:
    found = span.of(text)
    start = span.start + len(found) - len(found.lstrip())
    return Span(start, max(start, span.start + len(found.rstrip())))


def _inner(text: str, span: Span, syntax: CueSyntax) -> Span:
    """Take the decorations off both edges, from the outside in."""
    for _ in range(_MAX_DECORATIONS):
        inner = _trimmed(text, _without_edges(text, span, syntax))
        if inner == span:
            break
        span = inner
    return span


def _without_edges(text: str, span: Span, syntax: CueSyntax) -> Span:
    found = span.of(text)
    lead = _DECORATION.match(found) or _lone_markup(found, syntax)
    if lead is None and "\n" not in found and "\r" not in found:
        lead = _SINGLE_DASH.match(found)
    if lead is not None:
        return Span(span.start + lead.end(), span.end)
    n_trail = len(found) - len(found.rstrip(_MUSIC))
    if n_trail:
        return Span(span.start, span.end - n_trail)
    return _without_pair(span, found, syntax)


def _lone_markup(found: str, syntax: CueSyntax) -> re.Match[str] | None:
    """Match markup at the beginning that nothing closes."""
    match = syntax.markup.match(found)
    if match is None or not (name := _TAG_NAME.match(match.group())):
        return match
    is_closed = not name[1] and f"</{name[2]}" in found
    return None if is_closed else match


def _without_pair(span: Span, found: str, syntax: CueSyntax) -> Span:
    """Take off a tag or a bracket that stands around everything."""
    closer = _BRACKETS.get(found[:1])
    if closer and found.endswith(closer) and found.count(found[0]) == found.count(closer) == 1:
        return Span(span.start + 1, span.end - 1)
    first = syntax.markup.match(found)
    name = _TAG_NAME.match(first.group()) if first else None
    if first is None or name is None:
        return span
    last = f"</{name[2]}>"
    if found.endswith(last) and found.count(f"</{name[2]}") == 1 and len(re.findall(rf"<{name[2]}\b", found)) == 1:
        return Span(span.start + first.end(), span.end - len(last))
    return span


def _read_words(raw: str, syntax: CueSyntax) -> tuple[str, list[Markup]]:
    """Return the decoded text and the markup in it."""
    parts: list[str] = []
    markup: list[Markup] = []
    position = length = 0
    for match in [*syntax.markup.finditer(raw), None]:
        words = syntax.decoded(raw[position : match.start() if match else len(raw)])
        markup += _word_markup(words, length)
        parts.append(words)
        length += len(words)
        if match:
            tag = match.group()
            markup.append(_tag_markup(tag, length))
            parts.append(tag)
            length, position = length + len(tag), match.end()
    return "".join(parts), markup


def _word_markup(words: str, offset: int) -> Iterator[Markup]:
    """Find brackets of sounds and notes of music among words."""
    for position, character in enumerate(words):
        span = Span(offset + position, offset + position + 1)
        if character in "[]":
            yield Markup(span, opens="[" if character == "[" else "", closes="[" if character == "]" else "")
        elif character in _MUSIC:
            yield Markup(span)


def _tag_markup(tag: str, start: int) -> Markup:
    span = Span(start, start + len(tag))
    name = _TAG_NAME.match(tag)
    if name is None or tag[1].isdigit():
        return Markup(span)
    return Markup(span, closes=name[2].lower()) if name[1] else Markup(span, opens=name[2].lower())
