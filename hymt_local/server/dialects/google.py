"""Google's translation interface, version 2: texts and lists of texts, plain or HTML."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from hymt_local.errors import ErrorReport, UsageError
from hymt_local.server.codes import Codes
from hymt_local.server.context import ServerContext
from hymt_local.server.dialect import Credentials
from hymt_local.server.fields import read_fields, text_of, texts_of, token_in
from hymt_local.server.native import json_response
from hymt_local.server.tagged_text import HTML_RULES
from hymt_local.server.texts import Wish, translate_texts

NAME = "google"
PATHS = ("/language/translate/v2", "/google/language/translate/v2")
BODY_TOKEN_PATHS = PATHS
CODES = Codes(answered={"zh": "zh-CN", "zh-Hant": "zh-TW"})


def token_of(credentials: Credentials) -> str | None:
    """Return `key`, which its clients write into the address."""
    return token_in(credentials, "key")


def error_response(report: ErrorReport, status: int) -> Response:
    """Return `{"error": {"code", "message", "errors"}}`; a wrong key is 403 there."""
    status = {401: 403, 422: 400, 499: 503}.get(status, status)
    inner = [{"message": report.text, "domain": "global", "reason": report.code}]
    return json_response({"error": {"code": status, "message": report.text, "errors": inner}}, status=status)


def routes(context: ServerContext) -> Sequence[BaseRoute]:
    """Return the path, and the one that MTranServer has for it."""

    async def translate(http: Request) -> Response:
        fields = await read_fields(http, context.limits)
        texts = texts_of(fields, "q")
        if texts is None:
            raise UsageError("Required Text")
        form = text_of(fields, "format") or "html"
        if form not in {"text", "html"}:
            raise UsageError("Invalid Value for format", hint="text or html")
        source_lang = CODES.source_tag(text_of(fields, "source"))
        markup = HTML_RULES if form == "html" else None
        done = await translate_texts(
            context, http, texts, Wish(CODES.target_tag(text_of(fields, "target")), source_lang, markup=markup)
        )
        detected = [{"detectedSourceLanguage": CODES.code(x.source_lang)} if source_lang is None else {} for x in done]
        translations = [{"translatedText": x.text, **more} for x, more in zip(done, detected, strict=True)]
        return json_response({"data": {"translations": translations}})

    return [Route(path, translate, methods=["POST", "GET"]) for path in PATHS]
