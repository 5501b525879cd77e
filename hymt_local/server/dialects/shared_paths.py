"""`POST /translate` and `POST /detect`, which several dialects claim: the body tells which one is spoken."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from hymt_local.errors import ErrorReport, HymtError
from hymt_local.server.context import ServerContext
from hymt_local.server.dialect import Credentials, refusal
from hymt_local.server.dialects import deeplx, libretranslate, mtranserver
from hymt_local.server.fields import read_fields
from hymt_local.server.native import json_response

NAME = "shared"
PATHS = ("/translate", "/detect")
BODY_TOKEN_PATHS = ("/translate", "/detect")

Answer = Callable[[ServerContext, Request, Mapping[str, Any]], Coroutine[Any, Any, Response]]
Shape = Callable[[ErrorReport, int], Response]


def token_of(credentials: Credentials) -> str | None:
    """Return LibreTranslate's `api_key`; the others use headers and `?token=`."""
    return libretranslate.token_of(credentials)


def error_response(report: ErrorReport, status: int) -> Response:
    """Return an error that every one of these dialects can read, for requests that are refused before they are read."""
    status = {401: 403, 499: 503}.get(status, status)
    return json_response({"error": report.text, "code": status, "message": report.text}, status=status)


def routes(context: ServerContext) -> Sequence[BaseRoute]:
    """Return both paths."""

    async def translate(http: Request) -> Response:
        fields = await read_fields(http, context.limits)
        if "q" not in fields and "target_lang" in fields:
            return await _answered(deeplx.translate, deeplx.error_response, context, http, fields)
        if "q" not in fields and "to" in fields:
            return await _answered(mtranserver.translate, mtranserver.error_response, context, http, fields)
        return await _answered(libretranslate.translate, libretranslate.error_response, context, http, fields)

    async def detect(http: Request) -> Response:
        fields = await read_fields(http, context.limits)
        if "q" not in fields and "text" in fields:
            return await _answered(mtranserver.detect, mtranserver.error_response, context, http, fields)
        return await _answered(libretranslate.detect, libretranslate.error_response, context, http, fields)

    return [Route("/translate", translate, methods=["POST"]), Route("/detect", detect, methods=["POST"])]


async def _answered(
    answer: Answer, shape: Shape, context: ServerContext, http: Request, fields: Mapping[str, Any]
) -> Response:
    """Answer in one dialect, its errors included: by the path alone nobody could tell it."""
    try:
        return await answer(context, http, fields)
    except HymtError as error:
        return refusal(error, shape)
