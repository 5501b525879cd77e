"""An HTML document that was read: its units, and the document with their targets in place."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hymt_local.documents.base import Merged, MergeOptions, Unit
from hymt_local.documents.html_page import HtmlPage
from hymt_local.documents.html_reader import AttributePart, HtmlPart
from hymt_local.documents.html_scan import HtmlToken
from hymt_local.documents.patching import Patch, apply_patches, in_order
from hymt_local.documents.text_encoding import DecodedText, decode
from hymt_local.language import LANGUAGES
from hymt_local.segment import Span, TokenGroup, UnitText

CONTEXT_CHARACTERS = 300
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_COPIED = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "div", "address"})
_CHARSET = re.compile(
    rb"<meta[^>]{1,200}?charset\s{0,9}=\s{0,9}[\"']?([\w.:-]{1,40})|<\?xml[^>]{1,100}?encoding=[\"']([\w.:-]{1,40})",
    re.IGNORECASE,
)
_META_CHARSET = re.compile(r"(?<=charset=)[\w.:-]{1,40}|(?<=charset=[\"'])[\w.:-]{1,40}", re.IGNORECASE)
_XML_ENCODING = re.compile(r"(?<=encoding=[\"'])[\w.:-]{1,40}", re.IGNORECASE)
_CHARSET_BYTES = 1024  # as far as browsers look for the beginning of a declaration; it may end behind
_DECLARATION_BYTES = 1024
_LATIN = frozenset({"iso-8859-1", "iso8859-1", "latin1", "latin-1", "us-ascii", "ascii"})
_IDENTITY = re.compile(
    r"\s(?:id|name|lang|xml:lang|dir)\s{0,9}=\s{0,9}(?:\"[^\"]*\"|'[^']*'|[^\s>\"']+)", re.IGNORECASE
)
_TAG = re.compile(r"<[A-Za-z][^<>]{0,2000}>")


@dataclass(frozen=True, slots=True)
class HtmlDocument:
    """Immutable."""

    decoded: DecodedText
    page: HtmlPage
    units: Sequence[Unit]
    parts: Mapping[str, HtmlPart]

    def fault(self, unit: Unit, target: str) -> str | None:
        """Say why a target cannot be written."""
        return self.page.fault(self.parts[unit.id], target)

    def merge(self, targets: Mapping[str, str], options: MergeOptions) -> Merged:
        """Return the document with these targets; characters that its encoding lacks become references."""
        rejected: dict[str, str] = {}
        accepted: list[tuple[HtmlPart, str]] = []
        for unit in self.units:
            target = targets.get(unit.id)
            if target is None or target == unit.source.text:
                continue
            if fault := self.fault(unit, target):
                rejected[unit.id] = fault
            else:
                accepted.append((self.parts[unit.id], target))
        patches = list(self._patches(accepted, options))
        if options.sets_metadata and not options.is_bilingual:  # its copies say their language themselves
            patches += self._metadata(options.languages.target_lang)
        encodable = [Patch(patch.span, self._encodable(patch.text)) for patch in in_order(patches)]
        return Merged(self.decoded.encode(apply_patches(self.page.text, encodable)), rejected)

    def _patches(self, accepted: Sequence[tuple[HtmlPart, str]], options: MergeOptions) -> Sequence[Patch]:
        if options.is_bilingual:
            return [beside(self.page, part, target, options.languages.target_lang) for part, target in accepted]
        return [patch for _, patch in self.page.patches(accepted)]

    def _metadata(self, target_lang: str) -> list[Patch]:
        patches: list[Patch] = []
        if self.page.html_tag is not None:
            patches += language_patches(self.page.html_tag, self.page.text, target_lang)
        if self.page.language_meta is not None and self.page.language_meta.quote:
            patches.append(Patch(self.page.language_meta.value, target_lang))
        return patches

    def _encodable(self, text: str) -> str:
        if self.decoded.lacks(text) is None:
            return text
        return text.encode(self.decoded.encoding, "xmlcharrefreplace").decode(self.decoded.encoding)


def read_html(data: bytes) -> HtmlDocument:
    """Parse a document.

    Raises:
        DocumentError: undecodable.
    """
    decoded = decode(data, declared=declared_charset(data))
    page = HtmlPage(decoded.text)
    units: list[Unit] = []
    parts: dict[str, HtmlPart] = {}
    context = ReadingContext()
    position = line = 0
    for part in page.parts:
        line += decoded.text.count("\n", position, part.span.start)
        position = part.span.start
        unit = unit_of(part, f"u{len(units) + 1}", line + 1, context)
        units.append(unit)
        parts[unit.id] = part
    return HtmlDocument(decoded, page, units, parts)


def declaring_utf8(text: str) -> str:
    """Return a page whose head names UTF-8 where it named an encoding: in its first XML and meta declarations."""
    for pattern in (_XML_ENCODING, _META_CHARSET):
        match = pattern.search(text, 0, _CHARSET_BYTES + _DECLARATION_BYTES)
        if match and match.start() < _CHARSET_BYTES + _DECLARATION_BYTES // 2:
            text = f"{text[: match.start()]}utf-8{text[match.end() :]}"
    return text


def declared_charset(data: bytes) -> str | None:
    """Return the encoding that the head of a page names, as browsers understand the name."""
    match = _CHARSET.search(data, 0, _CHARSET_BYTES + _DECLARATION_BYTES)
    if match is None or match.start() >= _CHARSET_BYTES:
        return None
    name = (match[1] or match[2]).decode("ascii", "replace").lower()
    if name in _LATIN:  # browsers read all of these as Windows-1252; where that has no letter, as they say
        try:
            data.decode("windows-1252")
        except UnicodeDecodeError:
            return "iso-8859-1"
        return "windows-1252"
    return name


class ReadingContext:
    """The heading and the text before a unit, for models that can use them."""

    def __init__(self) -> None:
        self.heading = self.before = ""

    def of(self, text: str, *, is_heading: bool) -> tuple[str, ...]:
        """Return the context of a text, and remember the text for the next."""
        if is_heading:
            self.heading, self.before = text[:CONTEXT_CHARACTERS], ""
            return ()
        context = tuple(known for known in (self.heading, self.before) if known)
        self.before = text[-CONTEXT_CHARACTERS:]
        return context


def unit_of(part: HtmlPart, unit_id: str, line: int, context: ReadingContext) -> Unit:
    """Return the unit of a part."""
    around: tuple[str, ...] = ()
    note = ""
    if isinstance(part, AttributePart):
        note = part.name
    else:
        around = context.of(part.text, is_heading=part.element in _HEADINGS)
    text = UnitText(part.text, part.protected, frozenset({TokenGroup.TEXT}), around)
    return Unit(unit_id, text, f"line {line}", note=note)


def beside(page: HtmlPage, part: HtmlPart, target: str, target_lang: str) -> Patch:
    """Return what puts a target after its source: a copy of its block, or behind a line break in it."""
    body = page.written(part, target)
    source = part.span.of(page.text)
    if isinstance(part, AttributePart):
        return Patch(part.span, f"{source} / {body}" if part.quote else f'"{source} / {body[1:]}')
    if part.is_plain:
        return Patch(part.span, f"{source} / {body}")
    marked = f'lang="{html.escape(target_lang)}"' + (' dir="rtl"' if is_rtl(target_lang) else "")
    body = _TAG.sub(lambda tag: _IDENTITY.sub("", tag.group()), body)
    if part.wrapper is None or part.element not in _COPIED:
        return Patch(Span(part.span.end, part.span.end), f"<br><span {marked}>{body}</span>")
    start, end = part.wrapper
    tag = _IDENTITY.sub("", start.of(page.text))
    name_end = 1 + len(part.element)
    copy = f"{tag[:name_end]} {marked}{tag[name_end:]}"
    lead, trail = page.text[start.end : part.span.start], page.text[part.span.end : end.start]
    return Patch(Span(end.end, end.end), f"{copy}{lead}{body}{trail}{end.of(page.text)}")


def language_patches(tag: HtmlToken, text: str, target_lang: str) -> list[Patch]:
    """Return what makes the `<html>` tag say the language and direction of the target."""
    wanted = {"lang": target_lang}
    names = {attribute.name for attribute in tag.attributes}
    if "xml:lang" in names:
        wanted["xml:lang"] = target_lang
    if is_rtl(target_lang):
        wanted["dir"] = "rtl"
    elif "dir" in names:
        wanted["dir"] = "ltr"
    patches: list[Patch] = []
    for attribute in tag.attributes:
        value = wanted.pop(attribute.name, None)
        if value is not None and attribute.value.of(text) != value:
            patches.append(Patch(attribute.place, f'{attribute.place.of(text)[: len(attribute.name)]}="{value}"'))
    name_end = tag.span.start + 1 + len(tag.name)
    missing = "".join(f' {name}="{value}"' for name, value in wanted.items())
    return ([Patch(Span(name_end, name_end), missing)] if missing else []) + patches


def is_rtl(target_lang: str) -> bool:
    """Tell whether a language is written from right to left."""
    subtags = target_lang.lower().replace("_", "-").split("-")
    if len(subtags) > 1 and len(subtags[1]) == 4:
        return subtags[1] in ("arab", "hebr")
    return any(language.rtl for language in LANGUAGES if language.tag == subtags[0])
