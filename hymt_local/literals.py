"""Literals: the parts of a text that are not language and must come through unchanged.

One grammar for all: what has nothing else in it needs no model (`segmenter`), and what was in a source must be in its
target (`checks`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hymt_local.segment import Span

_PATTERNS: tuple[tuple[str, str], ...] = (
    # Ordered: at one position the first match wins. No pattern backtracks more than linearly.
    ("code", r"`[^`\n]{1,500}`"),
    ("url", r"\b(?:https?|ftp|file|wss?)://[^\s<>\"'`\u3000-\u303f\uff00-\uffef]+|\bwww\.[\w-]+\.[^\s<>\"'`\u3000-\u303f\uff00-\uffef]+"),
    ("email", r"(?<![\w.+-])[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+"),
    ("control", r"<[|｜][^|｜<>\s]{1,60}[|｜]>"),
    ("tag", r"</?[A-Za-z][\w:.-]{0,60}(?:\s[^<>]{0,500})?/?>|<\d\d:\d\d[\d:.]{0,12}>"),
    ("entity", r"&(?:#\d{1,7}|#x[0-9A-Fa-f]{1,6}|[A-Za-z]\w{1,30});"),
    ("mustache", r"\{\{\{[^{}\n]{1,200}\}\}\}|\{\{[^{}\n]{1,200}\}\}"),
    ("shell", r"\$\{[^{}\s]{1,200}\}|\$\([^()\n]{1,200}\)|\$[A-Z_][A-Z0-9_]{0,60}\b"),
    ("brace", r"%?\{[A-Za-z0-9_][\w.\[\]]{0,60}(?:![rsa])?(?::[^{}\s]{0,40})?\}|\{[A-Za-z0-9_]\w{0,60}(?:,\s*\w{1,20}){1,2}\}|\{\}"),
    ("printf", r"%(?:\([^()\s]{1,60}\)|<\w{1,60}>|\d{1,2}\$)?(?:[-+#0]{0,4}\d{0,3}(?:\.\d{1,3})?(?:hh|h|ll|l|q|z|t)?[sdiufFeEgGxXoc@]\b|@|%)"),
    ("dunder", r"__[A-Za-z0-9][A-Za-z0-9_]{0,60}?__"),
    ("path", r"(?<![\w./\\:~-])(?:(?:~|\.{1,2})?/[\w.@%+~-]+(?:/[\w.@%+~-]*)*|[A-Za-z]:\\[\w.@%+~\\-]+)"),
    ("uuid", r"\b[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b"),
    ("hash", r"\b(?=[A-Fa-f]{0,63}\d)[0-9A-Fa-f]{16,128}\b"),
)  # fmt: skip

_GRAMMAR = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _PATTERNS), re.ASCII)
_URL_ENDINGS = ".,;:!?)]}»”’"


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
        found = found.rstrip(_URL_ENDINGS)
    return Literal(kind, found, Span(match.start(), match.start() + len(found)))
