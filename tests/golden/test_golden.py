"""Seeded results of one of everything are as recorded (`python tests/golden/cases.py write`)."""

import json

import pytest

from golden.cases import CASES, RECORD, differences, seen

pytestmark = pytest.mark.slow
KNOWN = json.loads(RECORD.read_text())


@pytest.mark.parametrize("name", CASES)
def test_a_seeded_result_is_as_recorded(name):
    assert not differences(name, seen(name), KNOWN[name])


def test_no_recorded_case_is_gone():
    assert KNOWN.keys() - {"gpu"} <= CASES.keys()
