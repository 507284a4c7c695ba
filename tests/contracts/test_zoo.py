"""Everything that is registered is in the zoo, exported and documented: nothing escapes the contracts."""

import re
from pathlib import Path

import pytest

import dpcvx
from dpcvx import accounting, domains, losses, mechanisms, solvers
from dpcvx.accounting import Neighbours
from dpcvx.cli import main
from dpcvx.domains import SETS
from dpcvx.estimators.registry import COMMANDS, ESTIMATORS
from dpcvx.losses import LOSSES
from dpcvx.solvers import NAMED_SOLVERS, SOLVERS
from zoo import ALL_ACCOUNTANTS, ALL_DOMAINS, ALL_LOSSES, ALL_MECHANISMS

ROOT = Path(__file__).parents[2]
README, API, CLI = ((ROOT / name).read_text() for name in ("README.md", "docs/api.md", "docs/cli.md"))
REGISTERED = {
    "losses": {kind.__name__ for kind in LOSSES},
    "sets": {kind.__name__ for kind in SETS},
    "solvers": {kind.__name__ for kind in SOLVERS},
    "estimators": set(ESTIMATORS),
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
    # These two wrap another solver; plans and estimators build them.
    assert kinds_of(solvers, "plan", "run") - {"Standardised", "OneStep"} == REGISTERED["solvers"]


@pytest.mark.parametrize("registry", REGISTERED)
def test_what_is_registered_is_exported_and_in_the_reference(registry):
    names = REGISTERED[registry]
    assert names
    assert not names - set(dpcvx.__all__)
    assert not {name for name in names if not re.search(rf"\b{name}\b", API)}


def test_the_readme_and_the_page_of_commands_name_every_estimator():
    inside = README.split("## What is inside")[1].split("\n## ")[0]
    assert not {name for name in ESTIMATORS if name not in inside}
    assert not {command for command in COMMANDS if not re.search(rf"\b{command}\b", CLI)}


def test_help_names_every_estimator(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["dpcvx", "fit", "--help"])
    with pytest.raises(SystemExit):
        main()
    assert not set(COMMANDS) - set(re.findall(r"[\w-]+", capsys.readouterr().out))


def test_the_message_about_an_unknown_solver_names_all_of_them():
    model = dpcvx.PrivateLasso(epsilon=1.0, bounds=(0, 1), y_bounds=(0, 1), solver="newton")
    with pytest.raises(ValueError, match="newton") as refused:
        model.fit([[0.5]] * 9, [0.5] * 9)
    assert not set(NAMED_SOLVERS) - set(re.findall(r"\w+", str(refused.value)))
