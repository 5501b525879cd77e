"""DeepL's interface, version 2, and of version 3 what an account without glossaries sees."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from hymt_local.document_jobs.events import DocumentOptions
from hymt_local.documents.base import Languages
from hymt_local.errors import ErrorReport, LanguageError, UsageError
from hymt_local.language import get_language
from hymt_local.server.codes import Codes
from hymt_local.server.context import ServerContext
from hymt_local.server.dialect import Credentials
from hymt_local.server.document_routes import attachment, job_of, receive_document
from hymt_local.server.documents import DocumentJob
from hymt_local.server.fields import read_fields, text_of, texts_of, token_in
from hymt_local.server.native import json_response
from hymt_local.server.tagged_text import HTML_IGNORED, HTML_SPLITTING, MarkupRules
from hymt_local.server.texts import Translated, Wish, translate_texts

NAME = "deepl"
PREFIX = "/deepl"
PATHS = ("/v2/", "/v3/", f"{PREFIX}/")
BODY_TOKEN_PATHS = ("/v2/translate", f"{PREFIX}/v2/translate")
CHARACTER_LIMIT = 1_000_000_000_000
"""Of an account; there is none here, and clients want a number."""

CODES = Codes(
    answered={"zh": "ZH", "zh-Hant": "ZH", **{tag: tag.upper() for tag in ("yue",)}},
)
_TARGETS = {
    "en": (("EN-GB", "English (British)"), ("EN-US", "English (American)")),
    "pt": (("PT-BR", "Portuguese (Brazilian)"), ("PT-PT", "Portuguese (European)")),
    "zh": (("ZH-HANS", "Chinese (simplified)"),),
    "zh-Hant": (("ZH-HANT", "Chinese (traditional)"),),
}
"""Tag -> codes and names of targets, where they are not the tag in upper case."""
_STATUS = {401: 403, 422: 400, 499: 503, 500: 500, 502: 503, 504: 413, 507: 503}
"""What its clients know: 403 is a bad key, 503 is asked again, and 413 (for what takes too long as well) is not."""


def token_of(credentials: Credentials) -> str | None:
    """Return the old parameter `auth_key`."""
    return token_in(credentials, "auth_key")


def error_response(report: ErrorReport, status: int) -> Response:
    """Return `{"message", "detail"}`."""
    detail = {"detail": report.hint} if report.hint else {}
    return json_response({"message": report.message, **detail}, status=_STATUS.get(status, status))


def routes(context: ServerContext) -> Sequence[BaseRoute]:
    """Return everything twice: at the root, and under the prefix, for addresses that end in it."""

    async def translate_here(http: Request) -> Response:
        return await translate(context, http, await read_fields(http, context.limits))

    async def languages(http: Request) -> Response:
        fields = await read_fields(http, context.limits)
        return json_response(await asyncio.to_thread(_languages, context, is_target=_asks_targets(fields)))

    async def usage(_: Request) -> Response:
        return json_response({"character_count": 0, "character_limit": CHARACTER_LIMIT})

    async def no_pairs(_: Request) -> Response:
        return json_response({"supported_languages": []})

    async def no_glossaries(_: Request) -> Response:
        return json_response({"glossaries": []})

    async def full(_: Request) -> Response:
        report = UsageError("Quota exceeded", hint="this server keeps no glossaries").report()
        return error_response(report, 456)

    async def send_document(http: Request) -> Response:
        job = await receive_document(context, http, options_of=_document_options)
        return json_response({"document_id": job.id, "document_key": job.id})

    async def document_state(http: Request) -> Response:
        return json_response(_document_state(await _document(context, http)))

    async def document_result(http: Request) -> Response:
        return _document_result(context, await _document(context, http))

    endpoints = (
        ("/v2/translate", translate_here, "POST"),
        ("/v2/document", send_document, "POST"),
        ("/v2/document/{id}", document_state, "POST"),
        ("/v2/document/{id}", document_state, "GET"),
        ("/v2/document/{id}/result", document_result, "POST"),
        ("/v2/document/{id}/result", document_result, "GET"),
        ("/v2/languages", languages, "GET"),
        ("/v2/languages", languages, "POST"),
        ("/v2/usage", usage, "GET"),
        ("/v2/usage", usage, "POST"),
        ("/v2/glossary-language-pairs", no_pairs, "GET"),
        ("/v2/glossaries", no_glossaries, "GET"),
        ("/v3/glossaries", no_glossaries, "GET"),
        ("/v2/glossaries", full, "POST"),
        ("/v3/glossaries", full, "POST"),
    )
    return [
        Route(f"{prefix}{path}", endpoint, methods=[method])
        for prefix in ("", PREFIX)
        for path, endpoint, method in endpoints
    ]


async def translate(context: ServerContext, http: Request, fields: Mapping[str, Any]) -> Response:
    """Answer `POST /v2/translate`."""
    texts = texts_of(fields, "text")
    if not texts:
        raise UsageError("Parameter 'text' not specified.")
    if fields.get("glossary_id") or fields.get("glossary_ids"):
        return error_response(UsageError("Glossary not found", hint="this server keeps no glossaries").report(), 404)
    wish = Wish(
        target_lang=_tag(fields, "target_lang") or "",
        source_lang=_tag(fields, "source_lang"),
        markup=_markup(fields),
    )
    done = await translate_texts(context, http, texts, wish)
    model_type = {"model_type_used": "quality_optimized"} if text_of(fields, "model_type") else {}
    return json_response(
        {"translations": [_answer(text, each, model_type) for text, each in zip(texts, done, strict=True)]}
    )


def _answer(text: str, done: Translated, model_type: Mapping[str, str]) -> dict[str, object]:
    return {
        "detected_source_language": CODES.code(done.source_lang).upper(),
        "text": done.text,
        "billed_characters": len(text),  # the official client fails without it
        **model_type,
    }


def _tag(fields: Mapping[str, Any], name: str) -> str | None:
    code = text_of(fields, name)
    try:
        return CODES.target_tag(code) if name == "target_lang" else CODES.source_tag(code)
    except LanguageError as error:
        problem = f"Value for '{name}' not supported." if code else f"Parameter '{name}' not specified."
        raise LanguageError(problem, hint=error.hint) from error


def _markup(fields: Mapping[str, Any]) -> MarkupRules | None:
    handling = text_of(fields, "tag_handling")
    if not handling:
        return None
    if handling not in {"xml", "html"}:
        raise UsageError("Value for 'tag_handling' not supported.", hint="xml or html")
    is_html = handling == "html"
    splitting, ignored = _names(fields, "splitting_tags"), _names(fields, "ignore_tags")
    return MarkupRules(
        is_html=is_html,
        splitting=splitting | (HTML_SPLITTING if is_html else frozenset()),
        ignored=ignored | (HTML_IGNORED if is_html else frozenset()),
        unsplitting=_names(fields, "non_splitting_tags"),
        finds_structure=not is_html and str(fields.get("outline_detection", "1")).lower() not in {"0", "false"},
    )


def _names(fields: Mapping[str, Any], name: str) -> frozenset[str]:
    """Return names of elements: a list in JSON, joined by commas in forms."""
    values = texts_of(fields, name) or []
    return frozenset(each.strip() for value in values for each in value.split(",") if each.strip())


# Documents


def _document_options(form: FormData) -> DocumentOptions:
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    if fields.get("glossary_id"):
        raise UsageError("Glossary not found", hint="this server keeps no glossaries")
    file = form["file"]
    name = fields.get("filename") or ("" if isinstance(file, str) else file.filename or "")
    suffix = PurePath(name).suffix.lstrip(".").lower()
    wanted = fields.get("output_format", "").lower()
    if wanted and wanted != suffix:
        raise UsageError("Value for 'output_format' not supported.", hint="documents keep their format")
    return DocumentOptions(Languages(_tag(fields, "source_lang"), _tag(fields, "target_lang") or ""))


async def _document(context: ServerContext, http: Request) -> DocumentJob:
    job = job_of(context, http)
    fields = await read_fields(http, context.limits)
    if text_of(fields, "document_key") != job.id:
        raise UsageError("Document not found", hint="the `document_key` is missing or wrong")
    return job


def _document_state(job: DocumentJob) -> dict[str, object]:
    if job.state == "failed":
        message = job.error.message if job.error else "the document failed"
        return {"document_id": job.id, "status": "error", "error_message": message}
    if job.state == "done":
        parts = f"{job.n_failed} parts kept their source text"
        notes = {"error_message": parts} if job.n_failed else {}
        return {"document_id": job.id, "status": "done", "billed_characters": job.characters, **notes}
    if job.n_units is None:
        return {"document_id": job.id, "status": "queued"}
    return {"document_id": job.id, "status": "translating", "seconds_remaining": math.ceil(job.eta_s or 1)}


def _document_result(context: ServerContext, job: DocumentJob) -> Response:
    """Give the document once, as DeepL does."""
    if job.result is None:
        return error_response(UsageError("Document is not ready", hint="ask for its status").report(), 503)
    context.documents.forget(job)
    return attachment(job.result, job.name)


def _asks_targets(fields: Mapping[str, Any]) -> bool:
    kind = text_of(fields, "type") or "source"
    if kind not in {"source", "target"}:
        raise UsageError("Value for 'type' not supported.", hint="source or target")
    return kind == "target"


def _languages(context: ServerContext, *, is_target: bool) -> list[dict[str, object]]:
    tags = context.app.resolve_model(None).spec.languages
    if is_target:
        named = [pair for tag in tags for pair in _TARGETS.get(tag, ((tag.upper(), get_language(tag).english),))]
        return [{"language": code, "name": name, "supports_formality": False} for code, name in named]
    codes = dict.fromkeys(tag for tag in tags if tag != "zh-Hant")
    return [{"language": CODES.code(tag).upper(), "name": get_language(tag).english} for tag in codes]
