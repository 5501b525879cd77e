"""JSON message catalogues: i18next, FormatJS, ARB, WebExtension and Chrome, VS Code, and plain key-value files.

Only the strings that are messages change; keys, numbers, metadata and the whole layout stay byte for byte.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hymt_local.documents.base import Languages, Merged, MergeOptions, Unit
from hymt_local.documents.inline_markup import Markup, protected_spans
from hymt_local.documents.json_spans import (
    JsonArray,
    JsonObject,
    JsonString,
    JsonStyle,
    JsonValue,
    parse_json,
    style_of,
)
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
from hymt_local.segment import ProtectedSpan, Span, TokenGroup, UnitText

_MESSAGE_KEYS = ("message", "defaultMessage", "string")
_NOTE_KEYS = ("description", "comment", "developer_comment", "context")
_METADATA_KEYS = frozenset(
    {
        *("id", "file", "start", "end", "line", "col", "placeholders", "hash", "key", "character_limit"),
        *("meaning", "type", "locations", "origin", "extractedComments", "tags", "placeholder"),
        *_NOTE_KEYS,
    }
)
"""What may stand beside a message in the object that describes it."""
_NO_TEXT_KEYS = frozenset({"$schema", "$id"})
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
    r"|\$[A-Za-z_]\w{0,60}\$|\$\d(?!\d)|(?<=\s)\|(?=\s)"
)
_GROUPS = frozenset({TokenGroup.TEXT, TokenGroup.JSON_CATALOGUE})


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One string that is a message."""

    pointer: str
    string: JsonString
    note: str = ""


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
        leaves = list(_leaves(root))
        style = _message_style(root, leaves)
        messages = [_message(leaf, languages, style) for leaf in leaves]
        by_unit = {unit.id: message for message in messages if message for unit in message.units}
        return JsonDocument(
            decoded,
            tuple(filter(None, messages)),
            by_unit,
            style_of(decoded.text),
            style or MessageStyle(),
            _locale(root),
        )


def _locale(root: JsonValue) -> JsonString | None:
    return root.string("@@locale") if isinstance(root, JsonObject) else None


# Which strings are messages


def _leaves(root: JsonValue) -> Iterator[_Leaf]:
    """Yield the messages in order, each with a pointer of its own even where keys repeat."""
    seen: Counter[str] = Counter()
    is_arb = isinstance(root, JsonObject) and any(key.startswith("@") for key, _ in root.members)
    stack: list[tuple[str, JsonValue, str]] = [("", root, "")]
    while stack:
        pointer, value, note = stack.pop()
        if isinstance(value, JsonString):
            if value.value.strip():
                yield _Leaf(_unique(pointer, seen), value, note)
        elif isinstance(value, JsonArray):
            if not _is_syntax_tree(value):
                stack += [(f"{pointer}/{place}", item, "") for place, item in enumerate(value.items)][::-1]
        elif isinstance(value, JsonObject):
            stack += list(_members(pointer, value, is_arb=is_arb))[::-1]


def _unique(pointer: str, seen: Counter[str]) -> str:
    """Tell repeated keys apart; a number sign cannot stand in a pointer of `_members`."""
    seen[pointer] += 1
    return pointer if seen[pointer] == 1 else f"{pointer}#{seen[pointer]}"


def _members(pointer: str, value: JsonObject, *, is_arb: bool) -> Iterator[tuple[str, JsonValue, str]]:
    described = _described(value)
    by_key = value.by_key() if is_arb else {}
    for key, member in value.members:
        if key in _NO_TEXT_KEYS or (is_arb and key.startswith("@")) or (described and key != described):
            continue
        note = _note(value) if described else _note(by_key.get(f"@{key}"))
        escaped = key.replace("~", "~0").replace("/", "~1").replace("#", "~2")
        yield f"{pointer}/{escaped}", member, note


def _described(value: JsonObject) -> str:
    """Return the key of the message in an object that describes one message; empty for any other object."""
    keys = {key for key, _ in value.members}
    for key in _MESSAGE_KEYS:
        if key in keys and len(keys) > 1 - (key != "string") and keys <= _METADATA_KEYS | {key} and value.string(key):
            return key
    return ""


def _note(value: JsonValue | None) -> str:
    if not isinstance(value, JsonObject):
        return ""
    for key in _NOTE_KEYS:
        found = value.by_key().get(key)
        parts = found.items if isinstance(found, JsonArray) else [found]
        texts = [part.value for part in parts if isinstance(part, JsonString) and part.value.strip()]
        if texts:
            return "\n".join(texts)
    return ""


def _is_syntax_tree(array: JsonArray) -> bool:
    """Tell whether this is a message that FormatJS has compiled: its strings are names as often as texts."""
    first = array.items[0] if array.items else None
    return (
        isinstance(first, JsonObject)
        and {"type", "value"} <= (keys := first.by_key()).keys()
        and not isinstance(keys["type"], JsonString)
    )


# How they are written


def _message_style(root: JsonValue, leaves: Sequence[_Leaf]) -> MessageStyle | None:
    """Return how the messages of ICU are written; None when the catalogue has none."""
    is_arb = _locale(root) is not None
    is_icu = is_arb or any(
        leaf.pointer.endswith("/defaultMessage") or _TYPED.search(leaf.string.value) for leaf in leaves
    )
    if not is_icu:
        return None
    has_quoting = any(_QUOTING.search(leaf.string.value) for leaf in leaves)
    doubles = any("''" in leaf.string.value for leaf in leaves)
    return MessageStyle(has_quotes=has_quoting or not is_arb, doubles_apostrophes=doubles)


@dataclass(frozen=True, slots=True)
class _Message:
    """One string of the file as its units."""

    span: Span
    units: tuple[Unit, ...]
    branches: tuple[Branch, ...] = ()
    """Empty unless it is a message of ICU; those without text have no unit."""
    lead: str = ""
    trail: str = ""


def _message(leaf: _Leaf, languages: Languages, style: MessageStyle | None) -> _Message | None:
    """Return the units of a string; None when it cannot be translated whole."""
    value = leaf.string.value
    if style is not None:
        parsed = _parsed(value, style)
        if parsed is not None:
            return _icu_message(leaf, parsed, languages)
        if _CHOICE.search(value):
            return None
    text = value.strip()
    lead = value[: len(value) - len(value.lstrip())]
    unit = Unit(_unit_id(leaf), UnitText(text, _protected(text), _GROUPS), _location(leaf), leaf.note)
    return _Message(leaf.string.span, (unit,), lead=lead, trail=value[len(lead) + len(text) :])


def _parsed(value: str, style: MessageStyle) -> Message | None:
    try:
        return parse_message(value, has_quotes=style.has_quotes)
    except MessageSyntaxError:
        return None


def _icu_message(leaf: _Leaf, message: Message, languages: Languages) -> _Message | None:
    try:
        branches = branches_of(message, languages)
    except UntranslatableMessageError:
        return None
    units = tuple(_branch_unit(leaf, branch) for branch in branches if branch.source.text)
    return _Message(leaf.string.span, units, tuple(branches)) if units else None


def _branch_unit(leaf: _Leaf, branch: Branch) -> Unit:
    suffix = f"#{branch.name}" if branch.name else ""
    note = "\n".join(filter(None, (leaf.note, branch.name)))
    return Unit(_unit_id(leaf) + suffix, branch.source, _location(leaf), note)


def _unit_id(leaf: _Leaf) -> str:
    return leaf.pointer or "/"


def _location(leaf: _Leaf) -> str:
    return f"key {leaf.pointer[1:].replace('/', '.').replace('~1', '/').replace('~0', '~') or '(root)'}"


def _protected(text: str) -> tuple[ProtectedSpan, ...]:
    return protected_spans(text, _placeholders(text))


def _placeholders(text: str) -> list[Markup]:
    """Return placeholders and tags in order; a placeholder inside a tag is part of the tag."""
    tags = list(tag_markup(text))
    covered = [tag.span for tag in tags]
    markup = [
        Markup(Span(*match.span()))
        for match in _PLACEHOLDER.finditer(text)
        if not any(span.start < match.end() and match.start() < span.end for span in covered)
    ]
    return sorted([*tags, *markup], key=lambda each: each.span.start)


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
        wanted, found = _counted(unit.source.text), _counted(target)
        if wanted != found:
            words = [f"lost {each}" for each in wanted - found] + [f"added {each}" for each in found - wanted]
            return f"placeholders differ: {', '.join(words)}"
        return None

    def merge(self, targets: Mapping[str, str], options: MergeOptions) -> Merged:
        """Write messages of which every sentence has a target."""
        rejected: dict[str, str] = {}
        patches = []
        for message in self.messages:
            value = self._value(message, targets, rejected)
            if value is not None:
                patches.append(Patch(message.span, self.style.written(value)))
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
        if all(targets[unit.id] == unit.source.text for unit in given):
            return None
        faults = {unit.id: self.fault(unit, targets[unit.id]) or self.decoded.lacks(targets[unit.id]) for unit in given}
        rejected |= {unit_id: fault for unit_id, fault in faults.items() if fault}
        sound = {unit.id: targets[unit.id].strip() for unit in given if not faults[unit.id]}
        if len(sound) < len(message.units):
            rejected |= dict.fromkeys(sound, "another branch of this message has no translation")
            return None
        if not message.branches:
            return f"{message.lead}{sound[message.units[0].id]}{message.trail}"
        return self._assembled(message, sound, rejected)

    def _assembled(self, message: _Message, sound: Mapping[str, str], rejected: dict[str, str]) -> str | None:
        units = iter(message.units)
        texts = [
            written_branch(branch, sound[next(units).id], self.message_style) if branch.source.text else branch.lead
            for branch in message.branches
        ]
        value = assembled(message.branches, texts)
        if _parsed(value, self.message_style) is None:
            rejected |= dict.fromkeys(sound, "the message could not be read again")
            return None
        return value


def _counted(text: str) -> Counter[str]:
    return Counter(markup.span.of(text) for markup in _placeholders(text))
