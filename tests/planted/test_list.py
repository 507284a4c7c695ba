"""The list of planted faults fits the source, so that it does not rot."""

import ast
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from faults import FAULTS
from sandbox import ROOT


def test_every_fault_changes_one_place_of_its_file_and_the_file_still_compiles():
    for fault in FAULTS:
        text = (ROOT / "src/dpcvx" / fault.file).read_text()
        assert text.count(fault.old) == 1, fault.name
        ast.parse(text.replace(fault.old, fault.new))


def test_every_fault_has_a_name_and_tests_that_exist():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 60
    for fault in FAULTS:
        assert fault.tests, fault.name
        for name in fault.tests.split():
            assert (ROOT / "tests" / name.split("::")[0]).exists(), (fault.name, name)
