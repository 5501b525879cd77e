"""The custom interface of the 划词翻译 extension (hcfy), which names languages in Chinese."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from hymt_local.errors import ErrorReport, UsageError
from hymt_local.language import get_language
from hymt_local.server.codes import Codes
from hymt_local.server.context import ServerContext
from hymt_local.server.dialect import Credentials
from hymt_local.server.fields import read_fields, text_of, texts_of
from hymt_local.server.native import json_response
from hymt_local.server.texts import Wish, translate_one
from hymt_local.translator import UNDETERMINED

NAME = "hcfy"
PATHS = ("/hcfy",)
BODY_TOKEN_PATHS: tuple[str, ...] = ()
CODES = Codes()
_NAMES = {"zh": "中文(简体)", "zh-Hant": "中文(繁体)"}
"""Where it says more than the model cards do."""


def token_of(credentials: Credentials) -> str | None:
    """Return None: its users write `?token=` into the address."""
    return None


def error_response(report: ErrorReport, status: int) -> Response:
    """Return `{"message"}`, which the extension shows."""
    return json_response({"message": report.text}, status=503 if status == 499 else status)


def routes(context: ServerContext) -> Sequence[BaseRoute]:
    """Return the one path."""

    async def translate(http: Request) -> Response:
        fields = await read_fields(http, context.limits)
        text, wanted = text_of(fields, "text"), texts_of(fields, "destination")
        if text is None or not wanted:
            raise UsageError("`text` or `destination` is missing", hint="see the extension's custom interface")
        context.check_texts(http, [text])
        source_lang = CODES.source_tag(text_of(fields, "source")) or await _detected(context, text)
        targets = [CODES.target_tag(each) for each in wanted]
        target_lang = targets[1] if source_lang == targets[0] and len(targets) > 1 else targets[0]
        done = await translate_one(context, http, text, Wish(target_lang, source_lang))
        languages = {"from": _name(done.source_lang), "to": _name(target_lang)}
        return json_response({"text": text, **languages, "result": done.text.split("\n")})

    return [Route(path, translate, methods=["POST"]) for path in PATHS]


async def _detected(context: ServerContext, text: str) -> str | None:
    found = await asyncio.to_thread(context.detector.detect, text)
    return found.tag if found else None


def _name(tag: str) -> str:
    known = "en" if tag == UNDETERMINED else tag
    return _NAMES.get(known) or get_language(known).chinese
