"""A short run of the fuzzer on every kind of input, and the fuzzer itself: it must find planted faults."""

import os
import resource
import warnings

import pytest
from fuzzing import fuzz, outcome
from inputs import changed_bytes
from targets import SECRET, TARGETS, Target

import dpcvx
from dpcvx.data.table_schema import TableSchema
from dpcvx.errors import WrongValue
from dpcvx.queries import Schema


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_no_input_does_harm(target):
    known = len(target.seeds())
    run = fuzz(target, inputs=known + 50, seconds=60, seed=1)
    assert run.inputs == known + 50
    assert not run.findings


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_examples_are_read(target):
    for content in target.examples():
        assert outcome(target, content) == ("read", None)


@pytest.mark.parametrize("read", [TableSchema.from_toml, Schema.from_toml])
def test_a_declaration_that_is_nested_too_deeply_is_refused(read, tmp_path):
    (tmp_path / "deep.toml").write_text(f"a = {'[' * 5000}")
    with pytest.raises(WrongValue, match="nested too deeply"):
        read(tmp_path / "deep.toml")


@pytest.mark.parametrize("number", ["1" * 5000, "0x" + "f" * 5000, "0b" + "1" * 40_000])
@pytest.mark.parametrize(
    ("read", "text"),
    [
        (TableSchema.from_toml, '[columns.age]\nkind = "number"\nbounds = [0, {}]\n'),
        (Schema.from_toml, '[attributes.age]\nlevels = [0, {}]\nother = "missing"\n'),
    ],
)
def test_a_number_of_too_many_digits_is_refused_in_any_base(read, text, number, tmp_path):
    (tmp_path / "long.toml").write_text(text.format(number))
    with pytest.raises(WrongValue, match="not valid TOML"):
        read(tmp_path / "long.toml")


def test_a_model_file_with_a_number_of_too_many_digits_is_refused(tmp_path):
    (tmp_path / "long.json").write_text(f'{{"format": {"1" * 5000}}}')
    with pytest.raises(WrongValue, match="not valid JSON"):
        dpcvx.load(tmp_path / "long.json")


def repeats(content):
    raise WrongValue(f"{SECRET} is no number.")


def warns(content):
    warnings.warn(f"{SECRET} is no number.", stacklevel=2)


def loops(content):
    while True:
        pass


def executes(content):
    os.system("true")


def swells(content):
    b"x" * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def breaks(content):
    return 1 / 0


@pytest.mark.parametrize(
    ("read", "problem"),
    [
        (repeats, "a message repeats a cell"),
        (warns, "a message repeats a cell"),
        (loops, "longer than 0.05 s"),
        (executes, "ran os.system"),
        pytest.param(swells, "takes too much memory", marks=pytest.mark.long),
        (breaks, "ZeroDivisionError: division by zero"),
    ],
)
def test_the_fuzzer_sees_each_kind_of_harm(read, problem, monkeypatch):
    if read is loops:
        monkeypatch.setattr("fuzzing.LONGEST", 0.05)
    monkeypatch.setattr("fuzzing.MOST", 2**20)
    planted = Target("planted", lambda: [b"x"], read, changed_bytes)
    run = fuzz(planted, inputs=3, seconds=5, seed=0)
    assert [found for found, _ in run.findings][:1] == [problem]
