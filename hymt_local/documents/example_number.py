"""The number that stands for a placeholder while a plural form is translated: "5 files" for "%d files".

A model inflects what it reads; behind a mask there is no number to agree with.
"""

from __future__ import annotations

import re

from hymt_local.segment import Span

# Digits of any script, in groups or not, with or without a fraction.
_NUMBER = re.compile(r"\d+(?:[ .,'’\u00a0\u202f\u066c]\d{3})*(?:[.,\u066b]\d+)?")
_MAX_DIGITS = 40
"""More than any example has, and few enough to be read as a number."""
_FRACTION = re.compile(r"[.,\u066b](?!\d{3}(?:\D|$))")


def number_spans(text: str, number: str, *, kept: re.Pattern[str]) -> list[Span]:
    """Return where `number` stands in a text, in any digits and with any grouping.

    Args:
        text: A source or its translation.
        number: In ASCII, with a point before a fraction.
        kept: Placeholders; a number inside one is not looked at.
    """
    spans, position = [], 0
    for match in [*kept.finditer(text), None]:
        end = match.start() if match else len(text)
        spans += [
            Span(found.start(), found.end())
            for found in _NUMBER.finditer(text, position, end)
            if len(found.group()) <= _MAX_DIGITS and _canonical(found.group(), is_fraction="." in number) == number
        ]
        position = match.end() if match else end
    return spans


def replace_number(text: str, number: str, replacement: str, *, kept: re.Pattern[str]) -> str | None:
    """Return `text` with the number replaced, or None unless it stands there exactly once."""
    spans = number_spans(text, number, kept=kept)
    if len(spans) != 1:
        return None
    return f"{text[: spans[0].start]}{replacement}{text[spans[0].end :]}"


def _canonical(found: str, *, is_fraction: bool) -> str:
    """Return a number as Python writes it."""
    parts = _FRACTION.split(found) if is_fraction else [found]
    digits = [str(int(re.sub(r"\D", "", part) or "0")) for part in parts]
    return ".".join(digits)
