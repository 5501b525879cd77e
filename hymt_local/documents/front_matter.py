"""The metadata in front of a Markdown document: which of its values are text, and how they are written back.

Only top-level values of a few keys are translated. YAML (`---`) and TOML (`+++`); all the rest is left as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hymt_local.segment import Span

TRANSLATED_KEYS = frozenset({"title", "description", "summary", "subtitle", "excerpt", "linktitle", "sidebar_label"})
_END = r"(?:\r\n|\n|\r(?!\n))"  # in one way only: a choice at every line is an exponential number of ways
_FENCE = r"(?:---|\.\.\.|\+\+\+)[ \t]*(?:[\r\n]|\Z)"
_FRONT_MATTER = re.compile(
    rf"(?P<fence>---|\+\+\+)[ \t]*{_END}(?P<body>(?:(?!{_FENCE})[^\r\n]*{_END})*+)"
    rf"(?:(?P=fence)|\.\.\.)[ \t]*(?:{_END}|\Z)"
)
_YAML_LINE = re.compile(r"^(?P<key>[A-Za-z_][\w-]*)[ \t]*:[ \t]+(?P<value>\S[^\r\n]*?)[ \t]*$", re.MULTILINE)
_TOML_LINE = re.compile(
    r"^(?P<key>[A-Za-z_][\w-]*)[ \t]*=[ \t]*(?P<value>\"[^\r\n]*\"|'[^\r\n]*')[ \t]*$", re.MULTILINE
)
_DOUBLE_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_SINGLE_QUOTED = re.compile(r"'(?:[^']|'')*'")
_PLAIN = re.compile(r"(?:[^\s\-?:,\[\]{}#&*!|>'\"%@`=~.+\d]|\d{1,9} (?=[^\W\d_]))(?:(?!:(?:\s|$)|\s#)[^\r\n])*")
_CONTINUATION = re.compile(r"(?:\n[ \t]+\S[^\n]*)*")
_BLOCK_SCALAR = re.compile(r"(?P<style>[>|])(?P<chomp>-?)[ \t]*(?P<lines>(?:\n[ \t]+\S[^\n]*)+)")
_WORD = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})
_YAML_ESCAPE = re.compile(r"\\(?!u[0-9A-Fa-f]{4}|[\"\\/bfnrt])")


@dataclass(frozen=True, slots=True)
class FrontValue:
    """A value that is translated."""

    key: str
    span: Span
    """Quotes included."""
    text: str
    quote: str
    """`"`, `'`, or empty."""
    is_toml: bool = False
    trail: str = ""
    """A line end that belongs to the value."""

    def written(self, target: str) -> str:
        """Return a target as a value of the same style, or in double quotes where that style cannot hold it."""
        line = " ".join(target.split()) + self.trail
        if self.quote == "'" and not (self.is_toml and "'" in line):
            return f"'{line}'" if self.is_toml else "'" + line.replace("'", "''") + "'"
        if (
            not self.quote
            and not self.trail
            and _PLAIN.fullmatch(line)
            and line.lower() not in _WORD
            and not line.endswith(":")
        ):
            return line
        return json.dumps(line, ensure_ascii=False)


def front_matter_end(text: str) -> int:
    """Return where the front matter of a document ends; 0 without one."""
    match = _FRONT_MATTER.match(text)
    return match.end() if match else 0


def front_values(text: str) -> Iterator[FrontValue]:
    """Yield the translatable values of a document's front matter."""
    front = _FRONT_MATTER.match(text)
    if front is None:
        return
    is_toml = front["fence"] == "+++"
    body = re.sub(r"\r(?!\n)", "\n", front["body"]).replace("\r\n", " \n")  # of the same length
    for match in (_TOML_LINE if is_toml else _YAML_LINE).finditer(body):
        if match["key"].lower() in TRANSLATED_KEYS:
            value = _value(body, match, is_toml=is_toml)
            if value and any(map(str.isalpha, value.text)):
                start = front.start("body")
                yield replace(value, span=Span(start + value.span.start, start + value.span.end))


def _value(body: str, line: re.Match[str], *, is_toml: bool) -> FrontValue | None:
    start = line.start("value")
    block = _BLOCK_SCALAR.match(body, start)
    if block and not is_toml:
        lines = block["lines"].split("\n")[1:]
        if block["style"] == "|" and len(lines) > 1:
            return None
        text = " ".join(part.strip() for part in lines)
        trail = "" if block["chomp"] else "\n"
        return FrontValue(line["key"], Span(start, start + len(block.group().rstrip())), text, '"', trail=trail)
    continued = _CONTINUATION.match(body, line.end())
    end = continued.end() if continued and not is_toml and continued.group() else start + len(line["value"])
    raw = body[start:end].rstrip()
    scalar = _read(" ".join(raw.split()) if "\n" in raw else raw)
    if scalar is None:
        return None
    quote = raw[0] if raw[0] in "\"'" else ""
    shown = scalar.replace("''", "'") if quote == "'" and not is_toml else scalar
    return FrontValue(line["key"], Span(start, start + len(raw)), shown, quote, is_toml=is_toml)


def _read(value: str) -> str | None:
    """Return the text of a scalar, or None where it is not one that can be written back safely."""
    if _DOUBLE_QUOTED.fullmatch(value):
        if _YAML_ESCAPE.search(value):
            return None
        return str(json.loads(value, strict=False))
    if _SINGLE_QUOTED.fullmatch(value):
        return value[1:-1]
    return value if _PLAIN.fullmatch(value) and value.lower() not in _WORD else None
