"""Services that answer the units of a document at once: what the tests of document jobs are built from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hymt_local.document_jobs.events import (
    DocumentEvent,
    DocumentFailed,
    DocumentFinished,
    DocumentOptions,
    DocumentReport,
    DocumentTask,
)
from hymt_local.document_jobs.run import run_document
from hymt_local.documents.base import Languages
from hymt_local.errors import ErrorReport, HymtError, SegmentRejectedError
from hymt_local.events import Cancelled, Failed, Finished, Origin, SegmentDone, Started, TokenUsage, TranslationRequest
from hymt_local.jobs import TranslationJob
from hymt_local.segment import UnitText

Answer = Callable[[UnitText], str]
LINES = [f"Sentence number {n}.\n\n" for n in range(700)]


def bracketed(unit: UnitText) -> str:
    return f"⟦{unit.text}⟧"


class UnitsService:
    """Answers each unit by a function; one that raises HymtError fails it. Records what it was asked.

    Args:
        answer: From a unit to its target.
        n_batches: Batches that are answered; the later ones are cancelled. None answers all.
    """

    def __init__(self, answer: Answer = bracketed, *, n_batches: int | None = None, detected: str = "en") -> None:
        self.requests: list[TranslationRequest] = []
        self.n_cancelled = 0
        self.warnings: tuple[str, ...] = ()
        self._answer = answer
        self._n_batches = n_batches
        self._detected = detected

    @property
    def asked(self) -> list[str]:
        return [unit.text for request in self.requests for unit in request.units]

    def submit(self, request: TranslationRequest) -> TranslationJob:
        job = TranslationJob(request, cancel=self._cancel)
        if self._n_batches is not None and len(self.requests) >= self._n_batches:
            job.put(Cancelled())
            return job
        self.requests.append(request)
        source_lang = request.source_lang or self._detected
        job.put(Started("fake", "test", source_lang, request.target_lang, None, len(request.units)))
        results = [self._settle(index, unit) for index, unit in enumerate(request.units)]
        for result in results:
            job.put(result)
        job.put(self._last(results, request, source_lang=source_lang))
        return job

    def close(self) -> None:
        pass

    def _cancel(self, job: TranslationJob) -> None:
        self.n_cancelled += not job.done
        job.put(Cancelled())

    def _settle(self, index: int, unit: UnitText) -> SegmentDone:
        try:
            return SegmentDone(index, unit.text, self._answer(unit), Origin.MODEL, TokenUsage(output_tokens=1))
        except HymtError as error:
            return SegmentDone(index, unit.text, unit.text, Origin.SOURCE, error=error.report())

    def _last(
        self, results: Sequence[SegmentDone], request: TranslationRequest, *, source_lang: str
    ) -> Finished | Failed:
        failed = tuple(result for result in results if result.error)
        if len(failed) == len(results) and failed[0].error:
            return Failed(failed[0].error)
        return Finished("", source_lang, request.target_lang, "fake", "", Origin.MODEL, TokenUsage(), 0.0, failed)


class BrokenService(UnitsService):
    """Its engine fails before anything is settled."""

    def __init__(self, error: HymtError) -> None:
        super().__init__()
        self._report: ErrorReport = error.report()

    def submit(self, request: TranslationRequest) -> TranslationJob:
        job = TranslationJob(request, cancel=self._cancel)
        job.put(Failed(self._report))
        return job


def refusing(*texts: str) -> Answer:
    """Return an answer that fails on some texts."""

    def answer(unit: UnitText) -> str:
        if unit.text in texts:
            raise SegmentRejectedError("it was refused", hint="try again")
        return bracketed(unit)

    return answer


def options(source_lang: str | None = "en", target_lang: str = "fr", **changes: object) -> DocumentOptions:
    return DocumentOptions(Languages(source_lang, target_lang), **changes)  # type: ignore[arg-type]


def task(source: Path, target: Path | None = None, **changes: object) -> DocumentTask:
    changes.setdefault("options", options())
    return DocumentTask(source, target or source.with_suffix(f".fr{source.suffix}"), **changes)  # type: ignore[arg-type]


def events_of(job: DocumentTask, service: UnitsService, state_dir: Path | None) -> list[DocumentEvent]:
    return list(run_document(job, service, state_dir=state_dir))


def finished(events: list[DocumentEvent]) -> DocumentReport:
    last = events[-1]
    assert isinstance(last, DocumentFinished), last
    return last.report


def refusal(events: list[DocumentEvent]) -> DocumentFailed:
    last = events[-1]
    assert isinstance(last, DocumentFailed), last
    return last
