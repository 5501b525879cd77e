"""DeepLX's interface: one text in, one text out. Its `/v2/translate` is DeepL's own."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from hymt_local.errors import ErrorReport, UsageError
from hymt_local.server.codes import Codes
from hymt_local.server.context import ServerContext
from hymt_local.server.dialect import Credentials
from hymt_local.server.fields import read_fields, text_of
from hymt_local.server.native import json_response
from hymt_local.server.tagged_text import HTML_RULES, MarkupRules
from hymt_local.server.texts import Wish, translate_one

NAME = "deeplx"
PREFIX = "/deeplx"
PATHS = (f"{PREFIX}/", PREFIX)
BODY_TOKEN_PATHS: tuple[str, ...] = ()
CODES = Codes(answered={"zh": "ZH", "zh-Hant": "ZH-HANT"})
_RULES = {"html": HTML_RULES, "xml": MarkupRules(is_html=False, splitting=frozenset(), ignored=frozenset())}


def token_of(credentials: Credentials) -> str | None:
    """Return None: the ways that hold for all are enough."""
    return None


def error_response(report: ErrorReport, status: int) -> Response:
    """Return `{"code", "message"}`."""
    status = 503 if status == 499 else status
    return json_response({"code": status, "message": report.text}, status=status)


def routes(context: ServerContext) -> Sequence[BaseRoute]:
    """Return the dialect under its prefix; `POST /translate` is shared with others."""

    async def here(http: Request) -> Response:
        return await translate(context, http, await read_fields(http, context.limits))

    return [Route(path, here, methods=["POST"]) for path in (PREFIX, f"{PREFIX}/translate", f"{PREFIX}/v1/translate")]


async def translate(context: ServerContext, http: Request, fields: Mapping[str, Any]) -> Response:
    """Answer `POST /translate`."""
    text = text_of(fields, "text")
    if not text:
        raise UsageError("No text to translate")
    target_lang = CODES.target_tag(text_of(fields, "target_lang"))
    handling = text_of(fields, "tag_handling") or ""
    if handling and handling not in _RULES:
        raise UsageError("Invalid tag_handling value. Allowed values are 'html' and 'xml'.")
    wish = Wish(target_lang, CODES.source_tag(text_of(fields, "source_lang")), markup=_RULES.get(handling))
    done = await translate_one(context, http, text, wish)
    return json_response(
        {
            "code": 200,
            "id": 8_300_000_000 + secrets.randbelow(100_000_000),
            "data": done.text,
            "alternatives": [],
            "source_lang": CODES.code(done.source_lang).upper(),
            "target_lang": CODES.code(target_lang).upper(),
            "method": "Free",
        }
    )
