"""Seeded results of one of everything, and their record: a change of code shows which of them it changes.

    python tests/golden/cases.py compare [PATTERN]     # lists every difference from the record
    python tests/golden/cases.py write [PATTERN]       # records what is announced to change

Three things are recorded for each case, so that a change of words is not mistaken for one of numbers:
``numbers`` are released values, ``prices`` are events, counts and noise, ``words`` are plans and statements
as printed. Values that are sums of integers and elementary operations are recorded by hash; what a float64
minimiser or a matrix factorisation had a part in is recorded as numbers and compared to 1e-9.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import csr_array

import dpcvx as dp
from dpcvx.domains import Cardinality, SubmodularNorm
from dpcvx.events import to_plain
from dpcvx.noise import SeededGenerator
from dpcvx.solvers import (
    NoisyDualFrankWolfe,
    NoisySVRG,
    NoisySVRGPlusPlus,
    ObjectivePerturbation,
    OutputPerturbation,
)

RECORD = Path(__file__).with_name("record.json")
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Seen:
    """What a case shows; parts that a case does not have are empty."""

    numbers: np.ndarray | None = None
    prices: str = ""
    words: str = ""
    exact: bool = True

    def record(self) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        if self.numbers is not None:
            flat = np.ravel(np.asarray(self.numbers, dtype=np.float64))
            kept["numbers"] = digest(flat.tobytes()) if self.exact else flat.tolist()
        if self.prices:
            kept["prices"] = digest(self.prices.encode())
        if self.words:
            kept["words"] = digest(self.words.encode())
        return kept


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def differences(name: str, found: dict[str, Any], known: dict[str, Any]) -> list[str]:
    """Parts of a case that are not as recorded."""
    changed = []
    for part in sorted(found.keys() | known.keys()):
        new, old = found.get(part), known.get(part)
        same = new == old
        if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
            same = bool(np.allclose(new, old, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True))
        if not same:
            changed.append(f"{name}: {part}")
    return changed


def prices(plan: dp.Plan) -> str:
    stages = (*plan.before, *plan.stages)
    counted = [(to_plain(each.mechanism.event), each.n_calls, float(each.mechanism.noise)) for each in stages]
    return json.dumps([counted, plan.budget.epsilon, plan.budget.delta])


def is_exact(plan: dp.Plan) -> bool:
    """Whether nothing was minimised or factorised in float64 on the way."""
    kinds = {type(stage.mechanism).__name__ for stage in plan.stages}
    rough = any("Minimiser" in kind or "SecondMoments" in kind for kind in kinds)
    return not rough and type(plan.problem.domain).__name__ in ("L2Ball", "L1Ball", "GroupBall")


def fitted(make: Callable[[], Any], X: Any, y: Any = None, **data: Any) -> Seen:
    model = make().fit(X, y, **data)
    parts = [np.ravel(model.coef_), np.ravel(model.intercept_)]
    if model.uncertainty:
        parts.append(np.ravel(model.coef_std_))
    words = f"{model.plan_}\n{model.privacy_statement_.to_json()}"
    return Seen(np.concatenate(parts), prices(model.plan_), words, is_exact(model.plan_))


def fitted_rows(make: Callable[[], Any], X: Any, y: Any) -> Seen:
    """A model of several rows of each record, by the logistic model that it holds."""
    found = make().fit(X, y)
    model = found.model_
    words = f"{found.plan_}\n{found.privacy_statement_.to_json()}\n{found.summary()}"
    parts = [np.ravel(model.coef_), np.ravel(model.intercept_)]
    return Seen(np.concatenate(parts), prices(found.plan_), words, is_exact(found.plan_))


rng = np.random.default_rng(0)
n = 600
A = rng.uniform(-1, 1, (n, 5))
B = A @ [0.5, -0.4, 0.0, 0.1, 0.3]
SPARSE = csr_array(np.where(rng.random((n, 40)) < 0.1, 1.0, 0.0))
TWO, THREE = (B > 0).astype(int), np.digitize(B, [-0.2, 0.2])
TABLE = pa.table({"age": rng.uniform(18, 90, n), "sex": rng.choice(["f", "m", "x"], n).tolist()})
PEOPLE = {"ill": np.where(TWO, "yes", "no"), "sex": rng.choice(["f", "m"], n), "age": rng.uniform(0, 90, n)}
COMMON = {"epsilon": 2.0, "delta": 1e-5, "bounds": (-1, 1), "random_state": 7}
REGRESSION = {**COMMON, "y_bounds": (-1, 1)}
REGRESSORS = "LinearRegression Lasso ElasticNet GroupLasso StructuredLasso HuberRegressor QuantileRegressor"
VARIANTS = {
    "default": {},
    "plain": {"standardize": False},
    "standardised": {"standardize": True},
    "norm": {"data_norm": 1.5},
    "interval": {"uncertainty": 0.2},
    "private bounds": {"y_bounds": "private", "epsilon": 20.0},
}
SOLVER_NAMES = (
    "gradient_descent mirror_descent frank_wolfe corrective_frank_wolfe general_frank_wolfe "
    "accelerated_mirror_descent strongly_convex_mirror_descent objective_perturbation sufficient_statistics"
)

CASES: dict[str, Callable[[], Seen]] = {}


def add(name: str, make: Callable[[], Seen]) -> None:
    if name in CASES:
        raise ValueError(f"two cases are called {name!r}")
    CASES[name] = make


def estimator(name: str, **settings: Any) -> Callable[[], Any]:
    return partial(getattr(dp, f"Private{name}"), **settings)


for regressor in f"{REGRESSORS} LowRankRegression".split():
    for label, more in VARIANTS.items():
        add(f"{regressor} {label}", partial(fitted, estimator(regressor, **{**REGRESSION, **more}), A, B))
add(
    "low rank two", partial(fitted, estimator("LowRankRegression", **REGRESSION), A, np.column_stack([B, -B]))
)
for classifier in ("LogisticRegression", "LinearSVC"):
    for label, labels, classes in (("two", TWO, (0, 1)), ("three", THREE, (0, 1, 2))):
        for variant, more in {
            "default": {},
            "plain": {"standardize": False},
            "l1": {"domain": "l1"},
            "interval": {"uncertainty": 0.2},
            "private bounds": {"bounds": "private", "epsilon": 20.0},
        }.items():
            settings = {**COMMON, **more, "classes": classes}
            add(
                f"{classifier} {label} {variant}",
                partial(fitted, estimator(classifier, **settings), A, labels),
            )
    settings = {**COMMON, "bounds": (0, 1), "classes": (0, 1), "data_norm": 3.0}
    add(f"{classifier} sparse", partial(fitted, estimator(classifier, **settings), SPARSE, TWO))
    settings = {**COMMON, "bounds": {"age": (18, 90)}, "categories": {"sex": ["f", "m"]}, "classes": (0, 1)}
    add(f"{classifier} table", partial(fitted, estimator(classifier, **settings), TABLE, TWO))
for variant, more in {"": {}, " plain": {"standardize": False}, " interval": {"uncertainty": 0.2}}.items():
    make = estimator("LinearRegression", **REGRESSION, **more)
    add(f"LinearRegression persons{variant}", partial(fitted, make, A, B, groups=np.arange(n) // 3))
    some = np.where(np.arange(n) % 4 == 0, np.nan, B)
    add(f"LinearRegression missing targets{variant}", partial(fitted, make, A, some))
    make = estimator("LogisticRegression", **COMMON, **more, classes=(0, 1), weight_bounds=(0, 3))
    add(f"LogisticRegression weights{variant}", partial(fitted, make, A, TWO, sample_weight=np.arange(n) % 4))
COUNTS = np.minimum(np.floor(np.exp(2 * B + 1)), 20)
MEANS = {**COMMON, "epsilon": 20.0, "y_bounds": (0, 20)}
add("poisson", partial(fitted, estimator("PoissonRegressor", **MEANS), A, COUNTS))
add("poisson interval", partial(fitted, estimator("PoissonRegressor", **MEANS, uncertainty=0.2), A, COUNTS))
add("gamma interval", partial(fitted, estimator("GammaRegressor", **MEANS, uncertainty=0.2), A, COUNTS + 0.5))
shares = {**COMMON, "epsilon": 20.0, "uncertainty": 0.2}
add("fractional interval", partial(fitted, estimator("FractionalRegressor", **shares), A, (1 + B) / 2.6))
EXPOSED = pa.table({"age": TABLE["age"], "years": np.random.default_rng(1).uniform(0.1, 2, n)})
exposed = {**MEANS, "bounds": {"age": (18, 90)}, "exposure": "years", "max_exposure": 2}
add("poisson exposure", partial(fitted, estimator("PoissonRegressor", **exposed), EXPOSED, COUNTS))
people = {**COMMON, "bounds": {"age": (18, 90)}}
make = estimator("OrdinalClassifier", **people, classes=(0, 1, 2))
add("ordinal", partial(fitted_rows, make, TABLE.select(["age"]), THREE))
TIMES = TABLE.select(["age"]).append_column("came", pa.array(TWO))
make = estimator("HazardRegressor", **people, periods=(0, 1, 2), event="came")
add("hazard", partial(fitted_rows, make, TIMES, 2 * np.abs(B)))

make = estimator("LinearRegression", **REGRESSION, max_rows=2)
add("LinearRegression two rows of each", partial(fitted, make, A, B, groups=np.arange(n) // 3))
BENT = {"knots": 5, "interactions": "all", "epsilon": 8.0}
for variant, more in {
    "straight": {},
    "few records": {"epsilon": 8.0},
    "shapes": BENT,
    "interval": {**BENT, "interactions": "none", "uncertainty": 0.2},
    "monotone": {**BENT, "monotone": {0: 1, 1: -1}},
    "selected columns": {"knots": 5, "epsilon": 8.0, "selected_columns": 2},
    "selected pairs": {**BENT, "interactions": 3},
}.items():
    add(
        f"Additive numbers {variant}",
        partial(fitted, estimator("AdditiveRegressor", **{**REGRESSION, **more}), A, B),
    )
settings = {
    **COMMON,
    **BENT,
    "bounds": {"age": (18, 90)},
    "categories": {"sex": ["f", "m"]},
    "classes": (0, 1),
}
make = estimator("AdditiveRegressor", **{**REGRESSION, "epsilon": 8.0})
add("Additive numbers long tail", partial(fitted, make, A, np.abs(B / np.abs(B).max()) ** 6))
few = {**COMMON, "classes": (0, 1), "knots": 5, "epsilon": 8.0, "selected_columns": 2}
add("Additive labels selected columns", partial(fitted, estimator("AdditiveClassifier", **few), A, TWO))
add("Additive labels table", partial(fitted, estimator("AdditiveClassifier", **settings), TABLE, TWO))
for solver_name in SOLVER_NAMES.split():
    for regressor in ("LinearRegression", "Lasso"):
        settings = {**REGRESSION, "solver": solver_name, "l2": 0.1}
        add(f"{regressor} {solver_name}", partial(fitted, estimator(regressor, **settings), A, B))
    settings = {**COMMON, "bounds": (0, 1), "classes": (0, 1), "domain": "l1", "solver": solver_name}
    add(f"sparse l1 {solver_name}", partial(fitted, estimator("LogisticRegression", **settings), SPARSE, TWO))


def released(solver: Any, problem: dp.Problem) -> Seen:
    plan = dp.plan(problem, n, dp.Budget(2.0, 1e-5), (solver,))
    release = dp.execute(plan, dp.source(A, B, bounds=problem.bounds), rng=SeededGenerator(3))
    return Seen(release.theta, prices(plan), str(plan), is_exact(plan))


RIDGED = {"bounds": dp.Bounds(1.0), "d": 5, "l2": 0.2}
for core in (
    NoisySVRG(n_epochs=2, n_steps=4, batch=50),
    NoisySVRGPlusPlus(n_epochs=2, n_steps=2, batch=50),
    OutputPerturbation(),
    ObjectivePerturbation(),
):
    huber = dp.Problem(dp.Huber(0.5), dp.L2Ball(2.0), **RIDGED)
    add(f"core {type(core).__name__}", partial(released, core, huber))
structured = dp.Problem(dp.Huber(0.5), regularizer=SubmodularNorm(Cardinality(), 0.1), **RIDGED)
add("core dual", partial(released, NoisyDualFrankWolfe(n_iter=5), structured))


def planned(domain: Any) -> Seen:
    problem = dp.Problem(dp.Logistic(), domain, bounds=dp.Bounds(1.0), d=5)
    plan = dp.plan(problem, 5000, dp.Budget(1.0, 1e-6))
    return Seen(None, prices(plan), f"{plan}\n{plan.explain()}")


for domain in (
    dp.L2Ball(2.0),
    dp.L1Ball(2.0),
    dp.LinfBall(1.0),
    dp.Box(-1.0, 1.0),
    dp.Simplex(1.0),
    dp.GroupBall(2, 1.0),
    dp.InterpolationBall(0.3, 1.0),
    dp.VertexHull(np.vstack([np.eye(5), -np.eye(5)])),
    dp.SubmodularBall(Cardinality(), 1.0),
):
    add(f"plan {type(domain).__name__}", partial(planned, domain))


def flattened(value: Any) -> list[float]:
    """Every number of an answer, in the order of its keys."""
    if isinstance(value, dict):
        return [x for key in sorted(value) for x in flattened(value[key])]
    if isinstance(value, list):
        return [x for each in value for x in flattened(each)]
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def asked(method: str) -> Seen:
    ill, sex = dp.Attribute("ill", ("no", "yes"), "yes"), dp.Attribute("sex", ("f", "m"), "m")
    schema = dp.Schema((ill, sex, dp.Binned("age", (0, 30, 60, 90), 45)))
    settings = {"method": method, "n_queries": 6, "rng": SeededGenerator(1)}
    engine = dp.QueryEngine(schema, PEOPLE, dp.Budget(4.0, 1e-4), **settings)
    regression, count = dp.Regression("ill", ("sex", "age")), dp.Count({"sex": ["f"]})
    answers = [*engine.ask_many((regression, count)), engine.ask(dp.Mean("age"))]
    answers.append(engine.ask(dp.Marginal(("ill", "sex"))))
    contents = [answer.to_json() for answer in answers]
    words = engine.statement().to_json() + str([sorted(content) for content in contents])
    return Seen(np.array(flattened(contents)), words=words, exact=False)


for engine_method in ("warm", "histogram", "composition", "multiplicative_weights", "offline"):
    add(f"engine {engine_method}", partial(asked, engine_method))


def scored() -> Seen:
    model = dp.PrivateLogisticRegression(**COMMON, classes=(0, 1)).fit(A, TWO)
    score = dp.private_score(model, A, TWO, epsilon=1.0, random_state=2)
    return Seen(np.array([float(score)]), words=str(score))


def tuned() -> Seen:
    model = dp.PrivateLogisticRegression(**COMMON, classes=(0, 1))
    best = dp.private_tune(model, {"radius": [3.0, 30.0]}, A, TWO)
    return Seen(np.array([best.params["radius"]]), words=best.statement.to_json())


def searched() -> Seen:
    model = dp.PrivateLogisticRegression(**COMMON, classes=(0, 1))
    search = dp.PrivateSearchCV(model, {"radius": [3.0, 30.0]}, epsilon=2.0, delta=1e-5)
    search.fit(A, TWO)
    coefficients = np.ravel(search.best_estimator_.coef_)
    return Seen(np.append(coefficients, search.best_params_["radius"]), words=str(search.best_params_))


def charged() -> Seen:
    """Two fits and a refusal on one account; entries without their times and hashes."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = dp.Ledger(Path(folder) / "ledger.db", witness=Path(folder) / "witness")
        account = ledger.create("people", epsilon=3.0, delta=1e-4)
        settings = {**COMMON, "random_state": None, "ledger": ledger, "account": "people", "classes": (0, 1)}
        dp.PrivateLogisticRegression(**{**settings, "epsilon": 1.0}).fit(A, TWO)
        dp.PrivateLinearSVC(**{**settings, "epsilon": 0.5}).fit(A, TWO)
        try:
            dp.PrivateLogisticRegression(**{**settings, "epsilon": 2.9}).fit(A, TWO)
            refusal = "none"
        except dp.BudgetExceeded as error:
            refusal = str(error)
        events = json.dumps([(entry.event, entry.failure, entry.used) for entry in account.history()])
        purposes = [entry.purpose for entry in account.history()]
        numbers = np.array([account.used, account.remaining()])
        return Seen(numbers, events, f"{purposes}\n{refusal}")


def sharded() -> Seen:
    with tempfile.TemporaryDirectory() as folder:
        store, batches = Path(folder) / "s", [(A[:400], TWO[:400]), (A[400:], TWO[400:])]
        shards = dp.from_batches(batches, bounds=(-1, 1), classes=(0, 1), store=store, verbose=0)
        files = b"".join(path.read_bytes() for path in sorted(store.glob("*.npy")))
        settings = {"epsilon": 2.0, "delta": 1e-5, "random_state": 7}
        seen = fitted(estimator("LogisticRegression", **settings), shards)
        bytes_of_files = np.frombuffer(hashlib.sha256(files).digest(), dtype=np.uint8)
        return Seen(np.append(seen.numbers, bytes_of_files), seen.prices, seen.words, seen.exact)


def on_dask() -> Seen:
    import dask.array as da
    from distributed import Client, LocalCluster

    sizes = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with LocalCluster(**sizes, dashboard_address=None, silence_logs=50) as cluster, Client(cluster):
        data = dp.from_dask(da.from_array(A, chunks=(250, 5)), da.from_array(TWO, chunks=250))
        settings = {**COMMON, "classes": (0, 1)}
        return fitted(estimator("LogisticRegression", **settings), data)


def on_gpu() -> Seen:
    settings = {**COMMON, "classes": (0, 1), "backend": "torch"}
    return fitted(estimator("LogisticRegression", **settings), A, TWO)


def has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def paper_constants() -> Seen:
    from dpcvx import papers

    return Seen(words=papers.table(papers.every(dp.Budget(1.0, 1e-6))))


add("score", scored)
add("tune", tuned)
add("search", searched)
add("ledger", charged)
add("shards", sharded)
add("dask", on_dask)
add("papers", paper_constants)
if has_gpu():
    add("gpu", on_gpu)

FIT = "fit p.parquet --target ill --model logistic --epsilon 1 --bounds b.toml --out m.json --seed 1 --json"
BOUNDS = '[bounds]\nage=[18,90]\n[categories]\nsex=["f","m"]\n[target]\nclasses=["no","yes"]\n'


def commanded(*commands: str, model: bool = False) -> Seen:
    """The last of some commands: its exit code and output; and the coefficients that a fit wrote."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pq.write_table(TABLE.append_column("ill", [PEOPLE["ill"].tolist()]), folder / "p.parquet")
        (folder / "b.toml").write_text(BOUNDS)
        start = [sys.executable, "-c", "from dpcvx.cli import main; main()"]
        for words in commands:
            done = subprocess.run([*start, *words.split()], capture_output=True, text=True, cwd=folder)
        written = np.array(dp.load(folder / "m.json").coef_) if model else None
        return Seen(written, words=f"{done.returncode}\n{done.stdout}")


add("cli fit", partial(commanded, FIT, model=True))
add("cli predict", partial(commanded, FIT, "predict m.json p.parquet"))
add("cli plan", partial(commanded, "plan --n 50000 --features 20 --model lasso --epsilon 1 --json"))
add("cli refusal", partial(commanded, FIT.replace("--target ill", "--target nobody")))


def seen(name: str) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return CASES[name]().record()
        except (
            dp.Incompatible,
            ValueError,
        ) as error:  # a refusal is a result too: its kind and words are public
            kind = type(error).__name__
            return Seen(prices=kind, words=f"{kind}: {error}").record()


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare seeded results with their record, or write it.")
    parser.add_argument("action", choices=("compare", "write"))
    parser.add_argument("pattern", nargs="?", default="", help="only cases whose name contains this")
    options = parser.parse_args()
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    names = [name for name in CASES if options.pattern in name]
    found = {name: seen(name) for name in names}
    changed = [line for name in names for line in differences(name, found[name], known.get(name, {}))]
    if not options.pattern:
        changed += [f"{name}: no such case any more" for name in known.keys() - CASES.keys() - {"gpu"}]
    print("\n".join(changed))
    print(f"{len(names)} cases, {len(changed)} differences")
    if options.action == "write":
        kept = {} if not options.pattern else known
        gpu = {"gpu": known["gpu"]} if "gpu" in known else {}
        content = json.dumps({**gpu, **kept, **found}, indent=1, sort_keys=True)
        RECORD.write_text(content + "\n")
        return 0
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
