"""LibreTranslate's interface: texts and lists of texts, plain or HTML, detection, languages."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from starlette.datastructures import FormData
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from hymt_local.document_jobs.events import DocumentOptions
from hymt_local.documents.base import Languages
from hymt_local.documents.registry import FORMATS
from hymt_local.errors import ErrorReport, ForbiddenError, LanguageError, UsageError, error_of
from hymt_local.language import get_language
from hymt_local.server.codes import Codes
from hymt_local.server.context import ServerContext, while_connected
from hymt_local.server.dialect import Credentials
from hymt_local.server.document_routes import attachment, job_of, receive_document
from hymt_local.server.documents import DocumentJob
from hymt_local.server.fields import read_fields, text_of, texts_of, token_in
from hymt_local.server.native import json_response
from hymt_local.server.tagged_text import HTML_RULES
from hymt_local.server.texts import Translated, Wish, translate_texts

NAME = "libretranslate"
PREFIX = "/libretranslate"
PATHS = ("/languages", "/frontend/settings", "/suggest", "/translate_file", "/download_file/", f"{PREFIX}/")
BODY_TOKEN_PATHS = (
    *("/languages", "/suggest", f"{PREFIX}/languages"),
    *(f"{PREFIX}/translate", f"{PREFIX}/detect", f"{PREFIX}/suggest"),
)
CODES = Codes(accepted={"zt": "zh-Hant", "pb": "pt"}, answered={"zh": "zh-Hans"})
FRONTEND_TIMEOUT_MS = 500

_LOOKS_LIKE_HTML = re.compile(
    r"</[A-Za-z][A-Za-z0-9]*\s*>|<(?:br|hr|img|p|div|span|a|b|i|em|strong|ul|li)(?:\s[^<>]*|/)?>"
)


def token_of(credentials: Credentials) -> str | None:
    """Return `api_key` of the body, else of the address."""
    return token_in(credentials, "api_key")


def error_response(report: ErrorReport, status: int) -> Response:
    """Return `{"error": text}`; a key that is missing or wrong is 403 here."""
    return json_response({"error": report.text}, status={401: 403, 422: 400, 499: 500}.get(status, status))


def routes(context: ServerContext) -> Sequence[BaseRoute]:
    """Return the paths that are this dialect's alone, and all of them under its prefix."""

    async def languages(_: Request) -> Response:
        return json_response(await asyncio.to_thread(_languages, context))

    async def settings(_: Request) -> Response:
        return json_response(_frontend_settings())

    async def suggest(_: Request) -> Response:
        raise ForbiddenError("suggestions are not enabled on this server", hint="")

    async def translate_file(http: Request) -> Response:
        return await _translate_file(context, http)

    async def download(http: Request) -> Response:
        return _download(job_of(context, http))

    async def translate_here(http: Request) -> Response:
        return await translate(context, http, await read_fields(http, context.limits))

    async def detect_here(http: Request) -> Response:
        return await detect(context, http, await read_fields(http, context.limits))

    own = [
        Route(f"{prefix}{path}", endpoint, methods=[method])
        for prefix in ("", PREFIX)
        for method, path, endpoint in (
            ("GET", "/languages", languages),
            ("GET", "/frontend/settings", settings),
            ("POST", "/suggest", suggest),
            ("POST", "/translate_file", translate_file),
            ("GET", "/download_file/{id}/{name}", download),
        )
    ]
    return [
        *own,
        Route(f"{PREFIX}/translate", translate_here, methods=["POST"]),
        Route(f"{PREFIX}/detect", detect_here, methods=["POST"]),
    ]


async def translate(context: ServerContext, http: Request, fields: Mapping[str, Any]) -> Response:
    """Answer `POST /translate`."""
    texts = texts_of(fields, "q")
    if texts is None:
        raise _missing("q")
    target_lang = _target(fields)
    source_lang = _tag(fields, "source", lambda code: CODES.source_tag(code))
    is_html = _is_html(fields, texts)
    n_alternatives = _alternatives(fields)
    wish = Wish(target_lang, source_lang, markup=HTML_RULES if is_html else None)
    done = await translate_texts(context, http, texts, wish)
    is_batch = isinstance(fields["q"], list)
    answer: dict[str, Any] = {"translatedText": _shaped([each.text for each in done], is_batch)}
    if source_lang is None:
        answer["detectedLanguage"] = _shaped([_detected(each) for each in done], is_batch)
    if n_alternatives and not is_html:
        nothing: list[list[str]] = [[] for _ in done]
        answer["alternatives"] = _shaped(nothing, is_batch)
    return json_response(answer)


async def detect(context: ServerContext, http: Request, fields: Mapping[str, Any]) -> Response:
    """Answer `POST /detect`."""
    text = text_of(fields, "q")
    if text is None:
        raise _missing("q")
    context.check_texts(http, [text])
    found = await asyncio.to_thread(context.detector.candidates, text)
    candidates = [{"confidence": _percent(each.confidence), "language": CODES.code(each.tag)} for each in found]
    return json_response(candidates or [{"confidence": 0, "language": "en"}])


async def _translate_file(context: ServerContext, http: Request) -> Response:
    """Wait for a document; the answer says where it lies. One whose client goes away is forgotten."""
    job = await receive_document(context, http, options_of=_document_options)
    try:
        await while_connected(http.receive, job.ended.wait())
    except ClientDisconnect:
        context.documents.forget(job)
        raise
    if job.error is not None:
        context.documents.forget(job)
        raise error_of(job.error)
    prefix = PREFIX if http.url.path.startswith(f"{PREFIX}/") else ""
    address = f"{http.url.scheme}://{http.headers['host']}{prefix}/download_file/{job.id}/{quote(job.name)}"
    notes = {"warning": f"{job.n_failed} parts kept their source text"} if job.n_failed else {}
    return json_response({"translatedFileUrl": address, **notes})


def _document_options(form: FormData) -> DocumentOptions:
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    return DocumentOptions(Languages(_tag(fields, "source", CODES.source_tag), _target(fields)))


def _download(job: DocumentJob) -> Response:
    if job.result is None:
        raise UsageError("the document is not translated yet")
    return attachment(job.result, job.name)


def _missing(name: str) -> UsageError:
    return UsageError(f"Invalid request: missing {name} parameter")


def _target(fields: Mapping[str, Any]) -> str:
    if not text_of(fields, "target"):
        raise _missing("target")
    tag = _tag(fields, "target", CODES.target_tag)
    assert tag is not None
    return tag


def _tag(fields: Mapping[str, Any], name: str, match: Any) -> str | None:
    code = text_of(fields, name)
    try:
        tag: str | None = match(code)
    except LanguageError as error:
        raise LanguageError(f"{code or ''!s} is not supported", hint=error.hint) from error
    return tag


def _is_html(fields: Mapping[str, Any], texts: Sequence[str]) -> bool:
    """Tell whether tags are markup; clients that forget to say so send HTML all the same."""
    declared = text_of(fields, "format")
    if declared not in {None, "", "text", "html"}:
        raise UsageError(f"{declared} format is not supported", hint="text or html")
    if declared:
        return declared == "html"
    return any(_LOOKS_LIKE_HTML.search(text) for text in texts)


def _alternatives(fields: Mapping[str, Any]) -> int:
    value = fields.get("alternatives") or 0
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        value = int(value.strip()[:6])
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UsageError("Invalid request: alternatives parameter must be a whole number, 0 or more")
    return value


def _shaped(values: Sequence[Any], is_batch: bool) -> Any:
    return list(values) if is_batch else values[0]


def _detected(done: Translated) -> dict[str, object]:
    return {"confidence": _percent(done.confidence), "language": CODES.code(done.source_lang)}


def _percent(confidence: float) -> int:
    return round(confidence * 100)


def _languages(context: ServerContext) -> list[dict[str, object]]:
    tags = context.app.resolve_model(None).spec.languages
    codes = [CODES.code(tag) for tag in tags]
    return [
        {"code": code, "name": get_language(tag).english, "targets": codes}
        for tag, code in zip(tags, codes, strict=True)
    ]


def _frontend_settings() -> dict[str, object]:
    return {
        "charLimit": -1,
        "frontendTimeout": FRONTEND_TIMEOUT_MS,
        "apiKeys": True,
        "keyRequired": True,
        "suggestions": False,
        "filesTranslation": True,
        "supportedFilesFormat": [extension for each in FORMATS for extension in each.extensions],
        "language": {
            "source": {"code": "auto", "name": "Auto Detect"},
            "target": {"code": "en", "name": "English"},
        },
    }
