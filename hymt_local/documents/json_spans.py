"""JSON with the place of every string: parsed without recursion, keys of objects kept even where they repeat."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hymt_local.errors import DocumentError
from hymt_local.segment import Span

MAX_DEPTH = 200
_MAX_VALUES = 1_000_000
"""Ten times the largest catalogues; about 2 GiB of memory."""
_TOKEN = re.compile(
    r"""[ \t\r\n]*+
    (?: (?P<string>"(?:[^"\\\r\n]++|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+")
      | (?P<mark>[\[\]{},:])
      | (?P<scalar>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?+|true|false|null)
    )""",
    re.VERBOSE,
)
_SPACE = re.compile(r"[ \t\r\n]*+")


@dataclass(frozen=True, slots=True)
class JsonString:
    """A string and where it stands, quotes included."""

    value: str
    span: Span


@dataclass(frozen=True, slots=True)
class JsonScalar:
    """A number, true, false or null, as it is written."""

    raw: str


@dataclass(frozen=True, slots=True)
class JsonArray:
    """An array."""

    items: list[JsonValue] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class JsonObject:
    """An object; a key may repeat."""

    members: list[tuple[str, JsonValue]] = field(default_factory=list)
    key_spans: list[Span] = field(default_factory=list)
    """Where the key of each member stands, quotes included."""

    def string(self, key: str) -> JsonString | None:
        """Return the string of a key, the last if it repeats; None if there is none or it is no string."""
        found = self.by_key().get(key)
        return found if isinstance(found, JsonString) else None

    def by_key(self) -> Mapping[str, JsonValue]:
        """Return the members as a program would read them."""
        return dict(self.members)


JsonValue = JsonString | JsonScalar | JsonArray | JsonObject


class _Reader:
    """A stack of open containers in place of recursion."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._open: list[JsonArray | JsonObject] = []
        self._key = ""
        self._key_span = Span(0, 0)
        self._n_values = 0
        self._root: JsonValue | None = None

    def read(self) -> JsonValue:
        self._read_value(self._token())
        while self._open:
            self._read_more(self._open[-1])
        end = _SPACE.match(self._text, self._position)
        if self._root is None or (end and end.end() < len(self._text)):
            raise self._refused("something after its end")
        return self._root

    def _token(self) -> re.Match[str]:
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            raise self._refused("no value, or one that is not JSON")
        self._position = match.end()
        return match

    def _read_more(self, container: JsonArray | JsonObject) -> None:
        """Read up to the next value of an open container, or its end."""
        has_members = bool(container.items if isinstance(container, JsonArray) else container.members)
        token = self._token()
        if token["mark"] == ("]" if isinstance(container, JsonArray) else "}"):
            self._open.pop()
            return
        if has_members:
            if token["mark"] != ",":
                raise self._refused("no comma between two values")
            token = self._token()
        if isinstance(container, JsonObject):
            token = self._read_key(token)
        self._read_value(token)

    def _read_key(self, token: re.Match[str]) -> re.Match[str]:
        if not token["string"]:
            raise self._refused("a key that is not a string")
        self._key, self._key_span = _decoded(token["string"]), Span(*token.span("string"))
        if self._token()["mark"] != ":":
            raise self._refused("a key without a colon")
        return self._token()

    def _read_value(self, token: re.Match[str]) -> None:
        self._n_values += 1
        if self._n_values > _MAX_VALUES or len(self._open) > MAX_DEPTH:
            limit = f"{MAX_DEPTH} levels" if len(self._open) > MAX_DEPTH else f"{_MAX_VALUES} values"
            raise self._refused(f"more than {limit}")
        value = self._value(token)
        if self._open:
            self._add(self._open[-1], value)
        else:
            self._root = value
        if isinstance(value, JsonArray | JsonObject):
            self._open.append(value)

    def _value(self, token: re.Match[str]) -> JsonValue:
        if token["string"]:
            return JsonString(_decoded(token["string"]), Span(*token.span("string")))
        if token["scalar"]:
            return JsonScalar(token["scalar"])
        makers: Mapping[str, Callable[[], JsonValue]] = {"[": JsonArray, "{": JsonObject}
        maker = makers.get(token["mark"])
        if maker is None:
            raise self._refused(f"an unexpected {token['mark']!r}")
        return maker()

    def _add(self, container: JsonArray | JsonObject, value: JsonValue) -> None:
        if isinstance(container, JsonArray):
            container.items.append(value)
        else:
            container.members.append((self._key, value))
            container.key_spans.append(self._key_span)

    def _refused(self, what: str) -> DocumentError:
        line = self._text.count("\n", 0, self._position) + 1
        column = self._position - self._text.rfind("\n", 0, self._position)
        return DocumentError(
            f"line {line}, column {column}: {what}", hint="is it JSON? `python -m json.tool` says more"
        )


def parse_json(text: str) -> JsonValue:
    """Parse strictly, but for control characters in strings.

    Raises:
        DocumentError: not JSON (with line and column), or beyond the limits.
    """
    return _Reader(text).read()


def _decoded(written: str) -> str:
    return str(json.loads(written, strict=False)) if "\\" in written else written[1:-1]


_ESCAPE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\/")


@dataclass(frozen=True, slots=True)
class JsonStyle:
    """How a file writes its strings."""

    is_ascii: bool
    """Whether it escapes everything else."""
    escaped: frozenset[str]
    """ASCII characters that it escapes without need, such as `<`."""
    escapes_slashes: bool
    is_upper: bool
    """Whether its escapes have upper-case digits."""

    def written(self, value: str) -> str:
        """Return a value with its quotes."""
        text = json.dumps(value, ensure_ascii=self.is_ascii)
        if self.is_upper and self.is_ascii:
            text = re.sub(r"(\\\\)|\\u([0-9a-f]{4})", lambda match: match[1] or f"\\u{match[2].upper()}", text)
        if self.escapes_slashes:
            text = text.replace("/", "\\/")
        for character in self.escaped:
            code = f"{ord(character):04x}"
            text = text.replace(character, f"\\u{code.upper() if self.is_upper else code}")
        return text


def style_of(text: str) -> JsonStyle:
    """Tell how a file writes: it is an ASCII file if it escapes some letter and has none as it is."""
    codes, slashes = [], False
    for match in _ESCAPE.finditer(text):
        slashes = slashes or match[1] is None
        codes += [match[1]] if match[1] else []
    characters = {chr(int(code, 16)) for code in codes}
    return JsonStyle(
        is_ascii=text.isascii() and any(not character.isascii() for character in characters),
        escaped=frozenset(characters & set("<>&'=+")),
        escapes_slashes=slashes,
        is_upper=any(code != code.lower() for code in codes),
    )
