"""The audit of `dpcvx audit`: all checks together, as text, JSON, and an HTML page with a plot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpcvx.audit.densities import DensityTest, density_tests
from dpcvx.audit.distinguish import CONFIDENCE
from dpcvx.audit.examples import example_engines, example_fits, example_solvers
from dpcvx.audit.fits import (
    LARGEST,
    FitData,
    ReplayedFit,
    hostile_neighbours,
    is_search,
    replay_fit,
    replay_release,
    search_neighbour,
    warm_up,
)
from dpcvx.audit.laws import LawTest, law_tests
from dpcvx.audit.one_run import OneRunAudit, audit_one_run
from dpcvx.audit.times import TimeTest, time_test
from dpcvx.audit.worst_cases import CASES, AuditedCase, WorstCase, audit_case, sparse_vector_epsilon
from dpcvx.errors import WrongValue
from dpcvx.noise import SeededGenerator
from dpcvx.words import align_columns

__all__ = ["AuditReport", "AuditedFit", "CaseWithControls", "audit", "audit_fit", "audit_model"]

LEAST_RUNS = 20
PRIVATE = "PRIVATE: this audit has read records. Its numbers depend on them without noise; do not publish it."
PUBLIC = "No record of anybody was read: all data were generated."


@dataclass(frozen=True)
class CaseWithControls:
    """A worst case, and the two controls that show whether its audit can be trusted."""

    case: AuditedCase
    same_data: float  # audited epsilon where both data sets are the same: 0
    half_noise: float  # audited epsilon with half of the noise: above the claim

    @property
    def holds(self) -> bool:
        """Whether the claim holds, and both controls are as they must be."""
        return self.case.holds and self.same_data == 0 and self.half_noise > self.case.claimed


@dataclass(frozen=True)
class AuditedFit:
    """Replays of one estimator."""

    name: str
    replays: tuple[ReplayedFit, ...]

    @property
    def share(self) -> float:
        """Largest distance of exact answers over the allowed one."""
        return max(each.share for each in self.replays)

    @property
    def differences(self) -> tuple[str, ...]:
        """All that differed where nothing may."""
        return tuple(sorted({found for each in self.replays for found in each.differences}))

    @property
    def holds(self) -> bool:
        """Whether no replay shows a violation."""
        return all(each.holds for each in self.replays)


@dataclass(frozen=True)
class AuditReport:
    """Result of `audit`; print it, or write it as a page."""

    cases: tuple[CaseWithControls, ...] = ()
    comparisons: tuple[float, float] | None = None  # claimed and exact epsilon of a run of sparse vector
    fits: tuple[AuditedFit, ...] = ()
    laws: tuple[LawTest, ...] = ()
    densities: tuple[DensityTest, ...] = ()
    one_run: OneRunAudit | None = None
    times: tuple[TimeTest, ...] = ()
    private: bool = False  # whether records of people were read

    @property
    def holds(self) -> bool:
        """Whether every check passed, controls included."""
        parts: tuple[Any, ...] = (*self.cases, *self.fits, *self.laws, *self.densities, *self.times)
        parts += () if self.one_run is None else (self.one_run,)
        exact = self.comparisons is None or self.comparisons[1] <= self.comparisons[0] * (1 + 1e-6)
        return all(part.holds for part in parts) and exact

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        return "Every check holds." if self.holds else "NOT PRIVATE AS CLAIMED: at least one check fails."

    def tables(self) -> dict[str, list[tuple[str, ...]]]:
        """Return the tables of the report by their titles; the first row of each is its header."""
        found: dict[str, list[tuple[str, ...]]] = {}
        rows: list[tuple[str, ...]]
        if self.cases or self.comparisons:
            rows = [("mechanism", "claimed", "replayed", "audited", "same data", "half noise", "holds")]
            for each in self.cases:
                case = each.case
                numbers = (case.claimed, case.replayed, case.audited, each.same_data, each.half_noise)
                rows.append((case.name, *(f"{number:.2f}" for number in numbers), _yes(each.holds)))
            if self.comparisons is not None:
                claimed, exact = self.comparisons
                rows.append(
                    ("sparse vector", f"{claimed:.2f}", f"{exact:.2f}", "", "", "", _yes(exact <= claimed))
                )
            found["Claimed and audited epsilon"] = rows
        if self.fits:
            rows = [("fit", "neighbours", "largest share of the sensitivity", "public differences", "holds")]
            for fit in self.fits:
                words = ", ".join(fit.differences) or "none"
                rows.append((fit.name, str(len(fit.replays)), f"{fit.share:.3f}", words, _yes(fit.holds)))
            found["Replays on neighbours"] = rows
        if self.laws:
            rows = [("sampler", "draws", "p-value", "p-value of a scale 5 % smaller", "holds")]
            for law in self.laws:
                rows.append(
                    (law.name, f"{law.draws:,}", f"{law.p_value:.3g}", f"{law.control:.2g}", _yes(law.holds))
                )
            found["Law of the noise"] = rows
        if self.densities:
            rows = [("minimiser", "pairs", "exact delta over claimed", "with too little noise", "holds")]
            for each_density in self.densities:
                share, control = each_density.share, each_density.control
                cells = (each_density.name, str(each_density.pairs), f"{share:.3f}", f"{control:.3g}")
                rows.append((*cells, _yes(each_density.holds)))
            found["Exact densities"] = rows
        if self.one_run is not None:
            run = self.one_run
            bounds = (run.claimed, run.audited, run.control, run.half_noise)
            sizes = (f"{run.records:,}", f"{run.canaries:,}", f"{run.right} of {run.guesses}")
            header = "records, canaries, right guesses, claimed, audited, no canaries, half noise, holds"
            rows = [tuple(header.split(", "))]
            rows.append((*sizes, *(f"{bound:.2f}" for bound in bounds), _yes(run.holds)))
            found["One run with many canaries"] = rows
        if self.times:
            rows = [("fit", "runs", "area under the curve", "by chance", "50 % more steps", "holds")]
            for each_time in self.times:
                chance = f"{0.5 - each_time.margin:.2f} to {0.5 + each_time.margin:.2f}"
                areas = (f"{each_time.area:.3f}", chance, f"{each_time.control:.3f}")
                rows.append((each_time.name, str(each_time.runs), *areas, _yes(each_time.holds)))
            found["Times"] = rows
        return found

    def __str__(self) -> str:
        lines = [self.sentence, PRIVATE if self.private else PUBLIC]
        for title, rows in self.tables().items():
            lines += ["", title, *align_columns(rows, left=(0,))]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return everything in types that JSON can hold."""
        return {"holds": self.holds, "private": self.private, "confidence": CONFIDENCE, **asdict(self)}

    def write(self, path: str | Path) -> None:
        """Write an HTML page with the tables and a plot."""
        from dpcvx.report.html import Section, html_report
        from dpcvx.report.plots import audit_plot

        sections = []
        for title, rows in self.tables().items():
            png = b""
            if self.cases and title.startswith("Claimed"):
                cases = [each.case for each in self.cases]
                png = audit_plot([(one.name, one.claimed, one.replayed, one.audited) for one in cases])
            sections.append(Section(title, EXPLANATIONS[title], rows, png, CAPTION if png else ""))
        note = PRIVATE if self.private else PUBLIC
        page = html_report("Privacy audit", f"{self.sentence} {note}", sections, note)
        Path(path).write_text(page, encoding="utf-8")


CAPTION = (
    "Claimed epsilon of each mechanism, the epsilon of its worst pair of neighbours by exact replay, and the "
    "lower bound that an attacker proves from many runs."
)
EXPLANATIONS = {
    "Claimed and audited epsilon": "Each mechanism runs on the pair of neighbours that is worst for it. "
    "Replayed: epsilon of the exact distance over the noise that was really drawn. Audited: what an attacker "
    f"proves from the released answers, at {CONFIDENCE:.0%} confidence for all rows together, with the event "
    "chosen on half of the runs. Two controls: with the same data twice nothing may be found, and with half "
    "of the noise more than the claim must be.",
    "Replays on neighbours": "A fit is repeated on neighbours with hostile cells while it gets the answers "
    "of the first one. Exact answers may differ by the sensitivity; questions, messages, plan, statement, "
    "shapes and the model file may not differ at all.",
    "Law of the noise": "Draws of each sampler are compared with the law that is accounted for, and with one "
    "that is 5 % narrower, which must be rejected.",
    "Exact densities": "The density of a perturbed minimiser is computed on a grid, without any run.",
    "One run with many canaries": "Many records have a random sign, and an attacker guesses those signs that "
    "the released gradients of one run show most clearly. Controls: signs that no record had, and half of "
    "the noise.",
    "Times": "Processor time of fits on two neighbours, one of them with extreme cells. The area under the "
    "curve is the chance that a fit to the second takes longer; 0.5 means that times reveal nothing. "
    "Control: 50 % more steps.",
}


def audit(
    *, runs: int = 400, only: Sequence[str] = (), seed: int = 0, progress: Callable[[str], None] | None = None
) -> AuditReport:
    """Attack the mechanisms, samplers and estimators of this installation on generated data.

    Parameters
    ----------
    runs : int
        Runs of each mechanism on each of two neighbours; more give larger lower bounds.
    only : sequence of str
        Names of mechanisms (`CASES`); with them nothing else is audited.
    seed : int
        Of the runs: another seed is another audit.
    progress : callable, optional
        Called with the name of each part.

    Returns
    -------
    AuditReport
        With ``holds``, ``tables()``, ``to_dict()`` and ``write(path)``.
    """
    if runs < LEAST_RUNS:
        raise WrongValue(f"runs is {runs}; an audit needs at least {LEAST_RUNS}.")
    if unknown := [name for name in only if name not in CASES]:
        raise WrongValue(f"No mechanism is called {unknown[0]!r}; there are {', '.join(CASES)}.")
    tell = progress or (lambda name: None)
    cases = []
    for name in only or CASES:
        tell(name)
        cases.append(_with_controls(CASES[name](), runs, (1 - CONFIDENCE) / len(CASES), seed))
    if only:
        return AuditReport(tuple(cases))
    tell("sparse vector")
    comparisons = 2.0, sparse_vector_epsilon(2.0)
    tell("noise")
    laws = law_tests(100_000, SeededGenerator(seed))
    tell("minimisers")
    densities = density_tests()
    fits = []
    for name, (make, data) in example_fits(seed).items():
        tell(name)
        fits.append(audit_fit(name, make, data, seed=seed))
    for name, (publish, records, neighbours) in {**example_solvers(seed), **example_engines(seed)}.items():
        tell(name)
        publish(records)  # see `warm_up`
        found = [replay_release(publish, records, other, kind, seed) for kind, other in neighbours]
        fits.append(AuditedFit(name, tuple(found)))
    tell("one run")
    one_run = audit_one_run(seed=seed)
    tell("times")
    times = (_times_of_descent(),)
    return AuditReport(tuple(cases), comparisons, tuple(fits), laws, densities, one_run, times)


def _times_of_descent() -> TimeTest:
    """Compare times of logistic regression on equal rows and with one row of extreme cells."""
    from dpcvx.estimators import PrivateLogisticRegression

    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 20))
    y = (X[:, 0] > 0).astype(int)
    other = X.copy()
    other[0] = LARGEST

    def make(n_iter: int) -> Any:
        settings: dict[str, Any] = {"bounds": (-1, 1), "classes": (0, 1), "random_state": 0}
        settings |= {"solver": "gradient_descent", "standardize": False}
        return PrivateLogisticRegression(epsilon=1.0, n_iter=n_iter, **settings)

    return time_test("logistic regression", make, FitData(X, y), FitData(other, y), n_iter=200)


def _with_controls(case: WorstCase, runs: int, failure: float, seed: int) -> CaseWithControls:
    found = audit_case(case, runs, failure, seed)
    same = WorstCase(case.name, case.words, case.event, lambda _, answers: case.run(0, answers), case.delta)
    few = max(LEAST_RUNS, runs // 4)
    nothing = audit_case(same, few, failure, seed + runs)
    half = audit_case(case, few, failure, seed + 2 * runs, factor=0.5)
    return CaseWithControls(found, max(nothing.audited, nothing.replayed), max(half.audited, half.replayed))


def audit_fit(
    name: str, make: Callable[[], Any], data: FitData, *, seed: int = 0, tries: int = 6
) -> AuditedFit:
    """Replay the fit of an estimator on hostile, searched and permuted neighbours of some records.

    `make`: returns an unfitted estimator, new in each call; `data`: records, private if they are people's.
    """
    rng = np.random.default_rng(seed)
    warm_up(make, data)
    # A search splits the rows at random by their places: another order is another split.
    kinds = [each for each in hostile_neighbours(data, rng) if each[0] != "permuted" or not is_search(make())]
    replays = [replay_fit(make, data, other, kind, seed) for kind, other in kinds]
    if tries and isinstance(data.X, np.ndarray):
        replays.append(search_neighbour(make, data, rng, tries))
    return AuditedFit(name, tuple(replays))


def audit_model(model: Any, X: Any, y: Any, *, seed: int = 0) -> AuditedFit:
    """Replay the fit of a released model on records and on neighbours of them; the result is private.

    `model`: fitted, or opened from its file: its parameters are used; `X`, `y`: as its ``fit`` takes them.
    """
    from sklearn.base import clone

    def make() -> Any:
        return clone(model).set_params(ledger=None, account=None, random_state=seed, verbose=0)

    data = FitData(X, y, person=model.person)
    return audit_fit(type(model).__name__, make, data, seed=seed, tries=0)


def _yes(holds: bool) -> str:
    return "yes" if holds else "NO"
