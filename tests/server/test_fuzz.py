"""Requests made from the API's own description: whatever comes in, nothing breaks.

The short form runs by default; `slow` tries many more.
"""

from __future__ import annotations

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error

from tests.server.conftest import API


@pytest.mark.parametrize("examples", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_no_request_breaks_the_service(client: httpx.Client, examples: int) -> None:
    schema = schemathesis.openapi.from_dict(client.get(f"{API}/openapi.json").json())
    for found in schema.get_all_operations():
        operation = found.ok()

        @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def probe(case: schemathesis.Case) -> None:
            answer = case.call(base_url=str(client.base_url))
            case.validate_response(answer, checks=[not_a_server_error])

        probe()
