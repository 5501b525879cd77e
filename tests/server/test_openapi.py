"""The description of the native interface, and requests made up from it: none may end in a server error."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from hymt_local.server.native import operations
from tests.server.serving import TOKEN, Served

DESTRUCTIVE = {"/v1/stop"}
SETTINGS = settings(
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)


def test_the_description_names_every_route(shared: Served) -> None:
    described = shared.ask("GET", "/openapi.json", token=None).json
    assert described["openapi"] == "3.1.0"
    routes = {(each.path, each.method.lower()) for each in operations(shared.context)}
    assert {(path, method) for path, methods in described["paths"].items() for method in methods} == routes
    assert described["paths"]["/health"]["get"]["security"] == []


@pytest.mark.slow
def test_requests_made_up_from_the_description_never_break_the_server(shared: Served) -> None:
    described = shared.ask("GET", "/openapi.json", token=None).json
    schema: Any = schemathesis.openapi.from_dict(described)
    schema.config.update(base_url=f"http://127.0.0.1:{shared.port}")
    failures = []
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path in DESTRUCTIVE:
            continue
        failures += _try(operation)
    assert failures == []


def _try(operation: Any) -> list[str]:
    failures: list[str] = []

    @settings(SETTINGS, max_examples=5 if operation.body or operation.query else 1)
    @given(case=operation.as_strategy())
    def attempt(case: Any) -> None:
        response = case.call(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=10)
        case.validate_response(
            response,
            checks=[
                not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
            ],
        )  # fmt: skip

    try:
        attempt()
    except BaseException as error:
        failures.append(f"{operation.method} {operation.path}: {error}")
    return failures
