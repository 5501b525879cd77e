"""Named values of a request, wherever its client puts them: a JSON object, a form, or the address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request

from hymt_local.errors import HymtError, InputEncodingError, UsageError
from hymt_local.server.context import decode_json
from hymt_local.server.dialect import Credentials
from hymt_local.server.limits import ServerLimits

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
_SHOWN_CHARACTERS = 60
_MAX_KEY_FIELDS = 2048


async def read_fields(http: Request, limits: ServerLimits) -> dict[str, Any]:
    """Return the values by name; a name that a form repeats has a list. The body wins over the address.

    Where the content type does not say what the body is, its first character does: many clients send a wrong one.

    Raises:
        UsageError: neither a JSON object nor a form.
    """
    query = _collected(parse_qs(http.url.query, keep_blank_values=True))
    body = await http.body()
    kind = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == FORM and not body.lstrip().startswith(b"{"):
        return {**query, **_form(body, limits)}
    if not body.strip():
        return query
    if kind in {"", JSON, "text/plain", FORM} or kind.endswith("+json"):
        return {**query, **decode_json(body, dict[str, Any])}
    raise UsageError(f"the content type {kind[:_SHOWN_CHARACTERS]!r} is not known here", hint=f"send {JSON}")


def text_of(fields: Mapping[str, Any], name: str) -> str | None:
    """Return one text; None when it is missing or null.

    Raises:
        UsageError: it is something else.
    """
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return value
    raise UsageError(f"`{name}` is {_kind_of(value)}, not a text", hint="send a string")


def texts_of(fields: Mapping[str, Any], name: str) -> list[str] | None:
    """Return a list of texts, a single one as a list of one; None when it is missing or null.

    Raises:
        UsageError: it is something else.
    """
    value = fields.get(name)
    if value is None:
        return None
    values = value if isinstance(value, list) else [value]
    for index, each in enumerate(values):
        if not isinstance(each, str):
            raise UsageError(f"`{name}[{index}]` is {_kind_of(each)}, not a text", hint="send strings")
    return values


def is_set(fields: Mapping[str, Any], name: str) -> bool:
    """Tell whether a switch is on, as JSON and forms spell it."""
    value = fields.get(name)
    return value is True or (isinstance(value, str | int) and str(value).strip().lower() in {"1", "true", "yes", "on"})


def _form(body: bytes, limits: ServerLimits) -> dict[str, Any]:
    try:
        parsed = parse_qs(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=limits.texts_per_request + 64
        )
    except UnicodeDecodeError as error:
        raise InputEncodingError(f"the form is not UTF-8 (byte {error.start})", hint="send UTF-8") from error
    except ValueError as error:
        raise UsageError(f"the form has too many fields: {error}", hint="send it in parts") from error
    return _collected({name: [_unix_lines(each) for each in values] for name, values in parsed.items()})


def _unix_lines(text: str) -> str:
    """Undo what HTML forms do to line ends."""
    return text.replace("\r\n", "\n")


def _collected(values: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {name: each[0] if len(each) == 1 else list(each) for name, each in values.items()}


def _kind_of(value: object) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), "null" if value is None else "something else")


def token_in(credentials: Credentials, name: str) -> str | None:
    """Return the text of this name in a request that is not let in yet; None when there is none."""
    found = _fields_in(credentials).get(name)
    return found if isinstance(found, str) else None


def _fields_in(credentials: Credentials) -> Mapping[str, Any]:
    """Return all values; those of the address alone when the body is neither JSON nor a form."""
    query = dict(credentials.query)
    body = credentials.body.lstrip()
    try:
        if body.startswith(b"{"):
            return {**query, **decode_json(body, dict[str, Any])}
        return {**query, **_collected(parse_qs(body.decode(), keep_blank_values=True, max_num_fields=_MAX_KEY_FIELDS))}
    except (HymtError, ValueError):
        return query
