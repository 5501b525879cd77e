"""The custom interface of the KISS Translator extension: lists of texts in its new form, one text in its old."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from hymt_local.errors import ErrorReport, UsageError
from hymt_local.server.codes import Codes
from hymt_local.server.context import ServerContext
from hymt_local.server.dialect import Credentials
from hymt_local.server.fields import read_fields, text_of, texts_of
from hymt_local.server.native import json_response
from hymt_local.server.tagged_text import INLINE_RULES
from hymt_local.server.texts import Wish, translate_texts

NAME = "kiss"
PATHS = ("/kiss",)
BODY_TOKEN_PATHS: tuple[str, ...] = ()
CODES = Codes(answered={"zh": "zh-CN", "zh-Hant": "zh-TW"})


def token_of(credentials: Credentials) -> str | None:
    """Return None: the ways that hold for all are enough."""
    return None


def error_response(report: ErrorReport, status: int) -> Response:
    """Return `{"message"}`, which the extension shows."""
    return json_response({"message": report.text}, status=503 if status == 499 else status)


def routes(context: ServerContext) -> Sequence[BaseRoute]:
    """Return the one path."""

    async def translate(http: Request) -> Response:
        fields = await read_fields(http, context.limits)
        is_list = fields.get("texts") is not None
        texts = texts_of(fields, "texts" if is_list else "text")
        if texts is None:
            raise UsageError("`texts` is missing", hint="see the extension's custom interface")
        target_lang = CODES.target_tag(text_of(fields, "to"))
        wish = Wish(target_lang, CODES.source_tag(text_of(fields, "from")), markup=INLINE_RULES)
        done = await translate_texts(context, http, texts, wish)
        translations = [{"text": each.text, "src": CODES.code(each.source_lang)} for each in done]
        if is_list:
            return json_response({"translations": translations})
        (first,) = translations
        return json_response({"text": first["text"], "from": first["src"], "to": CODES.code(target_lang)})

    return [Route(path, translate, methods=["POST"]) for path in PATHS]
