"""The plural forms of gettext: the expression in C that a catalogue's header gives, and what it usually is.

The expression comes from a file of others: it is parsed here, never evaluated by Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from hymt_local.errors import DocumentError

_FIELD = re.compile(r"\s*nplurals\s*=\s*(\d{1,3})\s*;\s*plural\s*=\s*([^;]+?)\s*;?\s*", re.DOTALL)
_TOKEN = re.compile(r"\s*(\d{1,9}|[n()?:]|&&|\|\||[=!<>]=|[<>!+*/%-])")
_MAX_LENGTH = 2000
_MAX_TOKENS = 400
_MAX_DEPTH = 40
_UNSIGNED_LONG = (1 << 64) - 1
_MAX_PLURALS = 12
_TRIED = range(1001)
"""The numbers that msgfmt tries, too."""

_ONE = "nplurals=1; plural=0;"
_NOT_ONE = "nplurals=2; plural=(n != 1);"
_ABOVE_ONE = "nplurals=2; plural=(n > 1);"
_SLAVIC_TAIL = "n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);"
_EASTERN = f"nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : {_SLAVIC_TAIL}"
# What gettext's own table has, where it has the language; else what CLDR says of whole numbers.
_USUAL: Mapping[str, str] = {
    **dict.fromkeys(("zh", "zh-Hant", "yue", "ja", "ko", "th", "ms", "id", "km", "my", "bo", "vi"), _ONE),
    **dict.fromkeys(
        ("en", "de", "nl", "it", "es", "pt", "he", "tr", "ur", "te", "mr", "ta", "kk", "mn", "ug"), _NOT_ONE
    ),
    **dict.fromkeys(("fr", "tl", "hi", "fa", "gu", "bn"), _ABOVE_ONE),
    **dict.fromkeys(("ru", "uk"), _EASTERN),
    "pl": f"nplurals=3; plural=(n==1 ? 0 : {_SLAVIC_TAIL}",
    "cs": "nplurals=3; plural=(n==1) ? 0 : (n>=2 && n<=4) ? 1 : 2;",
    "ar": "nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5;",
}

_Evaluator = Callable[[int], int]


@dataclass(frozen=True, slots=True)
class PluralSlot:
    """One plural form of a catalogue."""

    example: int
    """The smallest number that takes this form; 0 only where no other does, for "0 files" is easily read as "none"."""
    next_example: int | None
    """The next that does; None where it is the only one."""


@dataclass(frozen=True, slots=True)
class PluralForms:
    """How many forms a catalogue has, and which number takes which."""

    field: str
    """As it stands in a header."""
    slots: tuple[PluralSlot, ...]


def usual_plural_forms(target_lang: str) -> PluralForms:
    """Return what a catalogue in a language of the table usually has; two forms for a language outside it."""
    return parse_plural_forms(_USUAL.get(target_lang, _NOT_ONE))


@lru_cache(maxsize=64)
def parse_plural_forms(field: str) -> PluralForms:
    """Read the value of the header field `Plural-Forms`.

    Raises:
        DocumentError: not an expression of C in `n`, or one that gives a form outside `nplurals`.
    """
    match = _FIELD.fullmatch(field)
    n_plurals = int(match[1]) if match else 0
    if match is None or not 1 <= n_plurals <= _MAX_PLURALS or len(field) > _MAX_LENGTH:
        raise _refused(field)
    evaluate = _Parser(match[2]).parsed()
    numbers: list[list[int]] = [[] for _ in range(n_plurals)]
    for number in _TRIED:
        slot = evaluate(number)
        if not 0 <= slot < n_plurals:
            raise _refused(field)
        numbers[slot].append(number)
    return PluralForms(field.strip(), tuple(_slot(each) for each in numbers))


def _slot(numbers: Sequence[int]) -> PluralSlot:
    positive_first = sorted(numbers, key=lambda number: (number == 0, number))[:2] or [1_000_000]
    return PluralSlot(positive_first[0], positive_first[1] if len(positive_first) > 1 else None)


def _refused(field: str) -> DocumentError:
    return DocumentError(
        f"Plural-Forms {field.strip()[:60]!r} is not valid", hint="see the gettext manual, section Plural forms"
    )


class _Parser:
    """Recursive descent over the operators of C, lowest precedence first."""

    _LEVELS: tuple[tuple[str, ...], ...] = (
        ("||",),
        ("&&",),
        ("==", "!="),
        ("<", ">", "<=", ">="),
        ("+", "-"),
        ("*", "/", "%"),
    )

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = self._split(expression)
        self._depth = 0

    def parsed(self) -> _Evaluator:
        evaluator = self._ternary()
        if self._tokens:
            raise _refused(self._expression)
        return evaluator

    def _split(self, expression: str) -> list[str]:
        """Return the tokens, last first."""
        tokens, position, expression = [], 0, expression.rstrip()
        while position < len(expression):
            match = _TOKEN.match(expression, position)
            if match is None:
                raise _refused(expression)
            tokens.append(match[1])
            position = match.end()
        if len(tokens) > _MAX_TOKENS:  # each operator is a call inside a call
            raise _refused(expression)
        return tokens[::-1]

    def _take(self, *wanted: str) -> str:
        return self._tokens.pop() if self._tokens and self._tokens[-1] in wanted else ""

    def _demand(self, wanted: str) -> None:
        if not self._take(wanted):
            raise _refused(self._expression)

    def _ternary(self) -> _Evaluator:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _refused(self._expression)
        condition = self._binary(0)
        if self._take("?"):
            yes = self._ternary()
            self._demand(":")
            condition = _chosen(condition, yes, self._ternary())
        self._depth -= 1
        return condition

    def _binary(self, level: int) -> _Evaluator:
        if level == len(self._LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while operator := self._take(*self._LEVELS[level]):
            left = _combined(operator, left, self._binary(level + 1))
        return left

    def _unary(self) -> _Evaluator:
        n_negations = 0
        while self._take("!"):
            n_negations += 1
        operand = self._operand()
        for _ in range(min(n_negations, 2 + n_negations % 2)):
            operand = _negated(operand)
        return operand

    def _operand(self) -> _Evaluator:
        token = self._tokens.pop() if self._tokens else ""
        if token == "(":
            inner = self._ternary()
            self._demand(")")
            return inner
        if token == "n":
            return lambda n: n
        if token.isdigit():
            value = int(token)
            return lambda n: value
        raise _refused(self._expression)


def _chosen(condition: _Evaluator, yes: _Evaluator, no: _Evaluator) -> _Evaluator:
    return lambda n: yes(n) if condition(n) else no(n)


def _negated(operand: _Evaluator) -> _Evaluator:
    return lambda n: int(not operand(n))


def _combined(operator: str, left: _Evaluator, right: _Evaluator) -> _Evaluator:
    if operator == "&&":
        return lambda n: int(bool(left(n)) and bool(right(n)))
    if operator == "||":
        return lambda n: int(bool(left(n)) or bool(right(n)))
    calculate = _OPERATORS[operator]
    return lambda n: calculate(left(n), right(n))


def _divided(left: int, right: int) -> int:
    if right == 0:
        raise _refused("division by zero")
    return left // right


def _remainder(left: int, right: int) -> int:
    return left - right * _divided(left, right)


_OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "==": lambda left, right: int(left == right),
    "!=": lambda left, right: int(left != right),
    "<": lambda left, right: int(left < right),
    ">": lambda left, right: int(left > right),
    "<=": lambda left, right: int(left <= right),
    ">=": lambda left, right: int(left >= right),
    "+": lambda left, right: (left + right) & _UNSIGNED_LONG,
    "-": lambda left, right: (left - right) & _UNSIGNED_LONG,
    "*": lambda left, right: (left * right) & _UNSIGNED_LONG,
    "/": _divided,
    "%": _remainder,
}
