"""Documents that are bytes: the same work without files."""

from __future__ import annotations

from collections.abc import AsyncIterator

from hymt_local.document_jobs.events import (
    DocumentEvent,
    DocumentFailed,
    DocumentFinished,
    DocumentStarted,
    UnitSettled,
)
from hymt_local.document_jobs.run import translate_bytes
from hymt_local.events import TranslationRequest
from hymt_local.jobs import TranslationJob
from tests.document_services import LINES, UnitsService, bracketed, options


async def last_of(events: AsyncIterator[DocumentEvent]) -> DocumentEvent:
    last = [event async for event in events]
    return last[-1]


async def test_bytes_are_translated_in_memory() -> None:
    data = "".join(LINES).encode()
    service = UnitsService()
    last = await last_of(translate_bytes(data, "notes.txt", options=options(), service=service))
    assert isinstance(last, DocumentFinished)
    assert last.data.decode() == "".join(f"⟦{line.strip()}⟧\n\n" for line in LINES)
    assert (last.report.name, len(service.requests)) == ("notes.txt", 3)


async def test_bytes_that_are_no_document_are_refused() -> None:
    last = await last_of(translate_bytes(b"\0", "notes.txt", options=options(), service=UnitsService()))
    assert isinstance(last, DocumentFailed)
    assert last.error.http_status == 422


async def test_leaving_a_document_in_memory_cancels_it() -> None:
    class SilentService(UnitsService):
        def submit(self, request: TranslationRequest) -> TranslationJob:
            job = TranslationJob(request, cancel=self._cancel)
            job.put(self._settle(0, request.units[0]))
            return job

    service = SilentService()
    events = translate_bytes("".join(LINES).encode(), "notes.txt", options=options(), service=service)
    assert isinstance(await anext(events), DocumentStarted)
    assert isinstance(await anext(events), UnitSettled)
    await events.aclose()  # type: ignore[attr-defined]
    assert service.n_cancelled == 1


async def test_a_bilingual_document_in_memory() -> None:
    wanted = options(is_bilingual=True, format_name="text")
    last = await last_of(translate_bytes(b"Hello.\n", "unnamed", options=wanted, service=UnitsService(bracketed)))
    assert isinstance(last, DocumentFinished)
    assert last.data.decode() == "Hello.\n⟦Hello.⟧\n"
