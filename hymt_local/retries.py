"""How often a segment is tried, and what a further attempt may change: all generations of one text differ."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MOST_GENERATIONS = 3
"""Of one text: what three ways have not given, more of them hardly give."""


class Change(StrEnum):
    """What another attempt at a refused answer changes."""

    CONTEXT = "context"
    """Without the context and the style that the answer repeats."""
    SAMPLING = "sampling"
    """The same prompt, sampled: not the same tokens again."""
    PROMPT = "prompt"
    """The instructions in the other language that the model knows them in."""
    MASKS = "masks"
    """Another way to hide protected parts; the last one splits the text at them."""
    SENTENCES = "sentences"
    """Each sentence alone: what loops or is cut off in a long text is not in a short one."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The budget of a segment, and the order in which changes are tried; each is tried where it can help."""

    generations: int = MOST_GENERATIONS
    """1 to 3."""
    order: tuple[Change, ...] = tuple(Change)
    """What is missing in it is never tried."""


DEFAULT_RETRIES = RetryPolicy()


def useful_changes(fault: str, *, has_tokens: bool, has_sentences: bool) -> frozenset[Change]:
    """Return what can mend an answer that was refused for this reason.

    Args:
        fault: Code of the check.
        has_tokens: The source has protected parts.
        has_sentences: It has more than one sentence.
    """
    if fault in TOKEN_FAULTS and has_tokens:
        return frozenset({Change.MASKS})
    if fault == CUT_OFF:
        return frozenset({Change.SENTENCES if has_sentences else Change.SAMPLING})
    if fault in _LENGTH_FAULTS:
        return frozenset({Change.SAMPLING, Change.SENTENCES})
    anything = frozenset({Change.SAMPLING, Change.PROMPT, Change.MASKS})
    return anything | {Change.CONTEXT} if fault == CONTEXT_LEAK else anything


TOKEN_FAULTS = frozenset({"placeholder", "tags"})
CUT_OFF = "cut_off"
CONTEXT_LEAK = "context_leak"
_LENGTH_FAULTS = frozenset({"loop", "truncated", "ratio"})
