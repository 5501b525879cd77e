"""ICU MessageFormat: its syntax, and no more of it than a translator needs.

Arguments with their types and skeletons stay as they are written; only what chooses between texts is taken apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

ChoiceKind = Literal["plural", "selectordinal", "select"]
_KINDS: dict[str, ChoiceKind] = {"plural": "plural", "selectordinal": "selectordinal", "select": "select"}
_MAX_DEPTH = 8
_MAX_LENGTH = 100_000
_NAME = re.compile(r"\s*([^\s{},'#<>]+)\s*")
_OFFSET = re.compile(r"\s*offset\s*:\s*(\d{1,6})\s*")
_SELECTOR = re.compile(r"\s*(=\d{1,9}|[^\s{},=#']+)\s*")
_PLURAL_NAMES = frozenset({"zero", "one", "two", "few", "many", "other"})
_PLAIN = re.compile(r"[^{}'#]+")
_QUOTED = re.compile(r"(?:[^']|'')*+")
_SPECIAL_RUN = re.compile(r"'*[{}][{}#']*")
_SPECIAL_RUN_IN_PLURAL = re.compile(r"'*[{}#][{}#']*")


class MessageSyntaxError(ValueError):
    """Not a message of ICU."""


@dataclass(frozen=True, slots=True)
class Words:
    """Text, unquoted."""

    text: str


@dataclass(frozen=True, slots=True)
class Argument:
    """`{name}` or `{n, number, ::currency/USD}`."""

    name: str
    raw: str
    is_plain_number: bool
    """Whether it prints its value as it is, or as a plain number."""


@dataclass(frozen=True, slots=True)
class Pound:
    """`#`: the number of the plural around it, less its offset."""


@dataclass(frozen=True, slots=True)
class Choice:
    """`{n, plural, one {...} other {...}}` and its like."""

    name: str
    kind: ChoiceKind
    offset: int
    branches: tuple[tuple[str, Message], ...]
    """Selector -> message, in order; `other` is among them."""

    def branch(self, selector: str) -> Message:
        """Return the message of a selector, else that of `other`."""
        found = dict(self.branches)
        return found[selector] if selector in found else found["other"]


Node = Words | Argument | Pound | Choice
Message = tuple[Node, ...]


def parse_message(text: str, *, has_quotes: bool = True, in_plural: bool = False) -> Message:
    """Parse a message.

    Args:
        text: As it stands in the catalogue, decoded from its file format.
        has_quotes: Whether apostrophes quote; not so in ARB by default.
        in_plural: Whether `#` is a number: so inside a branch of a plural.

    Raises:
        MessageSyntaxError: unbalanced braces, a choice without `other`, too deep, too long.
    """
    if len(text) > _MAX_LENGTH:
        raise MessageSyntaxError(f"it has more than {_MAX_LENGTH:,} characters")
    parser = _Parser(text, has_quotes=has_quotes)
    message = parser.message(in_plural=in_plural, depth=0)
    if parser.position < len(text):
        raise MessageSyntaxError(f"an unexpected }} at {parser.position}")
    return message


class _Parser:
    def __init__(self, text: str, *, has_quotes: bool) -> None:
        self._text = text
        self._has_quotes = has_quotes
        self.position = 0

    def message(self, *, in_plural: bool, depth: int) -> Message:
        """Read up to the end or to the brace that closes a branch."""
        if depth > _MAX_DEPTH:
            raise MessageSyntaxError(f"it is nested more than {_MAX_DEPTH} deep")
        nodes: list[Node] = []
        words: list[str] = []
        while self.position < len(self._text) and self._text[self.position] != "}":
            node = self._node(words, in_plural=in_plural, depth=depth)
            if node is not None:
                nodes += [*_joined(words), node]
                words = []
        return (*nodes, *_joined(words))

    def _node(self, words: list[str], *, in_plural: bool, depth: int) -> Node | None:
        """Read one thing that is not words, or add words."""
        character = self._text[self.position]
        if character == "{":
            return self._argument(in_plural=in_plural, depth=depth)
        if character == "#" and in_plural:
            self.position += 1
            return Pound()
        if character == "'" and self._has_quotes:
            words.append(self._quoted(in_plural=in_plural))
        elif plain := _PLAIN.match(self._text, self.position):
            words.append(plain.group())
            self.position = plain.end()
        else:
            words.append(character)
            self.position += 1
        return None

    def _quoted(self, *, in_plural: bool) -> str:
        """Read from an apostrophe: `''`, a quotation of syntax, or just an apostrophe."""
        following = self._text[self.position + 1 : self.position + 2]
        if following == "'":
            self.position += 2
            return "'"
        if not following or following not in ("{}#" if in_plural else "{}"):
            self.position += 1
            return "'"
        quoted = _QUOTED.match(self._text, self.position + 1)
        end = quoted.end() if quoted else len(self._text)
        content = self._text[self.position + 1 : end]
        self.position = min(end + 1, len(self._text))
        return content.replace("''", "'")

    def _argument(self, *, in_plural: bool, depth: int) -> Node:
        start = self.position
        self.position += 1
        name = self._demand(_NAME)
        if self._take("}"):
            return Argument(name, self._text[start : self.position], is_plain_number=True)
        if not self._take(","):
            raise MessageSyntaxError(f"an argument without a comma at {start}")
        kind = self._demand(_NAME)
        if kind in _KINDS:
            if not self._take(","):
                raise MessageSyntaxError(f"a {kind} without branches at {start}")
            return self._choice(name, _KINDS[kind], in_plural=in_plural, depth=depth)
        if not self._take("}"):
            self._skip_style()
        raw = self._text[start : self.position]
        return Argument(name, raw, is_plain_number=kind == "number" and raw.count(",") == 1)

    def _skip_style(self) -> None:
        """Skip a style or skeleton, in which braces and quotes are balanced."""
        n_open = 1
        while n_open:
            if self.position >= len(self._text):
                raise MessageSyntaxError("an argument is not closed")
            character = self._text[self.position]
            n_open += (character == "{") - (character == "}")
            self.position += 1

    def _choice(self, name: str, kind: ChoiceKind, *, in_plural: bool, depth: int) -> Choice:
        offset = 0
        if kind != "select" and (match := _OFFSET.match(self._text, self.position)):
            offset, self.position = int(match[1]), match.end()
        branches: dict[str, Message] = {}
        while not self._take("}"):
            selector = self._demand(_SELECTOR)
            if not self._take("{") or selector in branches:
                raise MessageSyntaxError(f"the branch {selector!r} has no text, or two")
            if kind != "select" and selector[0] != "=" and selector not in _PLURAL_NAMES:
                raise MessageSyntaxError(f"{selector!r} is not a plural category")
            branches[selector] = self.message(in_plural=in_plural or kind != "select", depth=depth + 1)
            if not self._take("}"):
                raise MessageSyntaxError(f"the branch {selector!r} is not closed")
            self._skip_space()
        if "other" not in branches:
            raise MessageSyntaxError(f"{name} has no branch `other`")
        return Choice(name, kind, offset, tuple(branches.items()))

    def _demand(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self.position)
        if match is None:
            raise MessageSyntaxError(f"unexpected text at {self.position}")
        self.position = match.end()
        return match[1]

    def _take(self, character: str) -> bool:
        found = self._text.startswith(character, self.position)
        self.position += found
        return found

    def _skip_space(self) -> None:
        while self._text[self.position : self.position + 1].isspace():
            self.position += 1


def _joined(words: Sequence[str]) -> list[Words]:
    text = "".join(words)
    return [Words(text)] if text else []


def quoted_words(text: str, *, in_plural: bool, doubles_apostrophes: bool) -> str:
    """Return words as they are written in a message with quotes.

    Args:
        text: The words.
        in_plural: Whether `#` must be quoted.
        doubles_apostrophes: Whether the catalogue writes every apostrophe twice; else only where it would quote.
    """
    parts, position = [], 0
    doubles = doubles_apostrophes or "''" in text
    for run in (_SPECIAL_RUN_IN_PLURAL if in_plural else _SPECIAL_RUN).finditer(text):
        parts.append(_apostrophes(text[position : run.start()], doubles=doubles))
        parts.append("'" + run.group().replace("'", "''") + "'")
        position = run.end()
    return "".join([*parts, _apostrophes(text[position:], doubles=doubles)])


def _apostrophes(text: str, *, doubles: bool) -> str:
    """Write apostrophes twice: all, or those that an argument or a tag may follow."""
    return text.replace("'", "''") if doubles else re.sub(r"'(?=<|$)", "''", text)
