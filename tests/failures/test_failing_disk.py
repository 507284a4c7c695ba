"""Full disks, kills and power cuts: nothing is lost, spent twice, or released without a charge."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from faulty_disk import build, can_build, environment
from power_cuts import Call, DiskModel

SCRIPT = Path(__file__).with_name("scenarios.py")
WRITERS = ("charges", "new ledger", "fit", "save", "shards", "service", "backup")
EVERY = 10**6  # calls of any scenario

pytestmark = pytest.mark.skipif(not can_build(), reason="needs Linux and a C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("disk"))


def run(library, folder, *words):
    """Run a scenario on the failing disk; return what it found."""
    command = [sys.executable, str(SCRIPT), *map(str, words)]
    command.insert(4, str(folder))
    paths = [str(SCRIPT.parents[1]), *sys.path]
    given = {**environment(library), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(command, capture_output=True, text=True, env=given)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.long
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("mode", [pytest.param("full", marks=pytest.mark.slow), "half", "kill", "cut"])
@pytest.mark.parametrize(
    "most", [4, pytest.param(EVERY, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])]
)
def test_nothing_is_lost_spent_twice_or_released_uncharged(library, tmp_path, name, mode, most):
    found = run(library, tmp_path, name, mode, most)
    assert found["problems"] == []
    assert found["faults"] >= min(most, found["calls"])
    if mode == "kill":
        assert found["ends"] == {"killed": found["faults"]}


@pytest.mark.long
def test_a_release_before_its_charge_is_found(library, tmp_path):
    found = run(library, tmp_path, "wrong order", "kill", 10)
    assert all("released without a charge" in problem for problem in found["problems"])
    assert len(found["problems"]) > 5


@pytest.mark.long
@pytest.mark.parametrize("synchronous", ["FULL", "OFF"])
def test_a_ledger_that_syncs_less_loses_charges_in_power_cuts(library, tmp_path, synchronous):
    """FULL does not sync the folder: the journal of a charge that was granted comes back and undoes it."""
    found = run(library, tmp_path, "charges", "cut", 40, synchronous)
    assert any("which is not there" in problem for problem in found["problems"])


# The model of a power cut


class Coin:
    """Luck that is written down."""

    def __init__(self, *throws):
        self.throws = list(throws)

    def random(self):
        return self.throws.pop(0)

    def randint(self, low, high):
        return self.throws.pop(0)


def follow(folder, *calls):
    model = DiskModel(folder)
    for call in calls:
        model.apply(call)
    return model


def test_unsynced_bytes_and_names_may_be_lost_and_synced_ones_are_kept(tmp_path):
    path = f"{tmp_path}/new"
    create, write = Call("c", 7, 0, path, b""), Call("w", 7, 0, path, b"x" * 600)
    sync, sync_names = Call("s", 7, 0, path, b""), Call("s", 1, 0, str(tmp_path), b"")
    assert follow(tmp_path, create, write).after_cut(None, 0) == {}
    assert follow(tmp_path, create, write).after_cut(None, 1) == {path: b"x" * 600}
    assert follow(tmp_path, create, write, sync).after_cut(None, 0) == {}  # bytes without a name
    assert follow(tmp_path, create, write, sync_names).after_cut(None, 0) == {path: b""}
    assert follow(tmp_path, create, write, sync, sync_names).after_cut(None, 0) == {path: b"x" * 600}
    torn = follow(tmp_path, create, write).after_cut(Coin(1, 0.9, 0.1), 0.5)  # the second sector alone
    assert torn == {path: b"\0" * 512 + b"x" * 88}


def test_a_removed_file_may_come_back_with_its_bytes_although_its_inode_is_used_again(tmp_path):
    (tmp_path / "old").write_bytes(b"old")
    inode, path, other = (tmp_path / "old").stat().st_ino, f"{tmp_path}/old", f"{tmp_path}/other"
    calls = [Call("u", 0, 0, path, b""), Call("c", inode, 0, other, b""), Call("w", inode, 0, other, b"new")]
    model = follow(tmp_path, *calls)
    assert model.after_cut(None, 0) == {path: b"old"}
    assert model.after_cut(None, 1) == {other: b"new"}
    model.apply(Call("r", 0, 0, other, path.encode()))
    assert model.after_cut(None, 1) == {path: b"new"}
    model.apply(Call("s", 1, 0, str(tmp_path), b""))
    assert model.after_cut(None, 0) == {path: b""}
