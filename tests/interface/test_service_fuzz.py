"""Requests made from the service's own description, right and wrong: every response is a described one."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

schemathesis = pytest.importorskip("schemathesis")

from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dpcvx.accounting import Budget  # noqa: E402
from dpcvx.queries.engine import QueryEngine  # noqa: E402
from dpcvx.service.application import application  # noqa: E402
from serving import SCHEMA, Teller, make_analysts, serving  # noqa: E402

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
OPERATIONS = 11


def send(operation, mode, cases, headers, found):
    """Send so many requests of one operation, right or wrong ones, and count the responses by status."""

    @settings(
        max_examples=cases, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
    )
    @given(operation.as_strategy(generation_mode=mode))
    def conforms(case):
        response = case.call(headers=headers, timeout=60)
        found[operation.label, response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    conforms()


def real_engine():
    rng = np.random.default_rng(0)
    table = {one.name: one.units[rng.integers(0, one.size, 2000)] for one in SCHEMA.attributes}
    return QueryEngine(SCHEMA, table, Budget(2.0, 1e-6))


SLOW = [pytest.mark.slow, pytest.mark.timeout(3600)]


# The server's threads share this process and its `random`; Hypothesis takes their draws for a strategy's.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@pytest.mark.parametrize(
    ("cases", "engine"),
    [
        pytest.param(16, Teller, marks=pytest.mark.long, id="some"),
        pytest.param(300, real_engine, marks=SLOW, id="5400 cases at a real engine"),
    ],
)
def test_every_generated_request_gets_a_described_response(tmp_path, cases, engine):
    analysts = make_analysts(tmp_path, engine())
    key, text = analysts.keys.create("fuzz", scopes=("ask", "admin"), per_minute=10**6, per_day=10**9)
    headers = {"Authorization": f"Bearer {text}"}
    found = Counter()
    with serving(application(analysts, slot=0.001)) as address:
        schema = schemathesis.openapi.from_url(f"{address}/api/v1/openapi.json", headers=headers)
        for operation in schema.get_all_operations():
            for mode in schemathesis.GenerationMode:
                send(operation.ok(), mode, cases, headers, found)
    assert found.total() > 0.9 * 2 * cases * OPERATIONS
    assert len({label for label, _ in found}) == OPERATIONS
    assert found["POST /api/v1/queries", 200] > cases / 4
    assert found["POST /api/v1/queries", 422] > cases / 4
    # Repeated keys are answered from what is stored; every answer is stored once.
    assert 0 < analysts.history.asked_today(key) <= found["POST /api/v1/queries", 200]
