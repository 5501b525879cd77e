"""The pair that checks look at: a source, its target, and what several checks need to know of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from hymt_local.literals import Literal, find_literals
from hymt_local.segment import Finding, Severity, Span, TokenGroup

Identify = Callable[[str], tuple[str, float] | None]
"""Tells the likeliest language of a text and how sure that is (0.0 to 1.0); None when it cannot be told."""

PLAIN_GROUPS = frozenset({TokenGroup.TEXT})


@dataclass(frozen=True)
class Pair:
    """A source text and what is said to be its translation."""

    source: str
    target: str
    source_lang: str | None = None
    """A tag of the catalog; None leaves out what depends on it."""
    target_lang: str | None = None
    groups: frozenset[TokenGroup] = PLAIN_GROUPS
    """What counts as a placeholder."""
    context: tuple[str, ...] = ()
    """What the model was shown besides the source."""
    identify: Identify | None = None
    """None leaves out what needs language identification."""

    @cached_property
    def source_literals(self) -> list[Literal]:
        """Placeholders, addresses and the like of the source."""
        return find_literals(self.source, self.groups)

    @cached_property
    def target_literals(self) -> list[Literal]:
        """Those of the target."""
        return find_literals(self.target, self.groups)

    @cached_property
    def source_words(self) -> str:
        """The source with a space in place of each literal."""
        return _blanked(self.source, self.source_literals)

    @cached_property
    def target_words(self) -> str:
        """The target with spaces in place of each literal, as many as it is long: positions stay."""
        return _blanked(self.target, self.target_literals)


def error(code: str, message: str, *, span: Span | None = None, remedy: str = "") -> Finding:
    """Return what makes a target unusable."""
    return Finding(code, Severity.ERROR, message, span, remedy)


def warning(code: str, message: str, *, span: Span | None = None, remedy: str = "") -> Finding:
    """Return what somebody should look at."""
    return Finding(code, Severity.WARNING, message, span, remedy)


Check = Callable[[Pair], Iterable[Finding]]


def _blanked(text: str, literals: Sequence[Literal]) -> str:
    parts: list[str] = []
    position = 0
    for literal in literals:
        parts += (text[position : literal.span.start], " " * len(literal.text))
        position = literal.span.end
    return "".join([*parts, text[position:]])
