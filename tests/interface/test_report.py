"""Plans in words, pictures and pages."""

import base64
import dataclasses
import re
import struct
import sys

import pytest

from dpcvx import Bounds, Budget, L1Ball, L2Ball, Logistic, Problem, Softmax, Squared, plan
from dpcvx.accounting import Tight
from dpcvx.planning.planner import automatic
from dpcvx.report.html import Section, html_report
from dpcvx.report.plots import Comparison, privacy_utility_plot
from dpcvx.solvers import NoisyFrankWolfe, NoisyGradientDescent, ObjectivePerturbation, Standardised

BUDGET = Budget(epsilon=1.0, delta=1e-8)


@pytest.fixture(scope="module")
def lasso_plan():
    return plan(Problem(Logistic(), L1Ball(10.0), bounds=Bounds(1.0), d=201), 50_000, BUDGET)


def test_the_table_shows_every_candidate_and_its_two_parts(lasso_plan):
    table = str(lasso_plan)
    rows = {line.split()[0]: line.split()[-3:] for line in table.split("\n\n")[1].splitlines()[2:]}
    assert len(rows) == len(lasso_plan.candidates)
    for candidate in lasso_plan.candidates:
        if not candidate.weighed:  # it is listed with its costs alone
            assert rows[type(candidate.solver).__name__] == ["-", "-", "-"]
            continue
        shown = [float(cell) for cell in rows[type(candidate.solver).__name__]]
        assert shown == pytest.approx(
            [candidate.optimisation, candidate.privacy, candidate.predicted], rel=0.01
        )
    assert table.count("(chosen)") == 1
    assert f"{type(lasso_plan.solver).__name__} (chosen)" in table
    unweighed = len(lasso_plan.candidates) - len(automatic(lasso_plan.problem))
    assert table.count("(not weighed)") == unweighed > 0


def test_the_table_shows_the_public_facts(lasso_plan):
    table = str(lasso_plan)
    for fact in (
        "logistic loss over L1Ball(radius=10), d = 201",
        "n = 50,000",
        "replacing one record",
        "epsilon = 1, delta = 1e-08",
    ):
        assert fact in table
    for stage in lasso_plan.stages:
        assert f"{stage.n_calls} x {type(stage.mechanism).__name__}" in table
        assert f"sensitivity {stage.mechanism.sensitivity:.4g}" in table
        assert f"noise {stage.mechanism.noise:.4g}" in table


def test_the_table_lines_up(lasso_plan):
    header, _, *rows = str(lasso_plan).split("\n\n")[1].splitlines()
    assert len({len(line) for line in (header, *rows)}) == 1


def test_the_explanation_gives_reason_price_and_guarantee(lasso_plan):
    words = lasso_plan.explain()
    (best,) = (each for each in lasso_plan.candidates if each.solver == lasso_plan.solver)
    weighed = sum(each.weighed for each in lasso_plan.candidates)
    assert f"{type(best.solver).__name__} was chosen from {weighed} solvers" in words
    for other in lasso_plan.candidates:
        assert other is best or other.weighed or type(other.solver).__name__ in words
    assert f"{lasso_plan.stages[0].n_calls} times" in words
    assert "(epsilon = 1, delta = 1e-08)-differentially private" in words
    larger = "the noise" if best.privacy > best.optimisation else "stopping early"
    assert f"{best.privacy:.3g} from the noise, so {larger} dominates" in words


def test_one_question_is_asked_once():
    problem = Problem(Logistic(), L2Ball(30.0), bounds=Bounds(1.0, 2.0), d=21)
    alone = plan(problem, 5000, Budget(1.0, 4e-8), (ObjectivePerturbation(),))
    assert "asks PerturbedMinimiser once." in alone.explain()


def test_means_and_mean_squares_of_a_standardised_fit_are_told_apart():
    problem = Problem(Logistic(), L2Ball(30.0), bounds=Bounds(1.0), d=5)
    standardised = Standardised(NoisyGradientDescent()).plan(problem, 5000, BUDGET, Tight())
    for moments in ("NoisyMoments (means)", "NoisyMoments (mean squares)"):
        assert standardised.explain().count(f"It asks {moments} once.") == 1
        assert str(standardised).count(f"1 x {moments}, ") == 1


@pytest.mark.parametrize(("prediction", "said"), [(0.9, True), (9.0, False)], ids=["smaller", "larger"])
def test_a_smaller_prediction_beside_the_chosen_one_is_explained_by_its_handicap(
    lasso_plan, prediction, said
):
    mine = dataclasses.replace(lasso_plan.chosen, optimisation=1.0, privacy=0.0, handicap=0.8)
    rival = next(each for each in lasso_plan.candidates if each.weighed and each is not lasso_plan.chosen)
    rival = dataclasses.replace(rival, optimisation=prediction, privacy=0.0, handicap=1.0)
    shown = dataclasses.replace(lasso_plan, candidates=(mine, rival))
    reason = f"predictions are multiplied by 1 for {type(rival.solver).__name__}, and by 0.8 for"
    for text in (" ".join(str(shown).split()), shown.explain()):
        assert (reason in text) is said


def test_a_hopeless_plan_says_so(lasso_plan):
    hopeless = plan(Problem(Logistic(), L1Ball(10.0), bounds=Bounds(1.0), d=201), 50, BUDGET)
    assert "than one that gives everybody the same answer" in hopeless.explain()
    assert "the same answer" not in lasso_plan.explain()


def test_a_plan_without_candidates_and_with_a_matrix_parameter_is_shown():
    problem = Problem(Softmax(), L2Ball(3.0), bounds=Bounds(1.0, 1.5), d=4, outputs=3)
    shown = plan(problem, 1000, Budget(1.0, 1e-6, "add_remove"))
    assert "d = 4 x 3" in str(shown)
    assert "adding or removing one record" in shown.explain()
    ridge = Problem(Squared(), L1Ball(1.0), bounds=Bounds(1.0), d=3, l2=0.1)
    solver = NoisyFrankWolfe(n_iter=7)
    alone = solver.plan(ridge, 1000, BUDGET, Tight())
    assert "candidate" not in str(alone)
    assert "was chosen" not in alone.explain()


COMPARISON = Comparison(
    "Income", "R2", (0.1, 1.0, 10.0), ((0.1, 0.2), (0.3, 0.4), (0.5, 0.5)), not_private=0.6, trivial=0.0
)


def test_the_plot_is_a_picture_with_a_panel_for_each_comparison():
    one, two = privacy_utility_plot([COMPARISON]), privacy_utility_plot([COMPARISON, COMPARISON])
    sizes = [struct.unpack(">II", picture[16:24]) for picture in (one, two)]
    assert one.startswith(b"\x89PNG")
    assert sizes[1][0] == 2 * sizes[0][0]
    assert sizes[1][1] == sizes[0][1]


def test_the_plot_names_the_extra_when_matplotlib_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "dpcvx\[plot\]"'):
        privacy_utility_plot([COMPARISON])


def test_the_page_is_whole_and_fetches_nothing():
    picture = b"\x89PNG-not-really"
    page = html_report(
        "A <title>",
        "A summary.",
        [
            Section("Scores", "First.\n\nSecond.", rows=[("epsilon", "R2"), ("1", "0.3")]),
            Section("Picture", png=picture, caption='Score "by" epsilon'),
            Section("Plan", verbatim="a < b"),
        ],
    )
    assert "A &lt;title&gt;" in page
    assert "A <title>" not in page
    assert page.count("<section>") == page.count("</section>") == 3
    assert "<p>First.</p>\n<p>Second.</p>" in page
    assert "<th>R2</th>" in page
    assert "<td>0.3</td>" in page
    assert "<pre>a &lt; b</pre>" in page
    assert 'alt="Score &quot;by&quot; epsilon"' in page
    (inlined,) = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert base64.b64decode(inlined) == picture
    assert 'name="viewport"' in page  # readable on a phone
    assert not re.search(r"https?://|@import|<script|<link", page)


def test_columns_of_words_wrap_and_numbers_do_not():
    rows = [("", "coef", "note"), ("age", "-1.5e-05", "hidden by noise"), ("hours", "3 %", "")]
    page = html_report("A title", "A summary.", [Section("Table", rows=rows)])
    assert '<td class="words">age</td><td>-1.5e-05</td><td class="words">hidden by noise</td>' in page
    assert '<td>3 %</td><td class="words"></td>' in page
    assert 'class="wide"' not in page
    wide = html_report("A title", "A summary.", [Section("Table", rows=[["x"] * 9, ["1"] * 9])])
    assert '<table class="wide">' in wide
