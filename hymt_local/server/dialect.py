"""The dialect seam: what one HTTP dialect gives the server, and what it may ask of it.

A dialect is a module that has these names; `server.dialects.DIALECTS` lists those of other translators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.routing import BaseRoute

from hymt_local.errors import BusyError, ErrorReport, HymtError

if TYPE_CHECKING:
    from hymt_local.server.context import ServerContext


@dataclass(frozen=True, slots=True)
class Credentials:
    """Where a request may carry its token. The body is there only for `BODY_TOKEN_PATHS`."""

    headers: Headers
    query: QueryParams
    body: bytes = field(default=b"", repr=False)


class Dialect(Protocol):
    """One module of `server/dialects`. All names are module level, none of them mutable."""

    @property
    def NAME(self) -> str:
        """Short, for metrics and the request log."""

    @property
    def PATHS(self) -> Sequence[str]:
        """Paths whose errors have this dialect's shape; one that ends in `/` covers all below it. Longest wins."""

    @property
    def BODY_TOKEN_PATHS(self) -> Sequence[str]:
        """Paths whose body may carry the token: it is read before the request is let in."""

    def token_of(self, credentials: Credentials) -> str | None:
        """Return the token as this dialect's clients present it, beyond the ways that hold for all.

        `Authorization: Bearer TOKEN`, `Authorization: DeepL-Auth-Key TOKEN`, `X-API-Key` and `?token=` are looked at
        before, whatever the path.
        """

    def routes(self, context: ServerContext) -> Sequence[BaseRoute]:
        """Return the dialect's routes; paths have no trailing slash (the server removes it)."""

    def error_response(self, report: ErrorReport, status: int) -> Response:
        """Return an error in the dialect's shape. `status` is the HTTP status unless the dialect knows a better one."""


def refusal(error: HymtError, shape: Callable[[ErrorReport, int], Response]) -> Response:
    """Return an error in the shape of a dialect; one that passes says when to come back."""
    report = error.report()
    response = shape(report, report.http_status)
    if isinstance(error, BusyError):
        response.headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
    return response


def dialect_of(path: str, dialects: Sequence[Dialect]) -> Dialect:
    """Return the dialect whose entry in PATHS fits best; the last of all when none does."""
    fits = [(len(known), dialect) for dialect in dialects for known in dialect.PATHS if _covers(known, path)]
    return max(fits, key=lambda fit: fit[0])[1] if fits else dialects[-1]


def _covers(known: str, path: str) -> bool:
    return path.startswith(known) or path == known[:-1] if known.endswith("/") else path == known
