"""Plural forms as keys of their own: `items_one`, `items_other` of i18next, or `{"one": ..., "other": ...}`.

The forms of the source are not those of the target: what the target language needs beyond them is added.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hymt_local.documents.base import Languages
from hymt_local.documents.example_number import number_spans, replace_number
from hymt_local.documents.json_spans import JsonObject, JsonString
from hymt_local.documents.plural_categories import Category, PluralKind, categories, category_of
from hymt_local.segment import Span

_KEY = re.compile(r"(.*_|)(zero|one|two|few|many|other)", re.DOTALL)
_COUNT = re.compile(r"\{\{-?\s*count\s*(?:,[^{}\n]{0,60})?\}\}|%?\{count\}")
_UNKNOWN_SOURCE = "en"


@dataclass(frozen=True, slots=True)
class Count:
    """The number that stands for the placeholder of the count while a form is translated."""

    example: str
    placeholder: str
    may_be_left_out: bool
    """Whether the form is for this number alone."""

    def shown(self, template: str) -> str:
        """Return a text with the number in place of the placeholder."""
        return template.replace(self.placeholder, self.example, 1)

    def restored(self, target: str, *, kept: re.Pattern[str]) -> str | None:
        """Return a target with the placeholder back; None when the number is lost or stands there twice."""
        restored = replace_number(target, self.example, self.placeholder, kept=kept)
        if restored is None and self.may_be_left_out and not number_spans(target, self.example, kept=kept):
            return target
        return restored


@dataclass(frozen=True, slots=True)
class PluralForm:
    """One plural form of the target."""

    key: str
    value: str
    """What it is translated from."""
    count: Count | None
    span: Span | None = None
    """Where it is added; None where its key is there already."""
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class _Group:
    """The forms of one message."""

    base: str
    kind: PluralKind
    places: Mapping[str, int]
    """Category -> place among the members."""


@dataclass(frozen=True, slots=True)
class PluralForms:
    """The forms of the target in one object."""

    own: Mapping[str, PluralForm]
    """By the key that is there already."""
    added: Mapping[str, Sequence[PluralForm]]
    """By the key after which they are added."""


def plural_forms(value: JsonObject, text: str, languages: Languages) -> PluralForms:
    """Return the forms of all messages in an object; what is no plural form is not among them."""
    own: dict[str, PluralForm] = {}
    added: dict[str, list[PluralForm]] = {}
    for group in _groups(value):
        strings = {name: _string(value, place) for name, place in group.places.items()}
        last_key = value.members[max(group.places.values())][0]
        for category in categories(languages.target_lang, group.kind):
            form = _form(f"{group.base}{category.name}", category, strings, group, languages)
            if category.name in group.places:
                own[form.key] = form
            else:
                added.setdefault(last_key, []).append(_added(form, category.name, value, group, text))
    return PluralForms(own, added)


def _groups(value: JsonObject) -> Iterator[_Group]:
    """Yield the groups that print a count; `other` alone may be one, for the source may have no more forms."""
    found: dict[str, dict[str, int]] = {}
    for place, (key, member) in enumerate(value.members):
        match = _KEY.fullmatch(key)
        if match and isinstance(member, JsonString):
            found.setdefault(match[1], {})[match[2]] = place
    for base, places in found.items():
        is_whole_object = bool(base) or len(places) == len(value.members)
        if "other" in places and is_whole_object and _COUNT.search(_string(value, places["other"])):
            yield _Group(base, "selectordinal" if base.endswith("ordinal_") else "plural", places)


def _string(value: JsonObject, place: int) -> str:
    member = value.members[place][1]
    return member.value if isinstance(member, JsonString) else ""


def _form(key: str, category: Category, strings: Mapping[str, str], group: _Group, languages: Languages) -> PluralForm:
    """Choose what a form is translated from, and the number that shows in it."""
    example = category.example
    name = category_of(languages.source_lang or _UNKNOWN_SOURCE, group.kind, example)
    value = strings.get(name) or strings["other"]
    if category.next_example is not None and not _COUNT.search(value):
        value, example = strings["other"], category.next_example
    placeholders = _COUNT.findall(value)
    is_clear = len(placeholders) == 1 and not number_spans(value, str(example), kept=_COUNT)
    count = Count(str(example), placeholders[0], category.next_example is None) if is_clear else None
    return PluralForm(key, value, count)


def _added(form: PluralForm, name: str, value: JsonObject, group: _Group, text: str) -> PluralForm:
    """Say where a new key goes, and how it is written: as its siblings are."""
    last, other = max(group.places.values()), group.places["other"]
    end = _end(value, last)
    sibling = value.key_spans[other].of(text)
    written_key = sibling[: -len('other"')] + f'{name}"' if sibling.endswith('other"') else json.dumps(form.key)
    colon = text[value.key_spans[other].end : _start(value, other)]
    return PluralForm(
        form.key, form.value, form.count, Span(end, end), f"{_separator(value, group, text)}{written_key}{colon}"
    )


def _separator(value: JsonObject, group: _Group, text: str) -> str:
    """Return what stands between two members."""
    for place in group.places.values():
        if place > 0 and isinstance(value.members[place - 1][1], JsonString):
            return text[_end(value, place - 1) : value.key_spans[place].start]
    return ", "


def _start(value: JsonObject, place: int) -> int:
    member = value.members[place][1]
    return member.span.start if isinstance(member, JsonString) else 0


def _end(value: JsonObject, place: int) -> int:
    member = value.members[place][1]
    return member.span.end if isinstance(member, JsonString) else 0
