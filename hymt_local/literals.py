"""Literals: the parts of a text that are not language and must come through unchanged.

One inventory for all: what has nothing else in it needs no model (`segmenter`), what is in a source is protected on its
way through the model (`protect`) and must be in its target (`checks`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from hymt_local.segment import Span, TokenGroup

# Ordered: at one position the first match wins. Every repetition is bounded or cannot overlap its neighbour, so that a
# search takes linear time. ASCII matching: letters of other scripts beside a literal do not become part of it.
_ADDRESS = r"[^\s<>\"'`\u00a0\u2000-\u200b\u2028\u2029\u202f\u2066-\u2069\u3000-\u303f\uff00-\uffef]+"
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
    "version": r"\bv\d{1,4}(?:\.\d{1,6}){1,3}(?:-[0-9A-Za-z]{1,20}(?:\.\d{1,6})?)?\b",
    "mask": r"⟦\d{1,4}⟧|\[\[\d{1,4}\]\]|\bZXQ\d{1,4}QXZ\b",  # other programs' masks
    "isolate": r"[\u2066-\u2069]",
    # What only the format of a document can tell.
    "c_format": r"%(?:\d{1,2}\$)?[-+#0 ']{0,5}(?:\*|\d{1,3})?(?:\.(?:\*|\d{1,3})?)?(?:hh|h|ll|l|q|j|z|t|L)?"
    r"[diouxXeEfFgGaAcCsSpnm%@]|%<PRI[A-Za-z0-9]{1,10}>",
    "escape": r"\\[nrt\"\\]",
    "python_format": r"%(?:\([^()\s]{1,60}\))?[-+#0 ]{0,5}(?:\*|\d{1,3})?(?:\.(?:\*|\d{1,3}))?[hlL]?"
    r"[diouxXeEfFgGcrsa%]",
    "python_brace": r"\{\{|\}\}|\{[^{}\n]{0,100}(?:\{[^{}\n]{0,40}\}[^{}\n]{0,40})?\}",
    "nesting": r"\$t\((?:[^()\n]|\([^()\n]{0,100}\)){1,200}\)",
    "link": r"@(?:\.[a-z]{1,20})?:(?:\{'[^'\n]{1,100}'\}|\([\w.-]{1,100}\)|[A-Za-z_][\w-]{0,60}(?:\.[\w-]{1,60}){0,8})",
    "icu": r"\{\s?[A-Za-z0-9_]\w{0,60}\s?(?:,\s?[^{},\n]{1,60}){0,2}\}",
    "laravel": r"(?<![\w:]):[A-Za-z_]\w{0,60}\b",
}
_PROSE = (
    *("code", "url", "email", "control", "tag", "entity", "mustache", "shell", "brace", "printf", "dunder", "path"),
    *("uuid", "hash", "version", "mask", "isolate"),
)
_ANY_MESSAGE = ("url", "email", "control", "tag", "entity", "isolate")
_KINDS = {
    TokenGroup.TEXT: _PROSE,
    TokenGroup.C_FORMAT: (*_ANY_MESSAGE, "c_format", "escape"),
    TokenGroup.PYTHON_FORMAT: (*_ANY_MESSAGE, "python_format"),
    TokenGroup.PYTHON_BRACE: (*_ANY_MESSAGE, "python_brace"),
    TokenGroup.JSON_CATALOGUE: (*_ANY_MESSAGE, "mustache", "nesting", "link", "shell", "icu", "brace", "printf"),
    TokenGroup.LARAVEL: ("laravel",),
    TokenGroup.NONE: (),
}
_TEXT_ONLY = frozenset({TokenGroup.TEXT})
_MAY_BEGIN = r"(?=[\w`.+<&{}$%~/\\@:\[\u2066-\u2069⟦-])(?!\B[A-Za-z0-9])"
"""Where a literal can begin: few places of a text, of which each is tried with every pattern."""
_ADDRESS_ENDINGS = ".,;:!?)]}»”’"


@dataclass(frozen=True, slots=True)
class Literal:
    """One literal and where it stands."""

    kind: str
    """`code`, `url`, `email`, `control`, `tag`, `entity`, `path`, `uuid`, `hash`, `version`, `isolate`, or a family of
    placeholders."""
    text: str
    span: Span


def find_literals(text: str, groups: frozenset[TokenGroup] = _TEXT_ONLY) -> list[Literal]:
    """Return the literals of `text` in order, without overlaps; `groups` says which forms count."""
    grammar = _grammar(groups)
    return [_literal(match) for match in grammar.finditer(text)] if grammar else []


def without_literals(text: str, groups: frozenset[TokenGroup] = _TEXT_ONLY) -> str:
    """Return `text` with a space in place of each literal."""
    grammar = _grammar(groups)
    return grammar.sub(" ", text) if grammar else text


@cache
def _grammar(groups: frozenset[TokenGroup]) -> re.Pattern[str] | None:
    """Return one pattern for several groups, or None when nothing counts."""
    wanted = {kind for group in groups for kind in _KINDS[group]}
    patterns = [f"(?P<{kind}>{pattern})" for kind, pattern in _PATTERNS.items() if kind in wanted]
    if not patterns:
        return None
    return re.compile(f"{_MAY_BEGIN}(?:{'|'.join(_in_order(patterns, groups))})", re.ASCII)


def _in_order(patterns: list[str], groups: frozenset[TokenGroup]) -> list[str]:
    """Put what a document's format knows before what prose only suggests."""
    if groups <= _TEXT_ONLY:
        return patterns
    known = ("(?P<c_format>", "(?P<python_format>", "(?P<python_brace>", "(?P<nesting>", "(?P<icu>")
    return sorted(
        patterns, key=lambda pattern: (not pattern.startswith(("(?P<url>", "(?P<tag>")), not pattern.startswith(known))
    )


def _literal(match: re.Match[str]) -> Literal:
    kind, found = str(match.lastgroup), match.group()
    if kind == "url":  # the punctuation of the sentence is not part of the address
        found = found.rstrip(_ADDRESS_ENDINGS)
    return Literal(kind, found, Span(match.start(), match.start() + len(found)))
