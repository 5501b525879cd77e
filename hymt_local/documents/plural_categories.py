"""The plural categories of CLDR: which a language has, and a number for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Literal

_CATEGORIES = ("zero", "one", "two", "few", "many", "other")
_LARGE = 200
# A translation is wanted for each category: whole numbers first, and 1 only where it is the number of the category.
_TRIED = (*map(Decimal, (*range(2, _LARGE), 0, 1, 1_000_000)), Decimal("1.5"), Decimal("0.5"))

PluralKind = Literal["plural", "selectordinal"]
_Rule = Callable[[Decimal], str]


@dataclass(frozen=True, slots=True)
class Category:
    """One category of a language, with a number in it."""

    name: str
    example: Decimal
    next_example: Decimal | None
    """Another number in it; None where it is for one whole number below 200 alone."""


def categories(language: str, kind: PluralKind, *, taken: Collection[Decimal] = ()) -> list[Category]:
    """Return the categories of a language, `other` last.

    Args:
        language: BCP 47; one that CLDR does not know has `one` and `other`.
        kind: Cardinal or ordinal.
        taken: Numbers that have a form of their own and make no good examples.
    """
    numbers = _numbers(language, kind)
    return [_category(name, list(numbers[name]), taken) for name in _CATEGORIES if name in numbers]


def category_of(language: str, kind: PluralKind, number: Decimal) -> str:
    """Return the category that a number has in a language."""
    return _rule(language, kind)(number)


def _category(name: str, numbers: list[Decimal], taken: Collection[Decimal]) -> Category:
    if name == "one" and 1 in numbers:
        numbers = [Decimal(1), *(number for number in numbers if number != 1)]
    free = [number for number in numbers if number not in taken] or numbers
    is_alone = len(free) == 1 and free[0] < _LARGE
    return Category(name, free[0], None if is_alone else free[min(1, len(free) - 1)])


@lru_cache(maxsize=128)
def _numbers(language: str, kind: PluralKind) -> Mapping[str, Sequence[Decimal]]:
    """Return the numbers that were tried by category: a rule of babel takes long to evaluate."""
    rule = _rule(language, kind)
    numbers: dict[str, list[Decimal]] = {}
    for number in _TRIED:
        numbers.setdefault(rule(number), []).append(number)
    return numbers


def _rule(language: str, kind: PluralKind) -> _Rule:
    from babel import Locale, UnknownLocaleError  # 36 MB installed: only for messages with plurals

    try:
        locale = Locale.parse(language.replace("-", "_"))
    except (UnknownLocaleError, ValueError):
        return lambda number: "one" if number == 1 else "other"
    form = locale.plural_form if kind == "plural" else locale.ordinal_form
    return lambda number: str(form(number))
