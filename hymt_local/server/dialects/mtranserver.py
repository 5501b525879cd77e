"""MTranServer's interface, and LinguaSpark's, whose requests look the same."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from hymt_local import __version__
from hymt_local.errors import ErrorReport, UsageError
from hymt_local.server.codes import Codes
from hymt_local.server.context import ServerContext
from hymt_local.server.dialect import Credentials
from hymt_local.server.fields import is_set, read_fields, text_of, texts_of
from hymt_local.server.native import json_response
from hymt_local.server.tagged_text import HTML_RULES
from hymt_local.server.texts import Wish, translate_texts

NAME = "mtranserver"
PREFIX = "/mtranserver"
PATHS = ("/translate/batch", "/version", "/__heartbeat__", "/__lbheartbeat__", f"{PREFIX}/")
BODY_TOKEN_PATHS: tuple[str, ...] = ()
CODES = Codes(answered={"zh": "zh-Hans"})


def token_of(credentials: Credentials) -> str | None:
    """Return None: the ways that hold for all are enough."""
    return None


def error_response(report: ErrorReport, status: int) -> Response:
    """Return `{"error", "message"}`: one for each of the two servers."""
    return json_response({"error": report.text, "message": report.text}, status=503 if status == 499 else status)


def routes(context: ServerContext) -> Sequence[BaseRoute]:
    """Return what is this dialect's alone at the root, and all of it under its prefix."""

    async def one(http: Request) -> Response:
        return await translate(context, http, await read_fields(http, context.limits))

    async def batch(http: Request) -> Response:
        return await translate_batch(context, http, await read_fields(http, context.limits))

    async def languages(_: Request) -> Response:
        model = await asyncio.to_thread(context.app.resolve_model, None)
        return json_response({"languages": [CODES.code(tag) for tag in model.spec.languages]})

    async def version(_: Request) -> Response:
        return json_response({"version": __version__})

    async def heartbeat(_: Request) -> Response:
        return PlainTextResponse("Ready")

    shared = (
        ("/translate/batch", batch, "POST"),
        ("/version", version, "GET"),
        ("/__heartbeat__", heartbeat, "GET"),
        ("/__lbheartbeat__", heartbeat, "GET"),
    )
    own = (("/translate", one, "POST"), ("/languages", languages, "GET"))
    return [
        *(Route(path, endpoint, methods=[method]) for path, endpoint, method in shared),
        *(Route(f"{PREFIX}{path}", endpoint, methods=[method]) for path, endpoint, method in (*shared, *own)),
    ]


async def translate(context: ServerContext, http: Request, fields: Mapping[str, Any]) -> Response:
    """Answer `POST /translate`: `result` for MTranServer's clients, `text`, `from` and `to` for LinguaSpark's."""
    text = text_of(fields, "text")
    if text is None:
        raise UsageError("`text` is missing", hint="send `from`, `to` and `text`")
    wish = _wish(fields)
    (done,) = await translate_texts(context, http, [text], wish)
    languages = {"from": CODES.code(done.source_lang), "to": CODES.code(wish.target_lang)}
    return json_response({"result": done.text, "text": done.text, **languages})


async def translate_batch(context: ServerContext, http: Request, fields: Mapping[str, Any]) -> Response:
    """Answer `POST /translate/batch`."""
    texts = texts_of(fields, "texts")
    if texts is None:
        raise UsageError("`texts` is missing", hint="send `from`, `to` and `texts`")
    done = await translate_texts(context, http, texts, _wish(fields))
    return json_response({"results": [each.text for each in done]})


async def detect(context: ServerContext, http: Request, fields: Mapping[str, Any]) -> Response:
    """Answer LinguaSpark's `POST /detect`."""
    text = text_of(fields, "text") or ""
    context.check_texts(http, [text])
    found = await asyncio.to_thread(context.detector.detect, text)
    return json_response({"language": CODES.code(found.tag) if found else "en"})


def _wish(fields: Mapping[str, Any]) -> Wish:
    return Wish(
        target_lang=CODES.target_tag(text_of(fields, "to")),
        source_lang=CODES.source_tag(text_of(fields, "from")),
        markup=HTML_RULES if is_set(fields, "html") else None,
    )
