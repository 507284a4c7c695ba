"""Without torch only backend="torch" is missing, and it says what to install before anything is charged."""

import subprocess
import sys

import numpy as np
import pytest

import dpcvx
from dpcvx import gpu as device
from dpcvx.domains import NuclearBall
from dpcvx.errors import Incompatible
from dpcvx.ledger import Ledger
from dpcvx.queries import Attribute, QueryEngine, Schema

NEEDS = r'needs torch, which is not installed: pip install "dpcvx\[torch\]", or use backend="auto"'


class NoTorch:
    """A finder that comes first and has no torch."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'")


@pytest.fixture
def no_torch(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "meta_path", [NoTorch, *sys.meta_path])
    device.find_device.cache_clear()
    yield
    device.find_device.cache_clear()


def test_a_fit_is_refused_before_it_is_charged(no_torch, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    account = ledger.create("people", epsilon=1.0, delta=1e-6)
    model = dpcvx.PrivateLogisticRegression(
        epsilon=1.0, bounds=(0, 1), classes=(0, 1), backend="torch", ledger=ledger, account="people"
    )
    with pytest.raises(Incompatible, match=NEEDS):
        model.fit(np.ones((5000, 2)), np.arange(5000) % 2)
    assert account.remaining() == pytest.approx(1.0)


def test_engines_and_nuclear_balls_are_refused(no_torch):
    with pytest.raises(Incompatible, match=NEEDS):
        NuclearBall(1.0, backend="torch")
    schema = Schema((Attribute("a", ("0", "1"), "1"),))
    with pytest.raises(Incompatible, match=NEEDS):
        QueryEngine(schema, {"a": ["0"] * 10}, dpcvx.Budget(1.0, 1e-6), backend="torch")


@pytest.mark.long
def test_the_automatic_backend_never_imports_torch():
    script = """
import sys, numpy as np, dpcvx
X = np.random.default_rng(0).random((2000, 3))
dpcvx.PrivateLowRankRegression(epsilon=1.0, bounds=(0, 1), y_bounds=(0, 1), radius=1.0).fit(X, X)
schema = dpcvx.Schema((dpcvx.Attribute("a", (0, 1)),))
dpcvx.QueryEngine(schema, {"a": np.arange(100) % 2}, dpcvx.Budget(1.0, 1e-6))
assert not {"torch", "triton"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
