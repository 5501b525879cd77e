"""gettext catalogues: what is not translated yet is filled in, everything else stays byte for byte.

Each plural form is a unit of its own, with a number in place of its directive: "5 files" for "%d files".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hymt_local.documents.base import Languages, Merged, MergeOptions, Unit
from hymt_local.documents.cues import line_end_of
from hymt_local.documents.example_number import number_spans, replace_number
from hymt_local.documents.patching import Patch, apply_patches, in_order
from hymt_local.documents.plural_forms import PluralForms, PluralSlot, parse_plural_forms, usual_plural_forms
from hymt_local.documents.po_directives import FormatRules, count_directive, format_rules
from hymt_local.documents.po_syntax import PoComment, PoEntry, PoHeader, PoStyle, header_of, parse_po, style_of
from hymt_local.documents.text_encoding import DecodedText, decode
from hymt_local.errors import DocumentError, LanguageError
from hymt_local.language import match_language
from hymt_local.segment import ProtectedSpan, Span, UnitText

_CHARSET = re.compile(rb'"Content-Type:[^"\r\n]{0,200}?charset=([A-Za-z0-9_.:-]{1,40})', re.IGNORECASE)
_CHARSET_OF_TEXT = re.compile(r'(?P<before>"Content-Type:[^"\r\n]{0,200}?charset=)[A-Za-z0-9_.:-]{1,40}', re.IGNORECASE)
_ASCII_CHARSETS = frozenset({"charset", "ascii", "us-ascii", "ansi_x3.4-1968"})
"""`CHARSET` is what a template says before anyone has chosen."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SNIFFED = re.compile(rb'^msgid[ \t]+"', re.MULTILINE)
_HEADER_BYTES = 65536


class PoFormat:
    """gettext PO and POT."""

    name = "po"
    extensions = (".po", ".pot")
    can_be_bilingual = False

    def sniffs(self, head: bytes) -> bool:
        """Tell whether there is a `msgid` and a `msgstr`."""
        return _SNIFFED.search(head) is not None and b"\nmsgstr" in head

    def declared_encoding(self, data: bytes) -> str | None:
        """Return the charset of the header, unless it is a placeholder or plain ASCII."""
        return _declared_charset(data)

    def declaring_utf8(self, text: str) -> str:
        """Return a catalogue whose header says UTF-8, where it named a charset."""
        return _CHARSET_OF_TEXT.sub(r"\g<before>UTF-8", text, count=1)

    def read(self, data: bytes, languages: Languages) -> PoDocument:
        """Parse; units are the messages that have no translation, or only a fuzzy one.

        Raises:
            DocumentError: undecodable in the charset of its header, or not gettext.
        """
        decoded = decode(data, declared=_declared_charset(data))
        entries = parse_po(decoded.text)
        catalogue = _catalogue(decoded.text, entries, languages)
        slots = {slot.unit.id: slot for entry in entries for slot in _slots(entry, catalogue.forms)}
        style = style_of(decoded.text, entries, line_end_of(decoded.text))
        return PoDocument(decoded, tuple(entries), catalogue, slots, style)


def _declared_charset(data: bytes) -> str | None:
    match = _CHARSET.search(data, 0, _HEADER_BYTES)
    charset = match[1].decode("ascii") if match else ""
    return charset if charset and charset.lower() not in _ASCII_CHARSETS else None


@dataclass(frozen=True, slots=True)
class _Catalogue:
    """What holds for the whole file."""

    header: PoHeader | None
    header_entry: PoEntry | None
    forms: PluralForms
    """Those of the file; of the target language where the file has none yet, or is a template in another language."""


def _catalogue(text: str, entries: Sequence[PoEntry], languages: Languages) -> _Catalogue:
    entry = next((each for each in entries if each.is_header), None)
    header = header_of(text, entry) if entry else None
    own = _own_forms(header)
    is_begun = any(_is_translated(each) for each in entries if not each.is_header)
    is_foreign = not is_begun and header is not None and _is_other_language(header, languages)
    forms = usual_plural_forms(languages.target_lang) if own is None or is_foreign else own
    return _Catalogue(header, entry, forms)


def _own_forms(header: PoHeader | None) -> PluralForms | None:
    field = header.fields.get("plural-forms", ("", None))[0] if header else ""
    try:
        return parse_plural_forms(field) if field else None
    except DocumentError:  # `nplurals=INTEGER; plural=EXPRESSION;` of a template, or nonsense
        return None


def _is_translated(entry: PoEntry) -> bool:
    return "fuzzy" not in entry.flags and any(string.value for string in entry.targets.values())


def _is_other_language(header: PoHeader, languages: Languages) -> bool:
    """Tell whether the header names a language that is not the target."""
    named = header.fields.get("language", ("", None))[0]
    if not named:
        return False
    try:
        return match_language(named) != match_language(languages.target_lang)
    except LanguageError:
        return named.replace("_", "-").lower() != languages.target_lang.lower()


@dataclass(frozen=True, slots=True)
class _Slot:
    """One `msgstr` that is to be filled."""

    unit: Unit
    entry: PoEntry
    number: int
    template: str
    """The source with its directives, without outer whitespace."""
    lead: str
    trail: str
    rules: FormatRules
    example: str = ""
    """The number that stands for `directive` in the unit's text."""
    directive: str = ""
    may_be_left_out: bool = False
    """Whether no other number takes this form, so that its translation may do without the directive."""

    def restored(self, target: str) -> str | None:
        """Return a target with its directive back; None when the number is gone or is there twice."""
        restored: str | None = target
        if self.directive:
            restored = replace_number(target, self.example, self.directive, kept=self.rules.pattern)
            is_gone = restored is None and not number_spans(target, self.example, kept=self.rules.pattern)
            restored = target if is_gone and self.may_be_left_out else restored
        return None if restored is None else self.rules.in_order(self.template, restored)


def _slots(entry: PoEntry, forms: PluralForms) -> Iterator[_Slot]:
    """Yield what is to be filled in one entry."""
    if entry.is_header:
        return
    is_fuzzy = "fuzzy" in entry.flags
    numbers = range(len(forms.slots)) if entry.source_plural else range(1)
    rules = format_rules(entry.flags)
    for number in numbers:
        existing = entry.targets.get(number)
        if is_fuzzy or existing is None or not existing.value:
            slot = _slot(entry, number, rules, plural=forms.slots[number] if entry.source_plural else None)
            if slot.template:
                yield slot


def _slot(entry: PoEntry, number: int, rules: FormatRules, *, plural: PluralSlot | None) -> _Slot:
    value, example, directive = entry.source.value, "", ""
    if plural and entry.source_plural:
        value, example, directive = _plural_source(entry.source.value, entry.source_plural.value, plural, rules)
    template = value.strip()
    shown = template.replace(directive, example, 1) if directive else template
    protected = tuple(ProtectedSpan(span) for span in rules.spans(shown))
    suffix = f"[{number}]" if plural else ""
    unit = Unit(
        id=f"message-{entry.number}{suffix}",
        source=UnitText(shown, protected, rules.groups),
        location=f"line {entry.line}",
        note=_note(entry),
    )
    lead = value[: len(value) - len(value.lstrip())]
    trail = value[len(value.rstrip()) :] if template else ""
    may_be_left_out = plural is not None and plural.next_example is None and rules.may_leave_out(directive, template)
    return _Slot(unit, entry, number, template, lead, trail, rules, example, directive, may_be_left_out)


def _note(entry: PoEntry) -> str:
    notes = [comment.text for comment in entry.comments_of("#.") if comment.text]
    return "\n".join([*notes, *([f"context: {entry.context.value}"] if entry.context else [])])


def _plural_source(singular: str, several: str, plural: PluralSlot, rules: FormatRules) -> tuple[str, str, str]:
    """Return what one form is translated from: the text, the number it is about, and the directive of that number.

    The singular only serves a form of the number 1 alone, unless it prints its number: "one file" would be wrong for
    21 files, which take the same form in Russian.
    """
    example, value = plural.example, several
    if example == 1:
        if plural.next_example is None or rules.directives(singular) == rules.directives(several):
            value = singular
        else:
            example = plural.next_example
    directive = count_directive(rules.directives(value))
    is_clear = value.count(directive) == 1 and not number_spans(value, str(example), kept=rules.pattern)
    return value, str(example), directive if directive and is_clear else ""


@dataclass(frozen=True, slots=True)
class PoDocument:
    """A catalogue that was read."""

    decoded: DecodedText
    entries: tuple[PoEntry, ...]
    catalogue: _Catalogue
    slots: Mapping[str, _Slot]
    """By unit id, in order."""
    style: PoStyle

    @property
    def units(self) -> Sequence[Unit]:
        """Messages without a translation and fuzzy ones; one unit for each plural form."""
        return tuple(slot.unit for slot in self.slots.values())

    def fault(self, unit: Unit, target: str) -> str | None:
        """Return why msgfmt, or the program, would not take this target."""
        slot = self.slots[unit.id]
        if not target.strip():
            return "a translation cannot be empty"
        if set(_CONTROL.findall(target)) - set(_CONTROL.findall(unit.source.text)):
            return "a message cannot have control characters"
        restored = slot.restored(target)
        if restored is None:
            return f"the number {slot.example} must stand in the translation once"
        return slot.rules.fault(slot.template, restored, optional=slot.directive if slot.may_be_left_out else "")

    def merge(self, targets: Mapping[str, str], options: MergeOptions) -> Merged:
        """Fill messages of which every missing form has a target; remove what a filled message no longer needs."""
        rejected: dict[str, str] = {}
        patches: list[Patch] = []
        n_filled_plurals = 0
        is_echo = all(targets.get(unit.id, unit.source.text) == unit.source.text for unit in self.units)
        for slots in self._by_entry() if not is_echo else ():
            values = self._values(slots, targets, rejected)
            if values:
                patches += self._entry_patches(slots[0].entry, values, marks_fuzzy=options.marks_fuzzy)
                n_filled_plurals += slots[0].entry.source_plural is not None
        patches += self._header_patches(options, sets_forms=options.sets_metadata or n_filled_plurals > 0)
        patches = in_order(patches)
        if patches and not apply_patches(self.decoded.text, patches).isascii():
            patches = in_order([*patches, *self._charset_patch()])
        return Merged(self.decoded.encode(apply_patches(self.decoded.text, patches)), rejected)

    def _by_entry(self) -> Iterator[list[_Slot]]:
        slots: list[_Slot] = []
        for slot in self.slots.values():
            if slots and slot.entry is not slots[0].entry:
                yield slots
                slots = []
            slots.append(slot)
        if slots:
            yield slots

    def _values(self, slots: Sequence[_Slot], targets: Mapping[str, str], rejected: dict[str, str]) -> dict[int, str]:
        """Return what to write by plural slot; nothing when the message stays as it is.

        A translation may well be the same as its source: only a document of nothing else is an echo.
        """
        given = {slot.unit.id: slot for slot in slots if slot.unit.id in targets}
        values: dict[int, str] = {}
        for unit_id, slot in given.items():
            fault = self.fault(slot.unit, targets[unit_id]) or self.decoded.lacks(targets[unit_id])
            if fault:
                rejected[unit_id] = fault
            else:
                restored = slot.restored(targets[unit_id].strip()) or ""
                values[slot.number] = f"{slot.lead}{restored}{slot.trail}"
        if len(values) < len(slots):  # none at all if none was given
            reason = "another plural form of this message has no translation"
            rejected |= {slot.unit.id: reason for slot in given.values() if slot.number in values}
            return {}
        return values

    def _entry_patches(self, entry: PoEntry, values: Mapping[int, str], *, marks_fuzzy: bool) -> Iterator[Patch]:
        yield from _fuzzy_patches(entry, self.style.line_end, is_fuzzy=marks_fuzzy)
        for comment in entry.comments_of("#|"):
            yield Patch(comment.span, "")
        n_slots = len(self.catalogue.forms.slots) if entry.source_plural else 1
        added = ""
        for number, value in sorted(values.items()):
            keyword = f"msgstr[{number}]" if entry.source_plural else "msgstr"
            written = self.style.written(value, keyword=keyword)
            if number in entry.targets:
                yield Patch(entry.targets[number].span, written)
            else:
                added += f"{self.style.line_end}{keyword} {written}"
        yield from _surplus_patches(entry, n_slots=n_slots, added=added)

    def _header_patches(self, options: MergeOptions, *, sets_forms: bool) -> Iterator[Patch]:
        header, entry = self.catalogue.header, self.catalogue.header_entry
        if header is None or entry is None:
            return
        added: dict[str, str] = {}
        if options.sets_metadata:
            yield from _fuzzy_patches(entry, self.style.line_end, is_fuzzy=False)
            named = header.fields.get("language", ("", None))[0]
            if not named or _is_other_language(header, options.languages):
                added["Language"] = options.languages.target_lang.replace("-", "_")
        has_plurals = any(each.source_plural for each in self.entries) or "plural-forms" in header.fields
        if sets_forms and has_plurals and header.fields.get("plural-forms", ("",))[0] != self.catalogue.forms.field:
            added["Plural-Forms"] = self.catalogue.forms.field
        yield from _field_patches(header, added, self.style.line_end)

    def _charset_patch(self) -> Iterator[Patch]:
        """A template's charset becomes UTF-8 once there is something in it that is not ASCII."""
        header = self.catalogue.header
        value, span = header.fields.get("content-type", ("", None)) if header else ("", None)
        match = re.search(r"charset=([\w.:-]+)", value, re.IGNORECASE)
        if span is None or match is None or match[1].lower() not in _ASCII_CHARSETS:
            return
        written = span.of(self.decoded.text)
        position = written.rfind(match[1])
        if position >= 0:
            start = span.start + position
            yield Patch(Span(start, start + len(match[1])), "UTF-8")


def _fuzzy_patches(entry: PoEntry, line_end: str, *, is_fuzzy: bool) -> Iterator[Patch]:
    lines = entry.comments_of("#,")
    if is_fuzzy and "fuzzy" not in entry.flags:
        if lines:
            yield Patch(Span(lines[0].mark, lines[0].mark + 2), "#, fuzzy,")
        else:
            place = min([entry.start, *(comment.span.start for comment in entry.comments_of("#|"))])
            yield Patch(Span(place, place), f"#, fuzzy{line_end}")
    elif not is_fuzzy:
        for line in lines:
            if "fuzzy" in line.flags:
                yield _without_fuzzy(line, line_end)


def _without_fuzzy(line: PoComment, line_end: str) -> Patch:
    flags = [flag for flag in line.flags if flag != "fuzzy"]
    return Patch(line.span, f"#, {', '.join(flags)}{line_end}" if flags else "")


def _surplus_patches(entry: PoEntry, *, n_slots: int, added: str) -> Iterator[Patch]:
    """Add the forms that the entry has no line for, and remove those that the target language has no use for."""
    surplus = sorted(
        (string for number, string in entry.targets.items() if number >= n_slots), key=lambda each: each.span.start
    )
    kept_end = max((string.span.end for number, string in entry.targets.items() if number < n_slots), default=entry.end)
    if surplus and surplus[0].span.start > kept_end:
        yield Patch(Span(kept_end, surplus[-1].span.end), added)
    elif added:
        yield Patch(Span(entry.end, entry.end), added)


def _field_patches(header: PoHeader, fields: Mapping[str, str], line_end: str) -> Iterator[Patch]:
    """Set fields where they are, add the others at the end."""
    added = "" if header.ends_line else f'{line_end}"\\n"'
    n_added = 0
    for name, value in fields.items():
        if name.lower() in header.fields:
            before, span = header.fields[name.lower()]
            yield Patch(span, value if before else f" {value}")
        else:
            added += f'{line_end}"{name}: {value}\\n"'
            n_added += 1
    if n_added:
        yield Patch(Span(header.end, header.end), added)
