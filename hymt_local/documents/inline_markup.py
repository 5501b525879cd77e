"""Tags inside a text as protected spans: which of them open, which close, which stand alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hymt_local.segment import ProtectedSpan, Span, TokenKind


@dataclass(frozen=True, slots=True)
class Markup:
    """One tag, placeholder or bracket of a text."""

    span: Span
    opens: str = ""
    """The name that a later `closes` must have; empty for what does not open anything."""
    closes: str = ""


def protected_spans(text: str, markup: Sequence[Markup]) -> tuple[ProtectedSpan, ...]:
    """Return the spans of `markup`, which is in order and without overlap.

    What opens and closes is joined in pairs that nest. Whatever has no partner, crosses another pair, or has no text
    inside, stands alone.
    """
    partners = _partners(text, markup)
    spans = []
    for position, item in enumerate(markup):
        partner = partners.get(position)
        if partner is None:
            spans.append(ProtectedSpan(item.span))
        else:
            kind = TokenKind.OPEN if partner > position else TokenKind.CLOSE
            spans.append(ProtectedSpan(item.span, kind, pair=min(position, partner) + 1))
    return tuple(spans)


def _partners(text: str, markup: Sequence[Markup]) -> dict[int, int]:
    """Return the position of the partner of each position that has one."""
    opened: list[int] = []
    n_open: dict[str, int] = {}
    partners: dict[int, int] = {}
    for position, item in enumerate(markup):
        if item.opens:
            opened.append(position)
            n_open[item.opens] = n_open.get(item.opens, 0) + 1
        elif n_open.get(item.closes):
            partner = _pop(opened, n_open, markup, name=item.closes)
            if text[markup[partner].span.end : item.span.start].strip():
                partners |= {partner: position, position: partner}
    return partners


def _pop(opened: list[int], n_open: dict[str, int], markup: Sequence[Markup], *, name: str) -> int:
    """Take the latest opened `name` and what was opened after it."""
    while True:
        position = opened.pop()
        n_open[markup[position].opens] -= 1
        if markup[position].opens == name:
            return position
