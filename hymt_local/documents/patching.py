"""Replace spans of a text and leave every other character as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hymt_local.segment import Span


@dataclass(frozen=True, slots=True)
class Patch:
    """The new text of one span; an empty span inserts."""

    span: Span
    text: str


def in_order(patches: Iterable[Patch]) -> list[Patch]:
    """Return patches in the order of the text, as `apply_patches` wants them."""
    return sorted(patches, key=lambda patch: (patch.span.start, patch.span.end))


def apply_patches(text: str, patches: Sequence[Patch]) -> str:
    """Return `text` with these spans replaced.

    Raises:
        ValueError: the patches are not in order, overlap, or reach beyond the text.
    """
    parts = []
    position = 0
    for patch in patches:
        if not position <= patch.span.start <= patch.span.end <= len(text):
            raise ValueError(f"patch {patch.span} of a text of {len(text)} after position {position}")
        parts += [text[position : patch.span.start], patch.text]
        position = patch.span.end
    return "".join([*parts, text[position:]])
