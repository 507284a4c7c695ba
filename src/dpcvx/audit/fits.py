"""Replay the fit of an estimator on generated neighbours: sums, questions, and all that the public sees.

The answers of the first fit are given to the second one. Whatever then differs depends on a record without
noise: another question, another size of the noise, another message, plan, statement, shape or file.
"""

from __future__ import annotations

import json
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpcvx.arrays import IntVector
from dpcvx.audit.watch import WatchedAnswer, epsilon_between, mu_between, range_between, watching
from dpcvx.data.cells import open_typed
from dpcvx.errors import DpcvxError, WrongValue
from dpcvx.events import Event, Exponential, Gaussian, PerturbedObjective, Poisson, PureDP, count_leaves

__all__ = [
    "KINDS",
    "FitData",
    "ReplayedFit",
    "hostile_neighbours",
    "is_search",
    "replay_fit",
    "replay_release",
    "search_neighbour",
    "warm_up",
]

LARGEST, SMALLEST = 1.7e308, 5e-324
ROUNDING = 1e-6  # of an allowed distance: answers are float64
# targets of changed rows, where they are not those of other records
TARGETS = {"tiny": SMALLEST, "missing": math.nan, "infinite": -math.inf, "text": "no number"}
KINDS = ("turned around", "other bounds", "huge", "tiny", "missing", "infinite", "text", "permuted")


@dataclass(frozen=True, eq=False)
class FitData:
    """Records of a fit; private where they are a user's."""

    X: Any  # array of shape (n, d)
    y: Any  # shape (n,)
    groups: Any = None  # ids of persons, shape (n,)
    person: str | None = None  # column of X with the ids of persons, if X is a table

    def with_rows(self, places: Any, rows: Any, y: Any) -> FitData:
        """Return the records with other rows and targets in some places."""
        kind = object if np.asarray(rows).dtype == object else np.float64
        X, targets = np.array(self.X, dtype=kind), np.array(self.y, dtype=object)
        X[places], targets[places] = rows, y
        return FitData(X, targets, self.groups)


@dataclass(frozen=True)
class ReplayedFit:
    """Result of one replay."""

    kind: str  # how the neighbour was made
    share: float  # largest distance of exact answers over the allowed one; at most 1
    differences: tuple[str, ...]  # what else differs; empty

    @property
    def holds(self) -> bool:
        """Whether the replay shows no violation."""
        return self.share <= 1 + ROUNDING and not self.differences


def hostile_neighbours(data: FitData, rng: np.random.Generator) -> Iterator[tuple[str, FitData]]:
    """Yield neighbours of some records, one for each of `KINDS`: one row, or all rows of a person, replaced.

    Targets are those of other records, or hostile too. A permutation is no neighbour: it must change nothing
    at all.
    """
    if not isinstance(data.X, np.ndarray):
        yield from _neighbours_of_table(data, rng)
        return
    X, n = data.X, len(data.X)
    place = int(rng.integers(n))
    places = (
        np.flatnonzero(np.asarray(data.groups) == data.groups[place]) if data.groups is not None else [place]
    )
    y = np.asarray(data.y, dtype=object)
    other = y[rng.permutation(n)[: len(places)]]
    rows = X[places].astype(np.float64)
    changed = {
        "turned around": -rows,
        "other bounds": np.sign(rng.normal(size=rows.shape)) * 10.0,
        "huge": np.full(rows.shape, LARGEST) * np.sign(rng.normal(size=rows.shape)),
        "tiny": np.full(rows.shape, SMALLEST),
        "missing": np.full(rows.shape, np.nan),
        "infinite": np.full(rows.shape, np.inf),
        "text": np.full(rows.shape, "no number", dtype=object),
    }
    for kind, new in changed.items():
        yield kind, data.with_rows(places, new, TARGETS.get(kind, other))
    order = rng.permutation(n)
    yield "permuted", FitData(X[order], y[order], None if data.groups is None else data.groups[order])


def _neighbours_of_table(data: FitData, rng: np.random.Generator) -> Iterator[tuple[str, FitData]]:
    """Yield neighbours of a table: one row, or all rows of a person, with other cells; another order.

    A person keeps the id: a row that took the id of another person would change the rows of two persons.
    """
    n = len(data.y)
    for _ in range(4):
        places, targets, changed = np.arange(n), np.arange(n), _rows_of_one(data, rng)
        places[changed], targets[changed] = rng.integers(n, size=(2, len(changed)))
        yield "another row", replace(data, X=_with_ids(data, places), y=_taken(data.y, targets))
    for kind, cell in (("huge", LARGEST), ("missing", np.nan), ("infinite", -np.inf)):
        yield kind, replace(data, X=_with_cells(data, _rows_of_one(data, rng), cell))
    order = rng.permutation(n)
    yield "permuted", replace(data, X=_taken(data.X, order), y=_taken(data.y, order))


def _rows_of_one(data: FitData, rng: np.random.Generator) -> IntVector:
    """Return the indices of all rows of the person of a random row; only that row if it has no id."""
    place = rng.integers(len(data.y))
    if data.person is None:
        return np.array([place])
    ids = open_typed(data.X)[data.person].to_numpy()
    rows = np.flatnonzero(ids == ids[place])
    return rows if rows.size else np.array([place])


def _with_ids(data: FitData, places: IntVector) -> Any:
    """Return the rows at these indices, with the ids of persons in their original order."""
    if data.person is None:
        return _taken(data.X, places)
    typed = open_typed(data.X)
    return typed[places].with_columns(typed[data.person]).to_native()


def _with_cells(data: FitData, places: IntVector, cell: float) -> Any:
    """Return a copy of a table in which floating-point cells of some rows, except ids, are replaced."""
    import narwhals as nw

    typed, changed = open_typed(data.X), []
    for name, kind in typed.schema.items():
        if kind.is_float() and name != data.person:
            cells = typed[name].to_numpy().astype(np.float64)
            cells[places] = cell
            changed.append(nw.new_series(name, cells, backend=typed.implementation))
    return typed.with_columns(*changed).to_native()


def _taken(values: Any, places: IntVector) -> Any:
    """Rows of a table or cells of a column, in some order."""
    import narwhals as nw

    typed = open_typed(values)
    if isinstance(typed, nw.DataFrame | nw.Series):
        return typed[places].to_native()
    return np.asarray(values)[places]


def is_search(model: Any) -> bool:
    """Whether a model is a private search over others."""
    return hasattr(model, "param_grid")


def warm_up(make: Callable[[], Any], data: FitData) -> None:
    """Fit an estimator once without recording, so that the rehearsals of its plan are memoised.

    A plan rehearses runs on public problems, once in a process. If the first fit were recorded, their
    answers would be among those about the records, and the second fit, which does not rehearse again, would
    differ.
    """
    _published(make(), data)


def replay_fit(
    make: Callable[[], Any], one: FitData, other: FitData, kind: str, seed: int = 0
) -> ReplayedFit:
    """Fit a new estimator to some records, and to others with the answers frozen; compare everything.

    `make`: returns the unfitted estimator; see `warm_up`.
    """
    return replay_release(lambda data: _published(make(), data), one, other, kind, seed)


def replay_release(
    publish: Callable[[Any], dict[str, Any]], one: Any, other: Any, kind: str, seed: int = 0
) -> ReplayedFit:
    """Make a release from some records, and from others with the answers frozen; compare everything.

    `publish`: returns all that an outsider sees, by name, "error" if the records are refused, and as
    "plan object" the plan, or None if every answer has an event of its own.
    """
    with watching(seed) as first:
        seen = publish(one)
    with watching(seed, first) as second:
        also = publish(other)
    if "error" in seen:  # two equal refusals would show nothing
        return ReplayedFit(kind, 0.0, (f"no fit to replay: {seen['error']}",))
    differences = [name for name in seen if seen[name] != also.get(name)]
    if [each.question for each in first.answers] != [each.question for each in second.answers]:
        differences.append("questions")
    differences = [name for name in differences if name != "plan object"]
    limits = _limits(seen["plan object"])
    pairs = zip(first.answers, second.answers, strict=False)
    share = max((_share(a, b, limits) for a, b in pairs), default=0.0)
    if kind == "permuted" and share > ROUNDING:
        differences.append("sums of the same records in another order")
    return ReplayedFit(kind, share, tuple(differences))


def search_neighbour(
    make: Callable[[], Any], data: FitData, rng: np.random.Generator, tries: int = 12
) -> ReplayedFit:
    """Search, by random changes of one record that are kept if they help, for the worst neighbour."""
    place = len(data.X) - 1
    rows, best = np.asarray(data.X, dtype=np.float64)[[place]], None
    for _ in range(tries):
        scale = 10.0 ** rng.integers(-1, 3)
        candidate = rows + scale * rng.normal(size=rows.shape)
        target = np.asarray(data.y, dtype=object)[rng.integers(len(data.y))]
        found = replay_fit(make, data, data.with_rows([place], candidate, target), "searched")
        if best is None or found.share > best.share:
            rows, best = candidate, found
    if best is None:
        raise WrongValue("tries must be at least 1.")
    return best


def _published(model: Any, data: FitData) -> dict[str, Any]:
    """Fit a model or a search; return all that an outsider sees: messages, plan, statement, shapes, file."""
    found: dict[str, Any] = {"plan object": None}
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            if data.groups is None:
                model.fit(data.X, data.y)
            else:
                model.fit(data.X, data.y, groups=data.groups)
        except DpcvxError as error:
            return found | {"error": f"{type(error).__name__}: {error}"}
        except Exception as error:  # an unexpected error depends on a cell
            return found | {"error": f"unexpected {type(error).__name__}"}
    if hasattr(model, "best_estimator_"):
        found["chosen"] = repr((model.best_params_, model.best_score_, model.best_score_error_))
        model = model.best_estimator_
    found["plan object"] = model.plan_
    found["warnings"] = sorted(str(each.message) for each in heard)
    found["plan"] = str(model.plan_)
    found["statement"] = json.dumps(model.privacy_statement_.to_dict(), sort_keys=True, default=str)
    released = {name: value for name, value in vars(model).items() if name.endswith("_")}
    found["shapes and types"] = {
        name: (type(value).__name__, np.shape(value), str(getattr(value, "dtype", "")))
        for name, value in released.items()
        if isinstance(value, np.ndarray | float | int | str)
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save(path)
        found["file"] = path.read_bytes()
    return found


def _limits(plan: Any) -> Callable[[WatchedAnswer], float]:
    """Return the largest mu, range or epsilon that each answer of a plan is allowed."""
    before = [] if plan is None else [stage.mechanism.event for stage in plan.before]

    def limit(answer: WatchedAnswer) -> float:
        events = before if answer.event is None else [answer.event]
        return max((_largest(event, answer.kind) for event in events), default=0.0)

    return limit


def _largest(event: Event, kind: str) -> float:
    """Return mu of an event's Gaussian releases together, or the range of its selections."""
    leaves = count_leaves(event)
    if any(isinstance(leaf, PerturbedObjective) for leaf in leaves):
        return math.inf  # its noise is inside the objective: exact densities are for it
    if kind == "selection":
        return max((leaf.eta for leaf in leaves if isinstance(leaf, Exponential)), default=0.0)
    if kind == "laplace":
        return math.fsum(count * leaf.epsilon for leaf, count in leaves.items() if isinstance(leaf, PureDP))
    squares = 0.0
    for leaf, count in leaves.items():
        if isinstance(leaf, Gaussian):
            squares += count / leaf.noise_multiplier**2
        if isinstance(leaf, Poisson):  # for the same sample
            squares += count * ((2 if leaf.relation == "replace" else 1) / leaf.noise_multiplier) ** 2
    return math.sqrt(squares)


def _share(one: WatchedAnswer, other: WatchedAnswer, limit: Callable[[WatchedAnswer], float]) -> float:
    if one.kind != other.kind:
        return math.inf
    if one.kind == "comparison":
        return float(abs(one.exact - other.exact).max() / one.deviations[0])
    measure = {"gaussian": mu_between, "selection": range_between, "laplace": epsilon_between}.get(one.kind)
    if measure is None:
        return 0.0
    moved, allowed = measure(one, other), limit(one)
    if math.isinf(allowed):
        return 0.0
    return moved / allowed if allowed else (math.inf if moved else 0.0)
