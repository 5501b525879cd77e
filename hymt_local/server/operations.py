"""One operation of the native interface: its route and its description come from the same value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hymt_local import __version__
from hymt_local.errors import UsageError
from hymt_local.server.bodies import ErrorAnswer

Handler = Callable[[Request], Awaitable[Response]]
Given = type[Any] | tuple[type[Any], ...] | str | None
"""Type of the JSON, or any of several; or another media type; or nothing at all."""
_REF = "#/components/schemas/{name}"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Operation:
    """What one method does at one path."""

    method: str
    path: str
    summary: str
    handler: Handler
    takes: type[Any] | None = None
    """The JSON body."""
    form: Mapping[str, str] = field(default_factory=dict)
    """Or a form with these fields and what they mean; `file` is a file."""
    gives: Mapping[int, Given] = field(default_factory=dict)
    """Status -> what comes with it."""
    fails: tuple[int, ...] = (400, 401, 403, 413, 415, 421, 429)
    query: Mapping[str, str] = field(default_factory=dict)
    """Optional query parameters and what they mean."""
    is_public: bool = False
    is_streamable: bool = False
    """With `Accept: text/event-stream` the answer is a stream of events."""

    def route(self) -> Route:
        """Return it as a route."""
        return Route(self.path, self._checked, methods=[self.method])

    async def _checked(self, http: Request) -> Response:
        if self.takes is not None:
            kind = http.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != JSON:
                raise MediaTypeError(f"the body is {kind[:60]!r}, not {JSON}", hint=f"send `Content-Type: {JSON}`")
        return await self.handler(http)


class MediaTypeError(UsageError):
    """The body is not JSON. A web page cannot send JSON to another origin without being asked whether it may."""

    code = "media_type"
    http_status = 415


def json_response(value: object, *, status: int = 200) -> Response:
    """Return any value that msgspec can write."""
    return Response(msgspec.json.encode(value), status_code=status, media_type=JSON)


def describe(operations: tuple[Operation, ...]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description."""
    types = _types(operations)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _describe(each, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "hymt-local", "version": __version__, "description": "A translator on this machine."},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _types(operations: tuple[Operation, ...]) -> list[type[Any]]:
    """Return every type that is taken or given, once."""
    given = [kind for each in operations for kind in (each.takes, *each.gives.values())]
    parts = [part for kind in given for part in (kind if isinstance(kind, tuple) else (kind,))]
    return list(dict.fromkeys([*(part for part in parts if isinstance(part, type)), ErrorAnswer]))


def _describe(operation: Operation, schema_of: Mapping[type[Any], dict[str, Any]]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": f"{operation.method.lower()}_{operation.path.strip('/').replace('/', '_')}".replace(
            "{", ""
        ).replace("}", ""),
        "parameters": _parameters(operation),
        "responses": {
            **{str(status): _response(operation, kind, schema_of) for status, kind in operation.gives.items()},
            **{
                str(status): {"description": "Error", "content": {JSON: {"schema": schema_of[ErrorAnswer]}}}
                for status in operation.fails
            },
        },
    }
    if operation.takes is not None:
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": schema_of[operation.takes]}}}
    if operation.form:
        described["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": _form(operation)}}}
    if operation.is_public:
        described["security"] = []
    return described


def _form(operation: Operation) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["file", "target_lang"],
        "properties": {
            name: {"type": "string", "description": text, **({"format": "binary"} if name == "file" else {})}
            for name, text in operation.form.items()
        },
    }


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    return [
        *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names),
        *(
            {"name": name, "in": "query", "required": False, "description": text, "schema": {"type": "string"}}
            for name, text in operation.query.items()
        ),
    ]


def _response(operation: Operation, kind: Given, schema_of: Mapping[type[Any], dict[str, Any]]) -> dict[str, Any]:
    if kind is None:
        return {"description": "Done"}
    if isinstance(kind, str):
        return {"description": "OK", "content": {kind: {"schema": {} if kind == JSON else {"type": "string"}}}}
    kinds = kind if isinstance(kind, tuple) else (kind,)
    schemas = [schema_of[each] for each in kinds]
    content: dict[str, Any] = {JSON: {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}}
    if operation.is_streamable:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    return {"description": "OK", "content": content}
