"""The ASGI application: routes of all dialects behind one door."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from hymt_local.errors import ErrorReport, HymtError
from hymt_local.server import native, page
from hymt_local.server.context import ServerContext
from hymt_local.server.dialect import Dialect, dialect_of
from hymt_local.server.dialects import DIALECTS
from hymt_local.server.guard import Guard
from hymt_local.server.request_log import RequestLog


def build_app(context: ServerContext, *, log: RequestLog, dialects: Sequence[Dialect] = DIALECTS) -> Starlette:
    """Return the application; `log` stays the caller's to close."""
    known = (*dialects, native)
    routes: list[BaseRoute] = [*page.routes(), *(route for dialect in known for route in dialect.routes(context))]

    async def shape(http: Request, error: Exception) -> Response:
        """Answer what no route takes."""
        assert isinstance(error, HTTPException)
        report = _http_report(http, error)
        response = dialect_of(http.url.path, known).error_response(report, error.status_code)
        response.headers.update(error.headers or {})
        return response

    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, context=context, dialects=known, log=log)],
        exception_handlers={HTTPException: shape, HymtError: _raise_on},
    )


async def _raise_on(_: Request, error: Exception) -> Response:
    """Leave it to the guard, which gives every error its dialect's shape."""
    raise error


def _http_report(http: Request, error: HTTPException) -> ErrorReport:
    path = http.url.path[:100]
    if error.status_code == 404:
        return ErrorReport("not_found", f"there is nothing at {path}", "`/openapi.json` lists what is", 7, 404)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return ErrorReport(
            "method",
            f"{path} does not take {http.method[:20]}",
            f"use {allowed}; `/openapi.json` lists all paths",
            7,
            405,
        )
    return ErrorReport("usage", str(error.detail), "", 2, error.status_code)
