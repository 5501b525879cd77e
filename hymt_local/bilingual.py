"""Translations that exist already, from whomever: read from the files that hold both languages, and checked.

Three kinds of file: tables of two columns, gettext catalogues, and two plain texts whose lines belong together.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hymt_local.checks import Identify, Pair, check_pair
from hymt_local.documents.base import Languages
from hymt_local.errors import DocumentError, LanguageError
from hymt_local.language import match_language
from hymt_local.segment import Finding, Severity, TokenGroup

if TYPE_CHECKING:
    from hymt_local.documents.po_syntax import PoEntry

_TABLES = {".tsv": "\t", ".tab": "\t", ".csv": ","}
_HEADERS = frozenset({"source", "target", "src", "tgt", "original", "translation"})
_PLAIN = frozenset({TokenGroup.TEXT})
_HINT = "a table of two columns (.tsv, .csv), a gettext catalogue (.po), or two texts of as many lines"


@dataclass(frozen=True, slots=True)
class BilingualUnit:
    """One source with its existing translation."""

    location: str
    """Where a person finds it: `line 12`."""
    source: str
    target: str
    groups: frozenset[TokenGroup] = _PLAIN
    context: str = ""
    """What tells it from other units with the same source."""
    other_source: str = ""
    """The plural of the source, if the target may follow either."""
    faults: tuple[Finding, ...] = ()
    """What its format alone can tell."""


@dataclass(frozen=True, slots=True)
class BilingualText:
    """All units of a file."""

    units: tuple[BilingualUnit, ...]
    target_lang: str | None = None
    """As the file names it; None when it does not."""
    n_untranslated: int = 0


@dataclass(slots=True)
class CheckedUnit:
    """A unit and what is to be said of it."""

    unit: BilingualUnit
    findings: list[Finding] = field(default_factory=list)


def read_bilingual(data: bytes, name: str, *, translation: bytes | None = None) -> BilingualText:
    """Read a file.

    Args:
        data: The file, or the source text when `translation` is given.
        name: Its name, whose extension tells the kind.
        translation: The text whose lines translate those of `data`.

    Raises:
        DocumentError: undecodable, not of a known kind, or two texts of different length.
    """
    extension = name[name.rfind(".") :].lower() if "." in name else ""
    if translation is not None:
        return _read_texts(data, translation)
    if extension in _TABLES:
        return _read_table(_text(data), delimiter=_TABLES[extension])
    if extension in {".po", ".pot"}:
        return _read_catalogue(data)
    if b"\t" in data[:4096]:
        return _read_table(_text(data), delimiter="\t")
    raise DocumentError(f"{name}: not a bilingual file", hint=f"what can be checked: {_HINT}")


def check_units(
    text: BilingualText, *, source_lang: str | None, target_lang: str | None, identify: Identify | None
) -> list[CheckedUnit]:
    """Return the units that something is to be said of, in order."""
    checked = [
        CheckedUnit(unit, _findings(unit, source_lang=source_lang, target_lang=target_lang, identify=identify))
        for unit in text.units
    ]
    for index, finding in _inconsistencies(text.units):
        checked[index].findings.append(finding)
    return [each for each in checked if each.findings]


def _findings(
    unit: BilingualUnit, *, source_lang: str | None, target_lang: str | None, identify: Identify | None
) -> list[Finding]:
    """Check against the source, or against its plural where that fits better."""
    sources = [source for source in (unit.source, unit.other_source) if source]
    found = [
        check_pair(Pair(source, unit.target, source_lang, target_lang, groups=unit.groups, identify=identify))
        for source in sources
    ]
    codes = {fault.code for fault in unit.faults}
    codes |= {"whitespace", "lines"} if "newline" in codes else set()
    best = min(found, key=_gravity) if found else ()
    return [*unit.faults, *(finding for finding in best if finding.code not in codes)]


def _gravity(findings: Sequence[Finding]) -> tuple[int, int]:
    return sum(finding.severity is Severity.ERROR for finding in findings), len(findings)


def _inconsistencies(units: Sequence[BilingualUnit]) -> Iterator[tuple[int, Finding]]:
    """Find sources that are translated in two ways in the same context."""
    first: dict[tuple[str, str], BilingualUnit] = {}
    for index, unit in enumerate(units):
        known = first.setdefault((unit.source, unit.context), unit)
        if known.target != unit.target and unit.source.strip():
            message = f"translated otherwise at {known.location}: {known.target[:60]!r}"
            yield index, Finding("inconsistent", Severity.WARNING, message, remedy="use one translation")


def _text(data: bytes) -> str:
    from hymt_local.documents.text_encoding import decode

    try:
        return decode(data).text
    except DocumentError as error:
        raise DocumentError(error.message, hint="convert it first: `iconv -f GB18030 -t UTF-8`") from error


def _read_texts(source: bytes, target: bytes) -> BilingualText:
    sources, targets = _text(source).splitlines(), _text(target).splitlines()
    if len(sources) != len(targets):
        message = f"{len(sources)} lines of source, {len(targets)} of translation"
        raise DocumentError(message, hint="line for line, both must say the same")
    pairs = enumerate(zip(sources, targets, strict=True), start=1)
    return _translated(BilingualUnit(f"line {number}", *pair) for number, pair in pairs)


def _read_table(text: str, *, delimiter: str) -> BilingualText:
    lines = io.StringIO(text, newline="")
    is_tsv = delimiter == "\t"
    rows = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE if is_tsv else csv.QUOTE_MINIMAL)
    units: list[BilingualUnit] = []
    try:
        for row in rows:
            if not row or (rows.line_num == 1 and {cell.strip().lower() for cell in row[:2]} <= _HEADERS):
                continue
            if len(row) < 2:
                message = f"line {rows.line_num} has one column: {row[0][:60]!r}"
                raise DocumentError(message, hint="source and translation stand in the first two columns")
            units.append(BilingualUnit(f"line {rows.line_num}", row[0], row[1]))
    except csv.Error as error:
        raise DocumentError(f"line {rows.line_num}: {error}", hint="save the table as UTF-8 CSV or TSV") from error
    return _translated(units)


def _translated(units: Iterable[BilingualUnit]) -> BilingualText:
    found = list(units)
    translated = tuple(unit for unit in found if unit.target.strip() or not unit.source.strip())
    return BilingualText(translated, n_untranslated=len(found) - len(translated))


def _read_catalogue(data: bytes) -> BilingualText:
    """Read what is translated and not marked as fuzzy."""
    from hymt_local.documents.po import PoFormat
    from hymt_local.documents.po_syntax import header_of

    document = PoFormat().read(data, Languages(None, "en"))
    header_entry = next((entry for entry in document.entries if entry.is_header), None)
    header = header_of(document.decoded.text, header_entry) if header_entry else None
    named = header.fields.get("language", ("", None))[0] if header else ""
    units: list[BilingualUnit] = []
    n_untranslated = 0
    for entry in document.entries:
        found = [] if entry.is_header or "fuzzy" in entry.flags else list(_messages(entry))
        units += found
        n_untranslated += not found and not entry.is_header
    return BilingualText(tuple(units), _known_language(named), n_untranslated)


def _messages(entry: PoEntry) -> Iterator[BilingualUnit]:
    from hymt_local.documents.po_directives import count_directive, format_rules

    rules = format_rules(entry.flags)
    for number, string in sorted(entry.targets.items()):
        if not string.value:
            continue
        sources = [entry.source.value, entry.source_plural.value] if entry.source_plural else [entry.source.value]
        if entry.source_plural:  # a form for one number alone may do without it
            directive = count_directive(rules.directives(sources[1]))
            is_left_out = bool(directive) and directive not in string.value
            sources = [each.replace(directive, "", 1).strip(" ") if is_left_out else each for each in sources]
        faults = [rules.fault(source, string.value) for source in sources]
        fault = None if None in faults else faults[-1]
        found = [Finding("placeholder", Severity.ERROR, fault, remedy="copy them from the source")] if fault else []
        if _outer_newlines(sources[0]) != _outer_newlines(string.value):
            found.append(Finding("newline", Severity.ERROR, "a line break at the beginning or end is lost or added"))
        yield BilingualUnit(
            f"line {entry.line}" + (f"[{number}]" if entry.source_plural else ""),
            sources[0],
            string.value,
            rules.groups,
            (entry.context.value if entry.context else "") + (f"[{number}]" if entry.source_plural else ""),
            sources[-1] if entry.source_plural else "",
            tuple(found),
        )


def _outer_newlines(text: str) -> tuple[bool, bool]:
    return text.startswith("\n"), text.endswith("\n")


def _known_language(named: str) -> str | None:
    try:
        return match_language(named) if named else None
    except LanguageError:
        return None
