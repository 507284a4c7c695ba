"""The settings with the best noisy score, for one total price.

One run draws a setting, fits it and scores it with noise; a random number of runs is made and the best one is
released. The price depends on one run and on the law of that number (PRIVACY_MATH §15), never on what
happened.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.pipeline import Pipeline

from dpcvx.accounting import (
    GDP,
    RDP,
    Accountant,
    Budget,
    Following,
    Tight,
    calibrate,
    default_delta,
    gaussian_epsilon,
    spendable,
    warn_of_delta,
)
from dpcvx.arrays import IntVector, Vector
from dpcvx.data.cells import open_typed
from dpcvx.data.dataset import Dataset, InMemory, open_dataset
from dpcvx.data.target import Labels
from dpcvx.data.units import Units, persons, take_column
from dpcvx.errors import (
    Incompatible,
    NotAccountable,
    UnrecognisedDataWarning,
    UselessModelWarning,
    WrongType,
    WrongValue,
)
from dpcvx.estimators import DataCheck, LinearModel, check_stages, declare_fit, fit_silently, release_check
from dpcvx.events import Compose, Event, Gaussian, RepeatAndSelect, Worst
from dpcvx.noise import Generator, exponential, generator_of
from dpcvx.planning.outlook import is_useful
from dpcvx.plans import Answers, Plan, Price, Stage, charge
from dpcvx.plans.statement import PrivacyStatement
from dpcvx.solvers.defaults import default
from dpcvx.tuning.joined_pipeline import JoinedPipeline
from dpcvx.tuning.metrics import metric_of
from dpcvx.tuning.ratios import CHANCE, Interval
from dpcvx.tuning.repetitions import LAW_FAILURE, LAWS, repetitions
from dpcvx.tuning.score import NoisyScore, interval_words
from dpcvx.words import is_number, quantity, show

__all__ = ["TuningResult", "private_tune"]

PAID = ("epsilon", "delta", "ledger", "account", "random_state")  # of the search, not of one setting
# Scores of different settings must be of one kind; the data are checked once, for all of them.
FIXED = (*PAID, "classes", "y_bounds", "check", "verbose", "person", "persons", "max_rows", "weight_bounds")
IN_MEMORY = ("auto", "torch")  # backends that open arrays and tables
DRAWN_TRIALS: float = default("tuning.tune.DRAWN_TRIALS")
TRIALS_PER_SETTING: float = default("tuning.tune.TRIALS_PER_SETTING")
DRAWN_PER_TRIAL: int = default("tuning.tune.DRAWN_PER_TRIAL")
SCORE_SHARE: float = default("tuning.tune.SCORE_SHARE")
MARGIN = 1e-3  # of the noise, beyond what the last excess of the total asks for


@dataclass(frozen=True)
class TuningResult:
    """Released result of a search.

    Parameters
    ----------
    model : estimator
        The best run's model. Its statement is that of the search.
    params : dict
        Its setting.
    score : float
        Its noisy score; of many noisy scores the best is more likely too good than too bad. NaN if the noise
        hides it.
    standard_error : float
        Of the noise on the score alone, as in `private_score`.
    interval : tuple of float
        95 % interval of the score without noise, wide enough for the choice of the best of many.
    statement : PrivacyStatement
        The price of the whole search.
    """

    model: Any
    params: dict[str, Any]
    score: float
    standard_error: float
    interval: Interval
    statement: PrivacyStatement

    def __str__(self) -> str:
        ends = interval_words(self.interval)
        if math.isnan(self.score):
            return f"score of {self.params}: hidden by noise (95 % interval {ends})"
        return (
            f"score of {self.params}: {self.score:.6g} (noise: standard error {self.standard_error:.2g}, "
            f"95 % interval {ends})"
        )


@dataclass(frozen=True)
class _PricedSearch:
    """An estimator for each setting, with what a run may spend; its plan; the score; the search's price."""

    models: tuple[Any, ...]
    plans: tuple[Plan, ...]
    score: NoisyScore
    price: Price


def private_tune(
    estimator: Any,
    param_grid: Any,
    X: Any,
    y: Any,
    *,
    groups: Any = None,
    epsilon: float | None = None,
    delta: float | None = None,
    scoring: str | None = None,
    n_trials: float | None = None,
    distribution: str = "geometric",
    test_size: float | None = 0.2,
    ledger: Any = None,
    account: str | None = None,
    random_state: Any = None,
) -> TuningResult:
    """Choose settings of an estimator on private rows, and fit it: everything together costs epsilon.

    Parameters
    ----------
    estimator, param_grid
        As for `PrivateSearchCV`, which describes the keywords too.
    X, y : as for ``estimator.fit``
        Private rows, one per person unless there are ``groups``, or a column that ``person`` names.
    groups : array-like, shape (n,), optional
        Id of each row's person: rows are split, fitted and scored by person.

    Returns
    -------
    TuningResult
    """
    if isinstance(estimator, Pipeline):
        joined = JoinedPipeline.of(estimator)
        own_grid, outer = joined.own_grid(param_grid)
        tuned = private_tune(
            joined.model,
            own_grid,
            X,
            y,
            groups=groups,
            epsilon=epsilon,
            delta=delta,
            scoring=scoring,
            n_trials=n_trials,
            distribution=distribution,
            test_size=test_size,
            ledger=ledger,
            account=account,
            random_state=random_state,
        )
        params = {outer[name]: value for name, value in tuned.params.items()}
        return dataclasses.replace(
            tuned, model=joined.with_model(tuned.model, tuned.params, X), params=params
        )
    given = dict(zip(PAID, (epsilon, delta, ledger, account, random_state), strict=True))
    if isinstance(X, Dataset) or getattr(estimator, "backend", "auto") not in IN_MEMORY:
        raise Incompatible("Private tuning splits rows that are in memory: give arrays or tables.")
    base = _base(estimator, given)
    rng = generator_of(base.random_state)
    mean, candidates = _candidates(base, param_grid, n_trials, rng)
    if distribution not in LAWS:
        raise WrongValue(f"distribution must be one of {', '.join(LAWS)}, got {distribution!r}.")
    X, dataset = _open(base, X, y, groups)
    neighbours = dataset.neighbours
    kept = neighbours.rows
    n = dataset.n // kept
    n_test = _test_units(test_size, n, neighbours.noun)
    declared = declare_fit(base, dataset, dataset.n)
    columns, target = declared.columns, declared.target
    budget = Budget(
        float(base.epsilon),
        default_delta(n) if base.delta is None else base.delta,
        neighbours.relation,
        neighbours.unit,
        kept,
        neighbours.weight,
    )
    check, note = check_stages(dataset, columns, target, dataset.n, budget, float(base.check))
    base.set_params(check=0)
    labels = target.classes if isinstance(target, Labels) else None
    if labels is not None:
        base.set_params(classes=labels.tolist())  # also those that one part of the rows lacks
    metric = metric_of(base, scoring, n_classes=0 if labels is None else len(labels))
    priced = _price(
        [clone(base).set_params(**params) for params in candidates],
        dataset,
        NoisyScore(metric, n_test or n, Gaussian(1.0), dataclasses.replace(neighbours, rows=1)),
        (n - n_test) * kept,
        budget,
        (mean, LAWS[distribution]),
        check,
    )
    warn_of_delta(budget.delta, n, neighbours.noun, stacklevel=2)
    _warn_if_useless(priced, quantity(n - n_test, neighbours.noun))
    purpose = f"search of {len(candidates)} settings of {type(base).__name__} on {n} {neighbours.noun}s"
    receipt = charge(priced.price, base.ledger, base.account, private=rng.private, purpose=purpose)

    checked = release_check(check, dataset, columns, target, Answers(rng))
    train, test = _split(X, y, (n, n_test), rng, dataset.units)
    place, model, _, totals = _best(priced, repetitions(mean, LAWS[distribution], rng), train, test, rng)
    # Union bound: some of K trials has so large a noise with at most E[K] times the probability of one trial.
    found = priced.score.measured(totals, CHANCE / mean)
    chosen = candidates[place]
    parts = (*priced.plans[place].price.parts, *priced.price.parts)
    own = model.privacy_statement_
    statement = PrivacyStatement.of(
        dataclasses.replace(priced.price, parts=parts),
        model=f"{type(base).__name__}, chosen by private tuning",
        private=rng.private,
        bounds={
            **own.bounds,
            **target.facts,
            **_check_facts(checked, note),
            **({} if dataset.units is None else dataset.units.facts),
        },
        public={
            **own.public,
            "n" if neighbours.unit == "row" else "persons": n,
            "fitted_to": n - n_test,
            "scored_on": n_test or n,
            "settings": len(candidates),
            "chosen": {name: repr(setting) for name, setting in chosen.items()},
            "delta_rule": own.public["delta_rule"] if base.delta is None else "given",
        },
        receipt=receipt,
    )
    law = f"{distribution} law, {mean:g} on average"
    words = (
        f"chosen among {quantity(len(candidates), 'setting')}, tried a random number of times ({law}), by "
        "the noisy score above; each trial asked the questions, and epsilon and delta cover the whole "
        "search; how many trials there were is not published"
    )
    model.privacy_statement_ = dataclasses.replace(statement, tuning=words)
    model.check_ = checked
    if checked is not None and checked.warning:
        warnings.warn(checked.warning, UnrecognisedDataWarning, stacklevel=2)
    if found.hidden:
        warnings.warn(
            "The noise hides the score of the chosen setting, so the choice is little better than a random "
            f"one. The score is between {found.interval[0]:.3g} and {found.interval[1]:.3g} with 95 % "
            "confidence. Use more records, a larger epsilon, fewer trials or narrower bounds of the target.",
            UselessModelWarning,
            stacklevel=2,
        )
    score = math.nan if found.hidden else found.value
    statement = model.privacy_statement_
    return TuningResult(model, dict(chosen), score, found.standard_error, found.interval, statement)


def _check_facts(checked: DataCheck | None, note: str) -> dict[str, str]:
    """Entry of the privacy statement about the check of the data."""
    words = note if checked is None else checked.summary
    return {"check": words} if words else {}


def _open(base: Any, X: Any, y: Any, groups: Any) -> tuple[Any, InMemory]:
    """Return rows without a column of persons, and their data set."""
    if base.weight_bounds is not None:
        raise Incompatible(
            "A private search takes no weights: leave weight_bounds out, or fit the model alone."
        )
    if base.person is not None:
        if groups is not None:
            raise Incompatible("groups and person both give the ids of persons: give one of them.")
        X, groups = take_column(X, base.person)
    dataset = open_dataset(X, y, base.backend, base.schema)
    if not isinstance(dataset, InMemory):
        raise Incompatible("Private tuning splits rows that are in memory: give arrays or tables.")
    if groups is not None:
        dataset.weigh_by(persons(groups, declared=base.persons, max_rows=base.max_rows))
    elif base.persons is not None or base.max_rows is not None:
        raise Incompatible("persons and max_rows need the ids of persons: set person, or give groups=ids.")
    return X, dataset


def _warn_if_useless(priced: _PricedSearch, size: str) -> None:
    """Warn, from public facts, if no setting is predicted to learn from so many records."""
    if not any(map(is_useful, priced.plans)):
        warnings.warn(
            f"With {size} and epsilon {priced.models[0].epsilon:.2g} for one trial, "
            "none of the settings is predicted to do better than a model that gives everybody the same "
            "answer. Fewer trials, a larger epsilon or more records would help. This follows from public "
            "numbers.",
            UselessModelWarning,
            stacklevel=3,
        )


def _split(
    X: Any, y: Any, sizes: tuple[int, int], rng: Generator, units: Units | None = None
) -> tuple[tuple[Any, Any, Units | None], ...]:
    """Rows for fits and rows for scores, by a random permutation; all rows for both where none are kept.

    Persons are permuted where rows have persons. The permutation is not released: which number a person has
    depends on the order of the rows, and every order of the numbers is as likely.

    `sizes`: number of rows or persons, and of those that are kept for scores.
    """
    n, n_test = sizes
    places = np.random.Generator(np.random.Philox(key=rng.words(2))).permutation(n)
    sides = (places[n_test:], places[:n_test]) if n_test else (places, places)
    if units is None or units.owners is None:
        return tuple((_rows(X, side), _rows(y, side), None) for side in sides)
    return tuple(
        _of_persons(X, y, side, units.owners, None if units.choose is None else units.neighbours.rows)
        for side in sides
    )


def _of_persons(
    X: Any, y: Any, side: IntVector, owners: IntVector, max_rows: int | None
) -> tuple[Any, Any, Units]:
    """Rows of some persons; a row of nobody where they have none, which must not raise an error."""
    found = np.flatnonzero(np.isin(owners, side))
    ids: Any = owners[found] if len(found) else [None]
    places = found if len(found) else np.zeros(1, dtype=np.int64)
    return _rows(X, places), _rows(y, places), persons(ids, declared=len(side), max_rows=max_rows)


def _base(estimator: Any, given: Mapping[str, Any]) -> Any:
    """A copy of the estimator with the price of the search."""
    if not isinstance(estimator, LinearModel):
        raise WrongType(
            f"Private tuning needs an estimator of dpcvx, got {type(estimator).__name__}: the cost of a fit "
            "must be known before it."
        )
    base: Any = clone(estimator)
    for name, value in given.items():
        own = getattr(base, name)
        if value is not None and own is not None and value != own:
            raise WrongValue(
                f"{name} of the search is {value!r}, that of its estimator {own!r}: the search pays for "
                "everything, so give one of them."
            )
    base.set_params(**{name: value for name, value in given.items() if value is not None}, verbose=0)
    return base


def _candidates(
    base: Any, param_grid: Any, n_trials: float | None, rng: Generator
) -> tuple[float, list[dict[str, Any]]]:
    """Expected number of trials, and the settings to try, all of them public."""
    grids = [param_grid] if isinstance(param_grid, Mapping) else param_grid
    if not isinstance(grids, Sequence) or not grids or not all(isinstance(g, Mapping) and g for g in grids):
        raise WrongValue(
            f"param_grid must be a dict of lists or distributions, or a list of such, got {show(param_grid)}."
        )
    for name in sorted({name for grid in grids for name in grid}):
        if name in FIXED or name not in base.get_params():
            reason = "is not tuned: it is the same in every trial" if name in FIXED else "is no parameter"
            raise WrongValue(f"{name} {reason} of {type(base).__name__}.")
    if n_trials is not None and not is_number(n_trials, 1, math.inf):
        raise WrongValue(f"n_trials must be a number above 1, got {show(n_trials)}.")
    if any(hasattr(values, "rvs") for grid in grids for values in grid.values()):
        mean = DRAWN_TRIALS if n_trials is None else float(n_trials)
        seed = int(rng.words(1)[0] >> np.uint64(33))
        count = math.ceil(DRAWN_PER_TRIAL * mean)
        return mean, list(ParameterSampler(param_grid, count, random_state=seed))
    listed = list(ParameterGrid(param_grid))
    return TRIALS_PER_SETTING * len(listed) if n_trials is None else float(n_trials), listed


def _test_units(test_size: float | None, n: int, noun: str) -> int:
    if test_size is None:
        return 0
    if not is_number(test_size, 0, 1):
        raise WrongValue(
            f"test_size must be a share of the rows between 0 and 1, or None, got {show(test_size)}."
        )
    if not 0 < (count := round(test_size * n)) < n:
        unit = "row" if noun == "record" else noun
        raise WrongValue(f"test_size={test_size:g} of {quantity(n, unit)} leaves one part empty.")
    return count


def _price(
    models: list[Any],
    dataset: Dataset,
    score: NoisyScore,
    n_train: int,
    budget: Budget,
    law: tuple[float, float | None],
    check: tuple[Stage, ...] = (),
) -> _PricedSearch:
    """Give every setting the same budget of a run, the largest with which the search keeps its own.

    The reference is a Gaussian run. A held-out score is such a run, and a fit beside it works on other rows,
    so each row meets the worse of both (`Worst`); a score on the rows of the fit is composed with it. The
    reference covers fits with Gaussian noise; others add their curves, and the noise of all grows until the
    worst of everything that may run is within the budget. The check of the data is asked once, before all.
    """
    paid = spendable(budget)
    asked = tuple(stage.mechanism.event for stage in check)
    accountant: Accountant = Following(Compose(asked), Tight()) if asked else Tight()
    held_out = n_train < dataset.n
    share = 0.0 if held_out else SCORE_SHARE
    noise = calibrate(lambda t: RepeatAndSelect(Gaussian(t), *law), paid, accountant)
    while True:
        reference = Gaussian(noise)
        score = dataclasses.replace(score, law=Gaussian(noise if held_out else noise / math.sqrt(share)))
        epsilon = gaussian_epsilon(math.sqrt(1 - share) / noise, paid.delta)
        plans = []
        others: dict[Event, None] = {}  # runs that the reference does not cover, each once
        for model in models:
            model.set_params(epsilon=epsilon, delta=budget.delta)
            plan = declare_fit(model, dataset, n_train).plan
            run = plan.event if held_out else Compose((plan.event, score.event))
            if not RDP().supports(run):
                raise NotAccountable(
                    f"No rule covers the best of several runs of {type(plan.solver).__name__}, which samples "
                    "records. Tune another solver."
                )
            if not _within(run, reference, paid.delta):
                others[run] = None
            plans.append(plan)
        event = RepeatAndSelect(Worst((reference, *others)) if others else reference, *law)
        total = accountant.epsilon(event, paid.delta)
        if total <= budget.epsilon:
            break
        noise *= (1 + MARGIN) * total / budget.epsilon
    failure = law[0] * (max(plan.price.failure for plan in plans) + score.failure) + LAW_FAILURE
    failure += math.fsum(stage.mechanism.failure for stage in check)
    parts = tuple(stage.description for stage in (*check, Stage(score, 1)))
    price = Price(Compose((*asked, event)) if asked else event, parts, failure, budget)
    price.check_samplers()
    price.check_budget()
    return _PricedSearch(tuple(models), tuple(plans), score, price)


def _within(run: Event, reference: Gaussian, delta: float) -> bool:
    """Say whether Gaussian releases have no larger mu than the reference, to the last digits."""
    return GDP().supports(run) and GDP().epsilon(run, delta) <= GDP().epsilon(reference, delta)


def _best(
    priced: _PricedSearch,
    count: int,
    train: tuple[Any, Any, Units | None],
    test: tuple[Any, Any, Units | None],
    rng: Generator,
) -> tuple[int, Any, float, Vector]:
    """The first of the runs with the largest noisy score: its setting's place, model, score and totals.

    Nothing else leaves: not the number of runs, the other settings, nor their scores.
    """
    best: tuple[int, Any, float, Vector] | None = None
    score = priced.score
    for _ in range(count):
        place = exponential.select(np.zeros(len(priced.models)), rng)
        seed = None if rng.private else int(rng.words(1)[0] >> np.uint64(33))
        model = clone(priced.models[place]).set_params(ledger=None, account=None, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries; one for each run would tell how many there were
            fit_silently(model, *train)
        if model.plan_.event != priced.plans[place].event:
            raise RuntimeError("A fit was planned otherwise than it was paid for; nothing is released.")
        X, y, people = test
        weights = None if people is None else people.shares
        totals = score(model, X, y, rng, weights)
        value = score.metric.value(totals, score.n)
        if best is None or value > best[2]:
            best = place, model, value, totals
    if best is None:
        raise RuntimeError("A search makes at least one run.")
    return best


def _rows(values: Any, places: NDArray[np.int64]) -> Any:
    """Some rows of a table, or cells of a target, in whatever form they came."""
    import narwhals as nw

    typed = open_typed(values)
    if isinstance(typed, nw.DataFrame | nw.Series):
        return typed[places].to_native()
    if hasattr(values, "tocsr"):
        return values.tocsr()[places]
    if hasattr(values, "__array__"):
        return values[places]
    return [values[place] for place in places]
