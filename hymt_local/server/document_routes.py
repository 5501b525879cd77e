"""Documents in the native interface: sent as a form, followed and fetched by an id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from hymt_local.document_jobs.events import DocumentOptions
from hymt_local.documents.base import Languages
from hymt_local.documents.registry import FORMATS
from hymt_local.errors import ErrorReport, UsageError
from hymt_local.language import match_language
from hymt_local.server import bodies
from hymt_local.server.context import ServerContext, client_of
from hymt_local.server.documents import DocumentJob
from hymt_local.server.operations import MediaTypeError, Operation, json_response

FORM = "multipart/form-data"
BYTES = "application/octet-stream"
FIELDS = {
    "file": "the document; its name tells the format",
    "target_lang": "a tag or a name",
    "source_lang": "`auto`, or nothing, detects it",
    "model": "a reference of /v1/models",
    "format": "a format's name, when the file's name does not tell",
    "bilingual": "`true` keeps the source beside the translation, where the format can",
}
MAX_FIELDS = 16


@dataclass(frozen=True, slots=True)
class DocumentRoutes:
    """The operations on documents."""

    context: ServerContext

    def operations(self) -> tuple[Operation, ...]:
        """Return them."""
        gone = (401, 403, 404, 421, 429)
        return (
            Operation(
                *("POST", "/v1/documents", "Begin to translate a document", self.begin),
                form=FIELDS,
                gives={202: bodies.DocumentState},
                fails=(400, 401, 403, 413, 415, 421, 422, 429),
            ),
            Operation(
                *("GET", "/v1/documents", "List the formats that are known", self.formats),
                gives={200: bodies.Formats},
                fails=(401, 403, 421, 429),
            ),
            Operation(
                *("GET", "/v1/documents/{id}", "Say how far a document is", self.state),
                gives={200: bodies.DocumentState},
                fails=gone,
            ),
            Operation(
                *("GET", "/v1/documents/{id}/result", "Fetch the translated document", self.result),
                gives={200: BYTES},
                fails=(409, *gone),
            ),
            Operation(
                *("DELETE", "/v1/documents/{id}", "Cancel and forget a document", self.forget),
                gives={204: None},
                fails=gone,
            ),
        )

    async def begin(self, http: Request) -> Response:
        """Take a document and begin with it."""
        if http.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
            raise MediaTypeError(f"a document is sent as {FORM}", hint="`curl -F file=@FILE -F target_lang=fr`")
        job = await receive_document(self.context, http, options_of=_options)
        return json_response(document_state(job), status=202)

    async def formats(self, _: Request) -> Response:
        """List the formats."""
        known = [bodies.FormatItem(each.name, list(each.extensions), each.can_be_bilingual) for each in FORMATS]
        return json_response(bodies.Formats(known))

    async def state(self, http: Request) -> Response:
        """Say how far one is."""
        return json_response(document_state(job_of(self.context, http)))

    async def result(self, http: Request) -> Response:
        """Give the translated document."""
        job = job_of(self.context, http)
        if job.result is None:
            raise _NoResultError(
                f"the document is not translated: it is {job.state}", hint="ask for its state, and come back"
            )
        return attachment(job.result, job.name)

    async def forget(self, http: Request) -> Response:
        """Cancel and drop one."""
        self.context.documents.forget(job_of(self.context, http))
        return Response(status_code=204)


def job_of(context: ServerContext, http: Request) -> DocumentJob:
    """Return the document of the path's `id`, if it is this client's.

    Raises:
        UsageError: there is none.
    """
    job = context.documents.get(http.path_params["id"])
    client = client_of(http)
    if job is None or not (client.is_owner or client.name == job.owner):
        raise _NoDocumentError("there is no such document (any more)", hint="they are kept for a quarter of an hour")
    return job


def attachment(data: bytes, name: str) -> Response:
    """Return a document for the client to save under its name."""
    return Response(
        data, media_type=BYTES, headers={"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
    )


class _NoDocumentError(UsageError):
    code = "document_not_found"
    http_status = 404


class _NoResultError(UsageError):
    code = "no_result"
    http_status = 409


def document_state(job: DocumentJob) -> bodies.DocumentState:
    """Return a document's state as clients see it."""
    report = job.report
    return bodies.DocumentState(
        id=job.id,
        name=job.name,
        state=job.state,
        n_units=job.n_units,
        n_done=job.n_done,
        n_failed=job.n_failed,
        characters=job.characters,
        eta_s=job.eta_s if job.state == "running" else None,
        source_lang=report.source_lang if report else None,
        failed=[
            bodies.FailedPart(
                each.location, each.source, bodies.ErrorBody(each.error.code, each.error.message, each.error.hint)
            )
            for each in (report.failed if report else ())
        ],
        error=_error(job.error) if job.error else None,
    )


def _error(report: ErrorReport) -> bodies.ErrorBody:
    return bodies.ErrorBody(report.code, report.message, report.hint)


async def receive_document(
    context: ServerContext, http: Request, *, options_of: Callable[[FormData], DocumentOptions]
) -> DocumentJob:
    """Take the document in the field `file` of a form and begin with it.

    Raises:
        UsageError: there is no form or no file, or `options_of` refuses the other fields.
        BusyError: there are too many documents, or the client has had its share for the moment.
    """
    form = await _form(http)
    try:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise UsageError("the field `file` is missing", hint="send the document in it")
        options = options_of(form)
        data, name = await file.read(), _text(form, "filename") or file.filename or ""
    finally:
        await form.close()
    client = client_of(http)
    context.clients.account(client).charge_text(len(data))
    return context.documents.start(data, name, owner=client.name, options=options)


async def _form(http: Request) -> FormData:
    try:
        return await http.form(max_files=1, max_fields=MAX_FIELDS)
    except HTTPException as error:
        raise UsageError(
            f"the form cannot be read: {error.detail}", hint="`curl -F file=@FILE` makes a right one"
        ) from error


def _options(form: FormData) -> DocumentOptions:
    """Return how the document is to be translated.

    Raises:
        UsageError: the target language is missing, or one is unknown.
    """
    target = _text(form, "target_lang")
    if not target:
        raise UsageError("the field `target_lang` is missing", hint="`-F target_lang=fr`")
    source = _text(form, "source_lang")
    return DocumentOptions(
        languages=Languages(None if source in {"", bodies.AUTO} else match_language(source), match_language(target)),
        model=_text(form, "model") or None,
        format_name=_text(form, "format") or None,
        is_bilingual=_text(form, "bilingual").lower() in {"true", "1", "on"},
    )


def _text(form: FormData, name: str) -> str:
    value = form.get(name, "")
    return value.strip() if isinstance(value, str) else ""
