"""The leaderboard of benchmarks/: files of tasks and methods, stored results, and the page made of them."""

import ast
import json
import math
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
HERE = ROOT / "benchmarks" / "leaderboard"
sys.path.append(str(ROOT / "benchmarks"))  # behind everything that is installed

from leaderboard import objective, page, runner  # noqa: E402

RESULTS = runner.stored()


def files(folder):
    return sorted((HERE / folder).glob("*.py"))


def classes(path):
    """Attributes and methods of the one class of a file, without an import of what it needs."""
    (found,) = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    names = {target.id for node in found.body if isinstance(node, ast.Assign) for target in node.targets}
    return found.name, names, {node.name for node in found.body if isinstance(node, ast.FunctionDef)}


def example(kind="regression", n=200):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 3))
    y = X @ [1.0, -1.0, 0.0] if kind == "regression" else (X[:, 0] > 0).astype(float)
    bounds = np.array([-np.ones(3), np.ones(3)])
    return objective.Problem(kind, X, y, X, y, bounds=bounds, y_bounds=np.array([-2.0, 2.0]))


@pytest.mark.parametrize("path", files("solvers"), ids=lambda path: path.stem)
def test_a_method_is_one_class_with_what_the_runner_reads(path):
    name, attributes, methods = classes(path)
    assert name == "Solver"
    assert {"title", "kinds", "private", "requirements", "guarantee"} <= attributes
    assert {"settings", "fit"} <= methods


@pytest.mark.parametrize("path", files("datasets"), ids=lambda path: path.stem)
def test_a_task_is_one_class_with_what_the_runner_reads(path):
    name, attributes, methods = classes(path)
    assert name == "Dataset"
    assert {"title", "kind"} <= attributes
    assert "get_data" in methods


def test_there_are_ten_tasks_and_every_kind_has_one():
    tasks = runner.parts("datasets")
    assert len(tasks) - 1 >= 10  # without growth
    assert {task.kind for task in tasks.values()} == set(objective.KINDS)
    assert all(runner.metric(task) for task in tasks.values())


def test_results_are_of_known_parts_and_each_is_there_once():
    tasks, solvers = runner.parts("datasets"), runner.parts("solvers")
    assert RESULTS
    for result in RESULTS:
        task, solver = tasks[result["task"]], solvers[result["method"]]
        assert (result["setting"], result["epsilon"]) in list(runner.cells(task, solver))
        assert (result["epsilon"] is None) is not solvers[result["method"]].private
        assert "failed" in result or len(result["scores"]) == objective.SEEDS
        assert all(math.isfinite(score) and score <= 1 for score in result.get("scores", ()))
    keys = [runner.key(result) for result in RESULTS]
    assert len(set(keys)) == len(keys)


def test_the_page_is_that_of_the_results():
    assert page.PAGE.read_text() == page.render(RESULTS), "run python -m benchmarks.leaderboard --page"
    assert page.PICTURE.exists()


def test_the_page_names_every_cell_in_which_a_peer_is_ahead():
    def result(method, scores):
        return {"task": "lasso", "method": method, "setting": {}, "epsilon": 1.0, "n": 9, "p": 1,
                "scores": scores, "processor": 1.0, "memory": 1.0}  # fmt: skip

    ours = result(page.OURS, [0.5, 0.6, 0.55])
    ahead, tied = result("adassp", [0.6, 0.7, 0.66]), result("adassp", [0.4, 0.75, 0.56])
    (cell,) = page.board([ours, ahead])
    assert cell.behind
    assert "AdaSSP 0.653" in page.lost_cells([cell])
    (cell,) = page.board([ours, tied])
    assert cell.lead[0] < 0
    assert not cell.behind
    assert page.lost_cells([cell]) == "There is none."


def test_the_best_setting_of_a_peer_counts():
    def result(clip, scores):
        return {"method": "dp_sgd", "setting": {"clip": clip}, "scores": scores}

    best = page.best_settings([result(1, [0.1, 0.2, 0.3]), result(2, [0.4, 0.1, 0.4]), result(3, [0.0] * 3)])
    assert best["dp_sgd"]["setting"] == {"clip": 2}


def test_scores_are_1_for_the_truth_and_0_for_a_constant():
    problem = example()
    assert objective.score(problem, problem.y_test) == 1
    assert objective.score(problem, np.full(200, problem.y_test.mean())) == pytest.approx(0)
    labels = example("binary")
    assert objective.score(labels, labels.y_test) == 1
    assert objective.score(labels, np.zeros(200)) == 0.5
    assert objective.score(problem, np.full(200, np.nan)) < 0


def test_a_method_sees_no_target_of_the_records_to_test_on(tmp_path):
    problem = example()
    problem.save(tmp_path / "problem.npz")
    with np.load(tmp_path / "problem.npz") as stored:
        assert "y_test" not in stored.files
    read = objective.read_problem(str(tmp_path / "problem.npz"))
    assert np.array_equal(read.X, problem.X)
    assert read.kind == "regression"
    assert read.y_test.size == 1


def test_rows_of_levels_and_numbers_are_in_their_bounds():
    X = np.array([[0.0, 0.0], [10.0, 2.0], [20.0, 1.0]])
    bounds = np.array([[0.0, 0.0], [10.0, 2.0]])
    y = np.zeros(3)
    problem = objective.Problem("regression", X, y, X, y, bounds=bounds, levels=np.array([0, 3]))
    expected = [[-1, -1, -1, 1], [1, -1, 1, 1], [1, 1, -1, 1]]  # the last row is clipped
    assert np.array_equal(problem.rows()[0], expected)


@pytest.mark.long
def test_the_example_of_the_page_is_a_method(tmp_path, monkeypatch):
    (tmp_path / "solvers").mkdir()
    shutil.copy(ROOT / "tests" / "fixtures" / "leaderboard_method.py", tmp_path / "solvers" / "mean.py")
    monkeypatch.setattr(runner, "HERE", tmp_path)

    class Task:
        kind = "regression"

        def get_data(self, seed):
            return example(n=200 + seed)

    methods, results = runner.parts("solvers"), tmp_path / "results.jsonl"
    with runner.Processes(methods) as processes:
        found = list(runner.measure("task", Task(), processes, math.inf, results))
        again = list(runner.measure("task", Task(), processes, math.inf, results))
    assert [result["epsilon"] for result in found] == list(objective.EPSILONS)
    assert all(-2 < score < 0 for score in found[-1]["scores"])  # slightly worse than the mean itself
    assert [json.loads(line) for line in results.read_text().splitlines()] == found
    assert not again  # results that are stored are not measured twice


def test_the_private_point_of_tukey_em_lies_deep_among_many_fits():
    deep_point = runner.parts("solvers")["tukey_em"].fit.__globals__["deep_point"]
    rng = np.random.default_rng(0)
    fits = rng.standard_normal((1000, 3)) * 0.1 + [1.0, 2.0, 3.0]
    point = deep_point(fits, 2.0, 1e-6, rng)
    assert np.abs(point - [1.0, 2.0, 3.0]).max() < 0.1
    assert not deep_point(fits[:20], 2.0, 1e-6, rng).any()  # too few fits for the test of stability
