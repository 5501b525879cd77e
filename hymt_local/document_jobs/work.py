"""The work on one document, without any waiting: which units are asked next, and what becomes of their answers.

Runs in one thread; the drivers in `run` feed it with the events of translation jobs.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import msgspec

from hymt_local.document_jobs.events import DocumentOptions, DocumentReport, FailedUnit, UnitSettled
from hymt_local.documents.base import (
    Document,
    Languages,
    Merged,
    MergeOptions,
    ReviewingDocument,
    SelectiveDocument,
    Unit,
)
from hymt_local.errors import CancelledError, ErrorReport, SegmentRejectedError, error_of
from hymt_local.events import (
    Cancelled,
    Event,
    Failed,
    Finished,
    Origin,
    SegmentDone,
    Started,
    TokenUsage,
    TranslationRequest,
)
from hymt_local.segment import Finding, Severity, UnitText

BATCH_UNITS = 256
BATCH_CHARACTERS = 100_000
"""A batch ends before whichever comes first: what is under way when a process dies is done again."""
UNDETERMINED = "und"
_MAX_NOTES = 10
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_HALF_CHARACTER_ERROR = SegmentRejectedError("the text holds half a character", hint="mend it by hand").report()

_WORD = re.compile(
    r"[\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
    r"|[^\W\u2e80-\u33ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)


@dataclass(frozen=True, slots=True)
class Known:
    """What earlier runs of the same job have left."""

    targets: Mapping[str, str] = field(default_factory=dict)
    failed: Set[str] = frozenset()
    vetoed: Set[str] = frozenset()
    """Of the failed: those whose answer the format refused, so that the cache must not give it again."""
    source_lang: str | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Units that are translated by one request; equal ones are asked once."""

    request: TranslationRequest
    groups: tuple[tuple[Unit, ...], ...]
    """One per unit of the request, in its order."""


class DocumentWork:
    """Hands out batches and collects their results.

    Args:
        document: The document as it was read.
        options: How it is translated.
        known: What need not be asked again.
    """

    def __init__(self, document: Document, options: DocumentOptions, *, known: Known | None = None) -> None:
        self._document = document
        self._options = options
        self._known = known or Known()
        self.units: Sequence[Unit] = tuple(document.units)
        self._targets = dict(self._sound_targets())
        self.n_known = len(self._targets)
        self.characters = sum(len(unit.source.text) for unit in self.units)
        self.done_characters = sum(len(unit.source.text) for unit in self.units if unit.id in self._targets)
        self._source_lang = options.languages.source_lang or self._known.source_lang
        self._is_detecting = False
        self.n_under_way = 0
        """Texts that were asked for and are not settled."""
        self._settled = {each.id: each for each in self._unaskable()}
        self.done_characters += sum(len(each.source) for each in self._settled.values())
        self._waiting = deque(self._groups())
        self._model = ""
        self._pivot_lang: str | None = None
        self._doubt = ""
        self._usage = TokenUsage()

    @property
    def n_done(self) -> int:
        """Units that are settled, failed ones included."""
        return self.n_known + len(self._settled)

    @property
    def source_lang(self) -> str | None:
        """The source language; None until it is detected."""
        return self._source_lang

    def _sound_targets(self) -> Iterator[tuple[str, str]]:
        """Yield the known targets that the document can hold: somebody may have been at the journal.

        A unit whose run ended just before it was settled has the target of those that were asked with it.
        """
        known = self._known
        shared = {alike(unit): known.targets[unit.id] for unit in reversed(self.units) if unit.id in known.targets}
        for unit in self.units:
            is_open = unit.id not in known.failed
            target = known.targets.get(unit.id, shared.get(alike(unit)) if is_open else None)
            if target is not None and not _HALF_CHARACTER.search(target) and not self._document.fault(unit, target):
                yield unit.id, target

    def _unaskable(self) -> Iterator[UnitSettled]:
        """Yield the units whose text no request can hold, failed; the others of their batch are asked."""
        for unit in self.units:
            text = unit.source.text
            if unit.id not in self._targets and _HALF_CHARACTER.search(text):
                yield UnitSettled(unit.id, unit.location, text, text, Origin.SOURCE, _HALF_CHARACTER_ERROR)

    def _groups(self) -> Iterator[tuple[bool, tuple[Unit, ...]]]:
        """Collect the open units by what is asked, those that bypass the cache apart, in order of first appearance."""
        groups: dict[tuple[bool, UnitText], list[Unit]] = {}
        for unit in self.units:
            if unit.id not in self._targets and unit.id not in self._settled:
                groups.setdefault((unit.id in self._known.vetoed, alike(unit)), []).append(unit)
        for (is_vetoed, _), units in groups.items():
            yield is_vetoed, tuple(units)

    def next_batch(self) -> Batch | None:
        """Return what is to be asked next; None when nothing is left, or while the source language is being detected.

        All batches must be translated from one language: the first one decides it.
        """
        if not self._waiting or self._is_detecting:
            return None
        bypasses = self._waiting[0][0]
        groups: list[tuple[Unit, ...]] = []
        characters = 0
        while self._waiting and len(groups) < BATCH_UNITS and self._waiting[0][0] == bypasses:
            size = len(self._waiting[0][1][0].source.text)
            if groups and characters + size > BATCH_CHARACTERS:
                break
            characters += size
            groups.append(self._waiting.popleft()[1])
        self._is_detecting = self._source_lang is None
        self.n_under_way += len(groups)
        return Batch(self._request(groups, use_cache=self._options.use_cache and not bypasses), tuple(groups))

    def give_up_detecting(self) -> None:
        """Go on although the language is not known; each batch then has its own."""
        self._is_detecting = False

    def _request(self, groups: Sequence[tuple[Unit, ...]], *, use_cache: bool) -> TranslationRequest:
        options = self._options
        return TranslationRequest(
            text="",
            target_lang=options.languages.target_lang,
            source_lang=self._source_lang,
            model=options.model,
            priority=options.priority,
            sampling=options.sampling,
            use_cache=use_cache,
            protect=options.protect,
            keeps_translated=options.keeps_translated,
            pivot=options.pivot,
            units=tuple(units[0].source for units in groups),
        )

    def take(self, batch: Batch, event: Event) -> Iterator[UnitSettled]:
        """Take one event of a batch's job; yields the units that it settles.

        Raises:
            HymtError: the job has ended before it settled its units.
        """
        match event:
            case Started():
                self._model = event.model
                self._pivot_lang = event.pivot_lang or self._pivot_lang
                if event.source_lang != UNDETERMINED:
                    self._source_lang = self._source_lang or event.source_lang
                self._is_detecting = False
                self._doubt = self._doubt or event.doubt
            case SegmentDone():
                self._usage += event.usage
                self.n_under_way -= 1
                for unit in batch.groups[event.segment]:
                    yield self._settle(unit, event)
            case Finished() | Failed() | Cancelled():
                self._check_settled(batch, event)

    def _settle(self, unit: Unit, done: SegmentDone) -> UnitSettled:
        error = done.error
        fault = None if error else self._document.fault(unit, done.target)
        if fault:
            error = SegmentRejectedError(
                f"the translation does not fit the document: {fault}", hint="translate this part by hand"
            ).report()
        settled = UnitSettled(
            id=unit.id,
            location=unit.location,
            source=unit.source.text,
            target=unit.source.text if error else done.target,
            origin=Origin.SOURCE if error else done.origin,
            error=error,
            findings=done.findings if error else (*done.findings, *self._review(unit, done.target)),
            is_vetoed=fault is not None,
            attempts=done.attempts,
        )
        if unit.id not in self._settled:
            self.done_characters += len(unit.source.text)
        self._settled[unit.id] = settled
        if error is None:
            self._targets[unit.id] = done.target
        return settled

    def _review(self, unit: Unit, target: str) -> tuple[Finding, ...]:
        return self._document.findings(unit, target) if isinstance(self._document, ReviewingDocument) else ()

    def _check_settled(self, batch: Batch, event: Event) -> None:
        """A job whose units have all failed ends with Failed; that is the units' affair and not the document's."""
        open_units = [units[0].id for units in batch.groups if units[0].id not in self._settled]
        if isinstance(event, Cancelled):
            raise CancelledError("interrupted")
        if isinstance(event, Failed) and open_units:
            raise error_of(event.error)
        assert not open_units, f"a job finished without settling {len(open_units)} units"

    def merge(self) -> Merged:
        """Return the document with all targets that there are."""
        unchanged = all(self._targets.get(unit.id, unit.source.text) == unit.source.text for unit in self.units)
        options = MergeOptions(
            languages=Languages(self._source_lang, self._options.languages.target_lang),
            is_bilingual=self._options.is_bilingual,
            sets_metadata=self._options.sets_metadata and not unchanged,
            marks_fuzzy=self._options.marks_fuzzy,
        )
        return self._document.merge(self._targets, options)

    def report(self, merged: Merged, *, name: str, format_name: str) -> DocumentReport:
        """Return what became of the units; times and notes are for the caller to add."""
        settled = [self._after(unit, merged) for unit in self.units if unit.id in self._settled]
        origins = Counter(each.origin for each in settled if each.error is None)
        failed = [*(each for each in settled if each.error), *self._rejected(merged)]
        findings = [finding for each in settled if each.error is None for finding in each.findings]
        return DocumentReport(
            name=name,
            format=format_name,
            model=self._model,
            source_lang=self._source_lang,
            target_lang=self._options.languages.target_lang,
            n_units=len(self.units),
            words=count_words(unit.source.text for unit in self.units),
            characters=self.characters,
            from_journal=self.n_known - sum(unit_id not in self._settled for unit_id in merged.rejected),
            from_cache=origins[Origin.CACHE],
            from_model=origins[Origin.MODEL],
            passed_through=origins[Origin.SOURCE],
            retried=sum(each.id in self._known.failed for each in settled if each.error is None),
            failed=tuple(
                FailedUnit(each.id, each.location, each.source, each.error, each.attempts)
                for each in failed
                if each.error
            ),
            findings=dict(sorted(Counter(finding.code for finding in findings).items())),
            n_warnings=sum(finding.severity is not Severity.INFO for finding in findings),
            usage=self._usage,
            pivot_lang=self._pivot_lang,
            notes=tuple(self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        if self._doubt:
            yield self._doubt
        left = self._document.left_alone if isinstance(self._document, SelectiveDocument) else ()
        for each in left[:_MAX_NOTES]:
            yield f"not translated: {each}"
        if len(left) > _MAX_NOTES:
            yield f"{len(left) - _MAX_NOTES} more texts are not translated for such reasons"

    def _after(self, unit: Unit, merged: Merged) -> UnitSettled:
        """Return how a unit ended: the document may have been unable to hold its target."""
        settled = self._settled[unit.id]
        if unit.id not in merged.rejected:
            return settled
        return replace(settled, target=settled.source, error=_cannot_be_written(merged.rejected[unit.id]))

    def _rejected(self, merged: Merged) -> Iterator[UnitSettled]:
        """Yield the units of earlier runs whose targets the document could not hold."""
        for unit in self.units:
            if unit.id in merged.rejected and unit.id not in self._settled:
                text = unit.source.text
                error = _cannot_be_written(merged.rejected[unit.id])
                yield UnitSettled(unit.id, unit.location, text, text, Origin.SOURCE, error)


def alike(unit: Unit) -> UnitText:
    """Return what units translated once have in common: all but their context, of which the first one's counts.

    The same line then reads the same wherever it stands, as it would from a person, and costs the model nothing more.
    """
    return msgspec.structs.replace(unit.source, context=()) if unit.source.context else unit.source


def count_words(texts: Iterable[str]) -> int:
    """Return how many words texts have; a character of an unspaced script counts as one."""
    return sum(len(_WORD.findall(text)) for text in texts)


def _cannot_be_written(reason: str) -> ErrorReport:
    hint = "`hymt file --utf8` writes UTF-8" if "encoding" in reason else ""
    return SegmentRejectedError(f"the translation cannot be written: {reason}", hint=hint).report()
