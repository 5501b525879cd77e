"""The custom interface of the Immersive Translate extension: a list of texts with placeholders that must come back."""

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

NAME = "immersive"
PATHS = ("/immersive", "/imme")
BODY_TOKEN_PATHS: tuple[str, ...] = ()
CODES = Codes(answered={"zh": "zh-CN", "zh-Hant": "zh-TW", "tl": "fil"})


def token_of(credentials: Credentials) -> str | None:
    """Return None: its users write `?token=` into the address."""
    return None


def error_response(report: ErrorReport, status: int) -> Response:
    """Return `{"message"}`, which the extension shows."""
    return json_response({"message": report.text}, status=503 if status == 499 else status)


def routes(context: ServerContext) -> Sequence[BaseRoute]:
    """Return the path, and the one that MTranServer has for it."""

    async def translate(http: Request) -> Response:
        fields = await read_fields(http, context.limits)
        texts = texts_of(fields, "text_list")
        if texts is None:
            raise UsageError("`text_list` is missing", hint="see the extension's custom interface")
        source_lang = CODES.source_tag(text_of(fields, "source_lang"))
        wish = Wish(CODES.target_tag(text_of(fields, "target_lang")), source_lang, markup=INLINE_RULES)
        done = await translate_texts(context, http, texts, wish)
        return json_response(
            {"translations": [{"detected_source_lang": CODES.code(x.source_lang), "text": x.text} for x in done]}
        )

    return [Route(path, translate, methods=["POST"]) for path in PATHS]
