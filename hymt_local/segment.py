"""The nouns of a translation: spans of text and the segments that are translated one by one."""

from __future__ import annotations

from collections.abc import Container
from enum import StrEnum

import msgspec


class Span(msgspec.Struct, frozen=True):
    """A half-open range `[start, end)` of code points in one text."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """Return the part of `text` that this span covers."""
        return text[self.start : self.end]


class TokenKind(StrEnum):
    """How a protected part of a text must come back."""

    ATOMIC = "atomic"
    """Exactly as often, anywhere."""
    OPEN = "open"
    """Before the CLOSE of the same `pair`, around something, and properly nested with the other pairs."""
    CLOSE = "close"


class ProtectedSpan(msgspec.Struct, frozen=True):
    """A part of a text that comes back character for character, untranslated: a placeholder, tag, code or name."""

    span: Span
    kind: TokenKind = TokenKind.ATOMIC
    pair: int = 0
    """Joins an OPEN with its CLOSE; any number that no other pair of the text has."""


class TokenGroup(StrEnum):
    """Which parts of a text are placeholders, beyond those that its format has found itself (`ProtectedSpan`)."""

    TEXT = "text"
    """Prose: addresses, e-mails, paths, code, and what can hardly be anything but a placeholder."""
    C_FORMAT = "c-format"
    PYTHON_FORMAT = "python-format"
    PYTHON_BRACE = "python-brace-format"
    JSON_CATALOGUE = "json-catalogue"
    """`{x}`, `{{x}}`, `${x}`, `%s`, `$t(...)`, `@:link`."""
    LARAVEL = "laravel"
    """`:name`; only where it is asked for, since prose has colons too."""
    NONE = "none"
    """Only the spans that are given."""


class UnitText(msgspec.Struct, frozen=True):
    """One unit of a document as the translator takes it: translated as a whole, its lines are not separate texts."""

    text: str
    """Without outer whitespace."""
    protected: tuple[ProtectedSpan, ...] = ()
    """In order, without overlap."""
    groups: frozenset[TokenGroup] = frozenset({TokenGroup.TEXT})
    context: tuple[str, ...] = ()
    """Source texts that stand before it (headings, earlier sentences): shown to models that can use them, never part of
    the answer."""


class GuidanceKind(StrEnum):
    """What a model can be told beside the text."""

    TERMS = "terms"
    CONTEXT = "context"
    STYLE = "style"


class Term(msgspec.Struct, frozen=True):
    """A term and the translation to use for it."""

    source: str
    target: str


class Guidance(msgspec.Struct, frozen=True):
    """What a model is told beside a text, in the user's own words: it shapes the translation and is no part of it."""

    terms: tuple[Term, ...] = ()
    """Only those that stand in a text are shown with it."""
    context: str = ""
    """What the text is about, or what stands before it."""
    style: str = ""
    """How the translation is to sound."""

    @property
    def kinds(self) -> tuple[GuidanceKind, ...]:
        """What it consists of; empty when there is nothing to say."""
        given = {GuidanceKind.TERMS: self.terms, GuidanceKind.CONTEXT: self.context, GuidanceKind.STYLE: self.style}
        return tuple(kind for kind, value in given.items() if value)

    def only(self, kinds: Container[GuidanceKind]) -> Guidance:
        """Return the part of these kinds."""
        return Guidance(
            self.terms if GuidanceKind.TERMS in kinds else (),
            self.context if GuidanceKind.CONTEXT in kinds else "",
            self.style if GuidanceKind.STYLE in kinds else "",
        )


NO_GUIDANCE = Guidance()


class Severity(StrEnum):
    """How grave a finding is."""

    ERROR = "error"
    """The output must not be used; the segment is tried again or stays source text."""
    WARNING = "warning"
    INFO = "info"


class Finding(msgspec.Struct, frozen=True):
    """What a check says of one target."""

    code: str
    """Stable and short: `empty`, `placeholder`, `numbers` ..."""
    severity: Severity
    message: str
    """One line."""
    span: Span | None = None
    """Where in the target; None for the whole of it, or for what is missing."""
    remedy: str = ""
    """What the user may do; empty when the message says it."""


class Attempt(msgspec.Struct, frozen=True):
    """One generation for a segment, as it can be looked up later."""

    prompt: str
    """Which prompt of the model's card, and its language: `default.zh`."""
    masks: str
    """How protected parts looked to the model: `keep`, `tags`, `xml`."""
    temperature: float
    finish: str
    """Why it ended: `stop`, `length`, `cancelled`, or `loop`, `overlong`, `unsure`: it was ended."""
    failed: tuple[str, ...] = ()
    """Codes of the checks that refused it; empty for an answer that was taken."""


class Segment(msgspec.Struct, frozen=True):
    """One unit handed to the model.

    Law: over all segments of a text, `lead + source + trail` joined in order is that text, byte for byte.
    """

    index: int
    source: str
    """What the model sees: no outer whitespace; empty when the whole segment is whitespace."""
    lead: str = ""
    """Whitespace before the source, restored unchanged."""
    trail: str = ""
    """Whitespace and line ends after the source, restored unchanged."""
    translatable: bool = True
    """False for whitespace, numbers, emoji, URLs and the like, which pass through without an engine call."""

    def restored(self, target: str) -> str:
        """Return `target` between this segment's own outer whitespace."""
        return f"{self.lead}{target}{self.trail}"
