"""The server's own interface, below `/v1`, and what it tells about itself."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from hymt_local import __version__
from hymt_local.errors import ErrorReport
from hymt_local.server.context import ServerContext, error_json
from hymt_local.server.dialect import Credentials

NAME = "native"
PATHS = ("/",)
BODY_TOKEN_PATHS: tuple[str, ...] = ()


def token_of(credentials: Credentials) -> str | None:
    """Return None: the ways that hold for all are enough."""
    return None


def error_response(report: ErrorReport, status: int) -> Response:
    """Return the error as this program's JSON."""
    return json_response(error_json(report), status=status)


def json_response(value: object, *, status: int = 200) -> Response:
    """Return any value that msgspec can write."""
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def routes(context: ServerContext) -> Sequence[BaseRoute]:
    """Return the native routes."""

    async def health(_: Request) -> Response:
        return json_response({"status": "ok", "server": "hymt-local", "version": __version__})

    return [Route("/health", health, methods=["GET"])]
