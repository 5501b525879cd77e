"""The one choke point between text of others and a terminal: model output, source text, file names, error messages.

What comes out of `sanitize` can neither command a terminal (escape sequences, cursor moves, clipboard writes) nor
reorder what stands around it (unbalanced bidirectional controls).
"""

from __future__ import annotations

import re

REPLACEMENT = "\ufffd"

# C0 but tab and line feed, DEL, C1, and lone surrogates, which cannot be encoded for a terminal at all.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

_EMBEDDINGS = "\u202a\u202b"
_OVERRIDES = "\u202d\u202e"
_ISOLATES = "\u2066\u2067\u2068"
_POP_EMBEDDING = "\u202c"
_POP_ISOLATE = "\u2069"
_BIDI_CONTROL = re.compile(f"[{_EMBEDDINGS}{_OVERRIDES}{_ISOLATES}{_POP_EMBEDDING}{_POP_ISOLATE}]")


def sanitize(text: str) -> str:
    r"""Return `text` safe to show: no control but tab and line feed, and no direction that leaks out of its line.

    Other controls become U+FFFD, CR LF becomes LF. Per line, embeddings and isolates that are closed stay; unmatched
    ones and all overrides, which can make text read as its opposite, are removed. Joiners (ZWJ, ZWNJ) and the marks
    LRM and RLM stay. Applying it twice changes nothing.
    """
    safe = _UNSAFE.sub(REPLACEMENT, text.replace("\r\n", "\n"))
    if not _BIDI_CONTROL.search(safe):
        return safe
    return "\n".join(_balanced(line) for line in safe.split("\n"))


def _balanced(line: str) -> str:
    """Keep the bidirectional controls of one line that open and close; drop the others."""
    kept: set[int] = set()
    opened: list[tuple[int, str]] = []
    for match in _BIDI_CONTROL.finditer(line):
        position, control = match.start(), match.group()
        if control == _POP_EMBEDDING:
            kept.update(_close_embedding(opened, position))
        elif control == _POP_ISOLATE:
            kept.update(_close_isolate(opened, position))
        else:
            opened.append((position, control))
    return _BIDI_CONTROL.sub(lambda match: match.group() if match.start() in kept else "", line)


def _close_embedding(opened: list[tuple[int, str]], position: int) -> tuple[int, ...]:
    """Return the positions to keep: an isolate shields what was opened outside of it."""
    if not opened or opened[-1][1] in _ISOLATES:
        return ()
    start, control = opened.pop()
    return () if control in _OVERRIDES else (start, position)


def _close_isolate(opened: list[tuple[int, str]], position: int) -> tuple[int, ...]:
    """Return the positions to keep; embeddings still open inside the isolate end with it, unmatched."""
    if not any(control in _ISOLATES for _, control in opened):
        return ()
    while opened[-1][1] not in _ISOLATES:
        opened.pop()
    start, _ = opened.pop()
    return (start, position)
