"""JSON message catalogues: i18next, FormatJS, ARB, WebExtension and Chrome, VS Code, and plain key-value files.

Only the strings that are messages change; keys, numbers, metadata and the whole layout stay byte for byte.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten

from hymt_local.documents.base import Languages, Merged, MergeOptions, Unit
from hymt_local.documents.inline_markup import Markup, protected_spans
from hymt_local.documents.json_messages import JsonMessage, Plurals, messages_of
from hymt_local.documents.json_plurals import Count
from hymt_local.documents.json_spans import JsonObject, JsonString, JsonStyle, JsonValue, parse_json, style_of
from hymt_local.documents.message_branches import (
    Branch,
    MessageStyle,
    UntranslatableMessageError,
    assembled,
    branches_of,
    tag_markup,
    written_branch,
)
from hymt_local.documents.message_format import Message, MessageSyntaxError, parse_message
from hymt_local.documents.patching import Patch, apply_patches
from hymt_local.documents.text_encoding import DecodedText, decode
from hymt_local.segment import Span, TokenGroup, UnitText

_TYPED = re.compile(
    r"\{\s*[\w.-]+\s*,\s*(?:plural|select|selectordinal|number|date|time|spellout|ordinal|duration|list)\s*[,}]"
)
_CHOICE = re.compile(r"\{\s*[\w.-]+\s*,\s*(?:plural|select|selectordinal)\s*,")
_QUOTING = re.compile(r"''|'[{}]")
# Ordered: `{{x}}` before `{x}`, `$t(...)` before `$NAME$`.
_PLACEHOLDER = re.compile(
    r"\{\{\{[^{}\n]{1,200}\}\}\}|\{\{[^{}\n]{1,200}\}\}|\$t\((?:[^()\n]|\([^()\n]*\)){1,300}\)|\$\{[^{}\n]{1,200}\}"
    r"|\{[\w.$@-]{0,60}\}|@(?:\.\w{1,20})?:(?:\([^()\n]{1,100}\)|\{'[^'\n]{1,100}'\}|[\w.-]*\w)"
    r"|%\{\w{1,60}\}|%\([\w.]{1,60}\)[sdif]|%(?:\d{1,2}\$)?[-+#0]*\d{0,3}(?:\.\d{1,3})?(?:l{1,2}|h|z)?[sdiufxX@](?!\w)"
    r"|(?<=\s)\|(?=\s)"
)
_EXTENSION_PLACEHOLDER = re.compile(r"\$[A-Za-z_]\w{0,60}\$|\$\d(?!\d)")
"""In the messages of an extension; elsewhere `$5` is a price."""
_MAX_REASON = 200
_GROUPS = frozenset({TokenGroup.TEXT, TokenGroup.JSON_CATALOGUE})


class JsonCatalogueFormat:
    """JSON message catalogues and ARB."""

    name = "json"
    extensions = (".json", ".arb")
    can_be_bilingual = False

    def sniffs(self, head: bytes) -> bool:
        """Tell whether an object with a key begins here."""
        return re.match(rb'(?:\xef\xbb\xbf)?\s{0,200}\{\s{0,200}"[^"\r\n]{0,200}"\s{0,20}:', head) is not None

    def read(self, data: bytes, languages: Languages) -> JsonDocument:
        """Parse.

        Raises:
            DocumentError: undecodable, not JSON (with line and column), or beyond the limits.
        """
        decoded = decode(data)
        root = parse_json(decoded.text)
        leaves = list(messages_of(root))
        style = _message_style(root, leaves)
        if style is None and 'other"' in decoded.text:
            leaves = list(messages_of(root, Plurals(decoded.text, languages)))
        messages, left_alone = _messages(leaves, languages, style)
        return JsonDocument(
            decoded,
            messages,
            {unit.id: message for message in messages for unit in message.units},
            style_of(decoded.text),
            style or MessageStyle(),
            _locale(root),
            left_alone,
        )


def _locale(root: JsonValue) -> JsonString | None:
    return root.string("@@locale") if isinstance(root, JsonObject) else None


# How they are written


def _message_style(root: JsonValue, leaves: Sequence[JsonMessage]) -> MessageStyle | None:
    """Return how the messages of ICU are written; None when the catalogue has none."""
    is_arb = _locale(root) is not None
    is_icu = is_arb or any(leaf.pointer.endswith("/defaultMessage") or _TYPED.search(leaf.value) for leaf in leaves)
    if not is_icu:
        return None
    has_quoting = any(_QUOTING.search(leaf.value) for leaf in leaves)
    doubles = any("''" in leaf.value for leaf in leaves)
    return MessageStyle(has_quotes=has_quoting or not is_arb, doubles_apostrophes=doubles)


@dataclass(frozen=True, slots=True)
class _Message:
    """One string of the file as its units."""

    span: Span
    units: tuple[Unit, ...]
    branches: tuple[Branch, ...] = ()
    """Empty unless it is a message of ICU; those without text have no unit."""
    template: str = ""
    """The text with its placeholders, where there are no branches."""
    count: Count | None = None
    prefix: str = ""
    """What comes before a string that is added."""
    lead: str = ""
    trail: str = ""

    def restored(self, target: str) -> str | None:
        """Return a target with the placeholder of its count; None when the number is lost or stands there twice."""
        return self.count.restored(target, kept=_PLACEHOLDER) if self.count else target


def _messages(
    leaves: Sequence[JsonMessage], languages: Languages, style: MessageStyle | None
) -> tuple[tuple[_Message, ...], tuple[str, ...]]:
    """Return the strings that have units, and why others with text have none."""
    messages, left_alone = [], []
    for leaf in leaves:
        try:
            message = _message(leaf, languages, style)
        except UntranslatableMessageError as error:
            left_alone.append(f"{_location(leaf)}: {shorten(str(error), _MAX_REASON)}")
        else:
            messages += [message] if message.units else []
    return tuple(messages), tuple(left_alone)


def _message(leaf: JsonMessage, languages: Languages, style: MessageStyle | None) -> _Message:
    """Return a string with its units.

    Raises:
        UntranslatableMessageError: it cannot be translated whole.
    """
    if style is not None:
        try:
            return _icu_message(leaf, parse_message(leaf.value, has_quotes=style.has_quotes), languages)
        except MessageSyntaxError as error:
            if _CHOICE.search(leaf.value):
                raise UntranslatableMessageError(f"it cannot be read as a message: {error}") from error
    return _plain_message(leaf)


def _plain_message(leaf: JsonMessage) -> _Message:
    value = leaf.value
    text = value.strip()
    lead = value[: len(value) - len(value.lstrip())]
    shown = leaf.count.shown(text) if leaf.count else text
    protected = protected_spans(shown, _placeholders(shown, _unit_id(leaf)))
    unit = Unit(_unit_id(leaf), UnitText(shown, protected, _GROUPS), _location(leaf), leaf.note)
    return _Message(
        leaf.span,
        (unit,),
        template=text,
        count=leaf.count,
        prefix=leaf.prefix,
        lead=lead,
        trail=value[len(lead) + len(text) :],
    )


def _icu_message(leaf: JsonMessage, message: Message, languages: Languages) -> _Message:
    branches = branches_of(message, languages)
    units = tuple(_branch_unit(leaf, branch) for branch in branches if branch.source.text)
    return _Message(leaf.span, units, tuple(branches))


def _branch_unit(leaf: JsonMessage, branch: Branch) -> Unit:
    suffix = f"#{branch.name}" if branch.name else ""
    note = "\n".join(filter(None, (leaf.note, branch.name)))
    return Unit(_unit_id(leaf) + suffix, branch.source, _location(leaf), note)


def _unit_id(leaf: JsonMessage) -> str:
    return leaf.pointer or "/"


def _location(leaf: JsonMessage) -> str:
    return f"key {leaf.pointer[1:].replace('/', '.').replace('~1', '/').replace('~0', '~') or '(root)'}"


def _placeholders(text: str, unit_id: str) -> list[Markup]:
    """Return placeholders and tags in order; a placeholder inside a tag is part of the tag."""
    markup = list(tag_markup(text))
    for pattern in (_PLACEHOLDER, *([_EXTENSION_PLACEHOLDER] if unit_id.endswith("/message") else [])):
        markup += [Markup(Span(*match.span())) for match in pattern.finditer(text)]
    kept: list[Markup] = []
    for each in sorted(markup, key=lambda each: (each.span.start, -each.span.end)):
        if not kept or kept[-1].span.end <= each.span.start:
            kept.append(each)
    return kept


# The document


@dataclass(frozen=True, slots=True)
class JsonDocument:
    """A catalogue that was read."""

    decoded: DecodedText
    messages: tuple[_Message, ...]
    by_unit: Mapping[str, _Message]
    style: JsonStyle
    message_style: MessageStyle
    locale: JsonString | None
    left_alone: tuple[str, ...] = ()

    @property
    def units(self) -> Sequence[Unit]:
        """One per message; of a message of ICU, one per sentence."""
        return tuple(unit for message in self.messages for unit in message.units)

    def fault(self, unit: Unit, target: str) -> str | None:
        """Return why the program that reads the catalogue could not use this target."""
        if not target.strip():
            return "a message cannot be empty"
        message = self.by_unit[unit.id]
        if message.branches:
            return self._branch_fault(self._branch(message, unit), target.strip())
        restored = message.restored(target)
        if restored is None:
            return f"the number {message.count.example if message.count else ''} must stand in the translation once"
        wanted, found = _counted(message.template, unit.id), _counted(restored, unit.id)
        if message.count and message.count.may_be_left_out and message.count.placeholder not in found:
            del wanted[message.count.placeholder]
        if wanted != found:
            words = [f"lost {each}" for each in wanted - found] + [f"added {each}" for each in found - wanted]
            return f"placeholders differ: {', '.join(words)}"
        return None

    def merge(self, targets: Mapping[str, str], options: MergeOptions) -> Merged:
        """Write messages of which every sentence has a target."""
        rejected: dict[str, str] = {}
        patches = []
        is_echo = all(targets.get(unit.id, unit.source.text) == unit.source.text for unit in self.units)
        for message in self.messages if not is_echo else ():
            value = self._value(message, targets, rejected)
            if value is not None:
                patches.append(Patch(message.span, message.prefix + self.style.written(value)))
        if self.locale and options.sets_metadata:
            tag = options.languages.target_lang.replace("-", "_")
            patches.append(Patch(self.locale.span, self.style.written(tag)))
        patches.sort(key=lambda patch: patch.span.start)
        return Merged(self.decoded.encode(apply_patches(self.decoded.text, patches)), rejected)

    def _branch(self, message: _Message, unit: Unit) -> Branch:
        translated = [branch for branch in message.branches if branch.source.text]
        return translated[[each.id for each in message.units].index(unit.id)]

    def _branch_fault(self, branch: Branch, target: str) -> str | None:
        try:
            written_branch(branch, target, self.message_style)
        except UntranslatableMessageError as error:
            return str(error)
        return None

    def _value(self, message: _Message, targets: Mapping[str, str], rejected: dict[str, str]) -> str | None:
        """Return the new value of a string; None when it stays as it is."""
        given = [unit for unit in message.units if unit.id in targets]
        is_same = all(targets[unit.id] == unit.source.text for unit in given)
        if not given or (is_same and not message.prefix):  # what is added counts although it is the same
            return None
        faults = {unit.id: self.fault(unit, targets[unit.id]) or self.decoded.lacks(targets[unit.id]) for unit in given}
        rejected |= {unit_id: fault for unit_id, fault in faults.items() if fault}
        sound = {unit.id: targets[unit.id].strip() for unit in given if not faults[unit.id]}
        if len(sound) < len(message.units):
            rejected |= dict.fromkeys(sound, "another branch of this message has no translation")
            return None
        if not message.branches:
            return f"{message.lead}{message.restored(sound[message.units[0].id])}{message.trail}"
        return self._assembled(message, sound, rejected)

    def _assembled(self, message: _Message, sound: Mapping[str, str], rejected: dict[str, str]) -> str | None:
        units = iter(message.units)
        texts = [
            written_branch(branch, sound[next(units).id], self.message_style) if branch.source.text else branch.lead
            for branch in message.branches
        ]
        value = assembled(message.branches, texts)
        try:
            parse_message(value, has_quotes=self.message_style.has_quotes)
        except MessageSyntaxError as error:
            rejected |= dict.fromkeys(sound, f"the message could not be read again: {error}")
            return None
        return value


def _counted(text: str, unit_id: str) -> Counter[str]:
    return Counter(markup.span.of(text) for markup in _placeholders(text, unit_id))
