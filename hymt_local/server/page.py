"""The web page: static files, with headers that let it load and run nothing but these files."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}


def routes() -> Sequence[BaseRoute]:
    """Return the page at `/` and its parts below `/page/`; none of them needs a token, and none tells anything."""
    files = {
        entry.name: entry.read_bytes() for entry in resources.files("hymt_local.server").joinpath("page").iterdir()
    }

    async def page(_: Request) -> Response:
        return _file("index.html", files["index.html"])

    def part(name: str) -> Route:
        async def send(_: Request) -> Response:
            return _file(name, files[name])

        return Route(f"/page/{name}", send, methods=["GET"])

    async def icon(_: Request) -> Response:
        return _file("icon.svg", files["icon.svg"])

    return [Route("/", page, methods=["GET"]), Route("/favicon.ico", icon, methods=["GET"]), *map(part, files)]


def _file(name: str, data: bytes) -> Response:
    return Response(data, media_type=_TYPES[_suffix(name)], headers=HEADERS)


def _suffix(name: str) -> str:
    return name[name.rfind(".") :]
