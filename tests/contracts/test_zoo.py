"""Everything that is registered is in the zoo, exported and documented: nothing escapes the contracts."""

import re
from importlib import import_module
from pathlib import Path

import pytest

import dpcvx
from dpcvx import accounting, domains, losses, mechanisms, solvers
from dpcvx.accounting import Neighbours
from dpcvx.cli import main
from dpcvx.domains import SETS
from dpcvx.estimators.registry import COMMANDS, ESTIMATORS, ROW_ESTIMATORS
from dpcvx.losses import LOSSES
from dpcvx.solvers import NAMED_SOLVERS, SOLVERS
from zoo import ALL_ACCOUNTANTS, ALL_DOMAINS, ALL_LOSSES, ALL_MECHANISMS

ROOT = Path(__file__).parents[2]
API = (ROOT / "docs" / "api.md").read_text()
REGISTERED = {
    "losses": {kind.__name__ for kind in LOSSES},
    "sets": {kind.__name__ for kind in SETS},
    "solvers": {kind.__name__ for kind in SOLVERS},
    "estimators": {*ESTIMATORS, *ROW_ESTIMATORS},
}


def kinds_of(room, *abilities):
    """Public classes of a room that have all of the named attributes; protocols are none."""
    found = {name: getattr(room, name) for name in room.__all__}
    return {
        name
        for name, kind in found.items()
        if isinstance(kind, type)
        and not getattr(kind, "_is_protocol", False)
        and all(hasattr(kind, ability) for ability in abilities)
    }


def test_the_zoo_has_one_of_each():
    assert {type(loss).__name__ for loss in ALL_LOSSES} == REGISTERED["losses"]
    assert {type(C).__name__ for C, _ in ALL_DOMAINS} >= REGISTERED["sets"]
    mechanisms_here = {type(make(Neighbours())).__name__ for make in ALL_MECHANISMS.values()}
    assert mechanisms_here == kinds_of(mechanisms, "sensitivity", "event") - {"GaussianMechanism"}
    priced = kinds_of(accounting, "epsilon", "supports") - {"Following"}  # which wraps another accountant
    assert {type(one).__name__ for one in ALL_ACCOUNTANTS} == priced


def test_every_class_of_a_room_is_registered():
    assert kinds_of(losses, "value", "grad", "lipschitz") == REGISTERED["losses"]
    assert kinds_of(domains, "contains", "gaussian_width") == REGISTERED["sets"]
    # Plans and estimators build these: four wrap another solver, one releases a mean and fits nothing.
    built = {"Standardised", "ScaledTarget", "OneStep", "SpectralShrinkage", "ConstantModel"}
    assert kinds_of(solvers, "plan", "run") - built == REGISTERED["solvers"]


@pytest.mark.parametrize("registry", REGISTERED)
def test_every_registered_class_is_in_the_reference(registry):
    """By its own line, or with its whole module."""
    modules = [import_module(name) for name in re.findall(r"automodule:: (\S+)", API)]
    shown = {name for module in modules for name in getattr(module, "__all__", vars(module))}
    shown |= set(re.findall(r"autoclass:: (?:\w+\.)*(\w+)", API))
    assert REGISTERED[registry]
    assert not REGISTERED[registry] - shown


def test_every_estimator_is_a_public_name():
    assert not set(ESTIMATORS) - set(dpcvx.__all__)


def test_help_names_every_estimator(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["dpcvx", "fit", "--help"])
    with pytest.raises(SystemExit):
        main()
    assert not set(COMMANDS) - set(re.findall(r"[\w-]+", capsys.readouterr().out))


def test_the_message_about_an_unknown_solver_names_all_of_them():
    model = dpcvx.PrivateLasso(epsilon=1.0, bounds=(0, 1), y_bounds=(0, 1), solver="unheard_of")
    with pytest.raises(ValueError, match="unheard_of") as refused:
        model.fit([[0.5]] * 9, [0.5] * 9)
    assert not set(NAMED_SOLVERS) - set(re.findall(r"\w+", str(refused.value)))
