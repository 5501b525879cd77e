"""The words of a document job: what is asked, and the events that answer. All values are frozen and picklable.

Every job yields `DocumentStarted`, then any number of `UnitSettled` and `DocumentProgress`, and exactly one of
`DocumentFinished`, `DocumentSkipped`, `DocumentFailed`, last. A refused document yields the last one only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hymt_local.documents.base import Languages
from hymt_local.errors import ErrorReport
from hymt_local.events import Origin, Pivot, Priority, SamplingParams, TokenUsage
from hymt_local.segment import Attempt, Finding


@dataclass(frozen=True, slots=True)
class DocumentOptions:
    """How one document is translated."""

    languages: Languages
    model: str | None = None
    """A reference, as in `TranslationRequest`."""
    sampling: SamplingParams | None = None
    use_cache: bool = True
    format_name: str | None = None
    """None means: by extension, else by content."""
    is_to_utf8: bool = False
    """The output is in UTF-8 whatever the document is in."""
    encoding: str | None = None
    """What the document is in, whatever it says itself; the output is in UTF-8 then."""
    is_bilingual: bool = False
    sets_metadata: bool = True
    """Language and direction attributes follow the target; not when every target equals its source."""
    marks_fuzzy: bool = True
    """Translations are marked as in need of review, where the format has such a mark."""
    protect: tuple[str, ...] = ()
    """Names and terms that stay as they are."""
    keeps_translated: bool = True
    """Units that are in the target language already stay as they are."""
    pivot: Pivot = Pivot.OFF
    priority: Priority = Priority.DOCUMENT


@dataclass(frozen=True, slots=True)
class DocumentTask:
    """One file to translate into another."""

    source_path: Path
    target_path: Path
    options: DocumentOptions
    model_identity: str = ""
    """What the model is known by beside its name, such as the digest of its file: a journal fits this model only."""
    replaces: bool = False
    """An existing target may be overwritten."""
    resumes: bool = False
    """What an earlier run has left is used: its targets, and a target file that it wrote with failed units."""


@dataclass(frozen=True, slots=True)
class DocumentStarted:
    """The document was read."""

    format: str
    n_units: int
    n_known: int
    """Units whose targets an earlier run has left."""
    characters: int
    notes: tuple[str, ...] = ()
    """What the user should know, one line each."""


@dataclass(frozen=True, slots=True)
class UnitSettled:
    """One unit has its target. With `error` set, `target` is the source text and stays in the document."""

    id: str
    location: str
    source: str
    target: str
    origin: Origin
    error: ErrorReport | None = None
    findings: tuple[Finding, ...] = ()
    is_vetoed: bool = False
    """The translator was content, the format was not."""
    attempts: tuple[Attempt, ...] = ()
    """Every generation that was made for it."""

    @property
    def has_history(self) -> bool:
        """Whether it took more than one attempt, or none was good."""
        return len(self.attempts) > 1 or self.error is not None


@dataclass(frozen=True, slots=True)
class DocumentProgress:
    """How far it is; a few times a second. Or, before there is anything, how far the model is read."""

    done_units: int
    n_units: int
    done_characters: int
    characters: int
    rate: float | None
    """Characters of source text per second of this run, as the model does them; None before anything is known."""
    eta_s: float | None
    loading: float | None = None
    """Share of the model that is loaded, 0.0 to 1.0, while it is loading."""


@dataclass(frozen=True, slots=True)
class FailedUnit:
    """A unit that kept its source text."""

    id: str
    location: str
    source: str
    error: ErrorReport
    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True)
class DocumentReport:
    """What became of one document. Unit counts add up: known + cached + passed through + translated + failed."""

    name: str
    format: str
    model: str
    """Empty when no unit needed one."""
    source_lang: str | None
    """None when nothing was there to detect it from."""
    target_lang: str
    n_units: int
    words: int
    """Of the source; a character of an unspaced script counts as one."""
    characters: int
    from_journal: int
    """Settled by an earlier run of the same job."""
    from_cache: int
    from_model: int
    passed_through: int
    retried: int
    """Settled in this run after they had failed in an earlier one."""
    failed: tuple[FailedUnit, ...]
    findings: Mapping[str, int]
    """Code -> how often, of units that were translated."""
    n_warnings: int
    """Findings that are more than information."""
    usage: TokenUsage = field(default_factory=TokenUsage)
    elapsed_s: float = 0.0
    rate: float | None = None
    """Characters per second, as in DocumentProgress."""
    notes: tuple[str, ...] = ()
    pivot_lang: str | None = None
    """The language that the translation went through, if any."""


@dataclass(frozen=True, slots=True)
class DocumentFinished:
    """The translated document, complete but for the units that failed."""

    report: DocumentReport
    data: bytes


@dataclass(frozen=True, slots=True)
class DocumentSkipped:
    """An earlier run has finished it, and its target is as it was left."""

    target_path: Path


@dataclass(frozen=True, slots=True)
class DocumentFailed:
    """No document came out; an existing target is as it was."""

    error: ErrorReport
    n_kept: int = 0
    """Units that a resumed run will not have to translate again."""


DocumentEvent = DocumentStarted | UnitSettled | DocumentProgress | DocumentFinished | DocumentSkipped | DocumentFailed
LastDocumentEvent = DocumentFinished | DocumentSkipped | DocumentFailed
