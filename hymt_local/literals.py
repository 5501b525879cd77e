"""Literals: the parts of a text that are not language and must come through unchanged.

One grammar for all: what has nothing else in it needs no model (`segmenter`), and what was in a source must be in its
target (`checks`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hymt_local.segment import Span

# Ordered: at one position the first match wins. Every repetition is bounded or cannot overlap its neighbour, so that a
# search takes linear time. ASCII matching: letters of other scripts beside a literal do not become part of it.
_ADDRESS = r"[^\s<>\"'`\u3000-\u303f\uff00-\uffef]+"
_NAME = r"[A-Za-z0-9_]\w{0,60}"
_FOLDER = r"[\w.@%+~-]"
_CONVERSION = r"[-+#0]{0,4}\d{0,3}(?:\.\d{1,3})?(?:hh|h|ll|l|q|z|t)?[sdiufFeEgGxXoc]\b"
_PATTERNS = {
    "code": r"`[^`\n]{1,500}`",
    "url": rf"\b(?:https?|ftp|file|wss?)://{_ADDRESS}|\bwww\.[\w-]+\.{_ADDRESS}",
    "email": r"(?<![\w.+-])[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+",
    "control": r"<[|｜][^|｜<>\s]{1,60}[|｜]>",
    "tag": r"</?[A-Za-z][\w:.-]{0,60}(?:\s[^<>]{0,500})?/?>|<\d\d:\d\d[\d:.]{0,12}>",
    "entity": r"&(?:#\d{1,7}|#x[0-9A-Fa-f]{1,6}|[A-Za-z]\w{1,30});",
    "mustache": r"\{\{\{[^{}\n]{1,200}\}\}\}|\{\{[^{}\n]{1,200}\}\}",
    "shell": r"\$\{[^{}\s]{1,200}\}|\$\([^()\n]{1,200}\)|\$[A-Z_][A-Z0-9_]{0,60}\b",
    "brace": rf"%?\{{{_NAME}(?:[.\[][\w.\[\]]{{1,60}})?(?:![rsa])?(?::[^{{}}\s]{{0,40}})?\}}"
    rf"|\{{{_NAME}(?:,\s?\w{{1,20}}){{1,2}}\}}|\{{\}}",
    "printf": rf"%(?:\([^()\s]{{1,60}}\)|<\w{{1,60}}>|\d{{1,2}}\$)?(?:{_CONVERSION}|@)|%%",
    "dunder": r"__[A-Za-z0-9]\w{0,60}?__",
    "path": rf"(?<![\w./\\:~-])(?:(?:~|\.{{1,2}})/{_FOLDER}+(?:/{_FOLDER}*)*|/{_FOLDER}+(?:/{_FOLDER}*)+"
    r"|[A-Za-z]:\\[\w.@%+~\\-]+)",
    "uuid": r"\b[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b",
    "hash": r"\b(?=[A-Fa-f]{0,63}\d)[0-9A-Fa-f]{16,128}\b",
}
_GRAMMAR = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _PATTERNS.items()), re.ASCII)
_ADDRESS_ENDINGS = ".,;:!?)]}»”’"


@dataclass(frozen=True, slots=True)
class Literal:
    """One literal and where it stands."""

    kind: str
    """`code`, `url`, `email`, `control`, `tag`, `entity`, `path`, `uuid`, `hash`, or a family of placeholders."""
    text: str
    span: Span


def find_literals(text: str) -> list[Literal]:
    """Return the literals of `text` in order, without overlaps."""
    return [_literal(match) for match in _GRAMMAR.finditer(text)]


def without_literals(text: str) -> str:
    """Return `text` with a space in place of each literal."""
    return _GRAMMAR.sub(" ", text)


def _literal(match: re.Match[str]) -> Literal:
    kind, found = str(match.lastgroup), match.group()
    if kind == "url":  # the punctuation of the sentence is not part of the address
        found = found.rstrip(_ADDRESS_ENDINGS)
    return Literal(kind, found, Span(match.start(), match.start() + len(found)))
