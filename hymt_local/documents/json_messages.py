"""Which strings of a JSON catalogue are messages, in the dialects that there are, and which plural forms it lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from hymt_local.documents.base import Languages
from hymt_local.documents.json_plurals import Count, PluralForm, PluralForms, plural_forms
from hymt_local.documents.json_spans import JsonArray, JsonObject, JsonString, JsonValue
from hymt_local.segment import Span

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


@dataclass(frozen=True, slots=True)
class JsonMessage:
    """One string that is a message, or will be one."""

    pointer: str
    """Unique in the file, even where keys repeat."""
    value: str
    """What is translated."""
    span: Span
    """Where the string stands; empty where it is to be added."""
    note: str = ""
    prefix: str = ""
    """The comma and the key of a string that is to be added."""
    count: Count | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """One value on the way through the file."""

    pointer: str
    value: JsonValue
    note: str = ""
    form: PluralForm | None = None


@dataclass(frozen=True, slots=True)
class Plurals:
    """What is needed to add the plural forms of the target language."""

    text: str
    """Of the whole file."""
    languages: Languages


def messages_of(root: JsonValue, plurals: Plurals | None = None) -> Iterator[JsonMessage]:
    """Yield the messages in order.

    Args:
        root: The whole file.
        plurals: Given for catalogues with one key for each plural form (`items_one`, `items_other`): those that the
            target language needs and the file lacks are yielded as well.
    """
    seen: Counter[str] = Counter()
    is_arb = isinstance(root, JsonObject) and any(key.startswith("@") for key, _ in root.members)
    stack = [_Place("", root)]
    while stack:
        place = stack.pop()
        if isinstance(place.value, JsonString):
            if place.value.value.strip():
                yield _message(place, place.value, _unique(place.pointer, seen))
        elif isinstance(place.value, JsonArray):
            if not _is_syntax_tree(place.value):
                items = enumerate(place.value.items)
                stack += [_Place(f"{place.pointer}/{number}", item) for number, item in items][::-1]
        elif isinstance(place.value, JsonObject):
            stack += list(_members(place.pointer, place.value, plurals, is_arb=is_arb))[::-1]


def _message(place: _Place, string: JsonString, pointer: str) -> JsonMessage:
    form = place.form
    if form is None:
        return JsonMessage(pointer, string.value, string.span, place.note)
    return JsonMessage(pointer, form.value, form.span or string.span, place.note, form.prefix, form.count)


def _unique(pointer: str, seen: Counter[str]) -> str:
    """Tell repeated keys apart; a number sign cannot stand in a pointer of `_members`."""
    seen[pointer] += 1
    return pointer if seen[pointer] == 1 else f"{pointer}#{seen[pointer]}"


def _members(pointer: str, value: JsonObject, plurals: Plurals | None, *, is_arb: bool) -> Iterator[_Place]:
    described = _described(value)
    by_key = value.by_key() if is_arb else {}
    forms = plural_forms(value, plurals.text, plurals.languages) if plurals else PluralForms({}, {})
    for key, member in value.members:
        if key in _NO_TEXT_KEYS or (is_arb and key.startswith("@")) or (described and key != described):
            continue
        note = _note(value) if described else _note(by_key.get(f"@{key}"))
        yield _Place(f"{pointer}/{_escaped(key)}", member, note, forms.own.get(key))
        for form in forms.added.get(key, ()):
            yield _Place(f"{pointer}/{_escaped(form.key)}", member, note, form)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1").replace("#", "~2")


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
