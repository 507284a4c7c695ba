"""Write algorithms.md: every algorithm with its source, code, test and measured figure.

Figures come from the files that benchmarks write to docs/figures; nothing is typed here but their wording.

    python docs/algorithms_table.py
"""

import json
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parent
SOLVERS = "src/dpcvx/solvers"
MISSING = "not measured yet"


@dataclass(frozen=True)
class Row:
    """One line of the table; the figure is a sentence with the names of measured numbers, and their file."""

    algorithm: str
    source: str
    code: str
    test: str
    figure: str
    measured: str

    def line(self, number: int) -> str:
        """Return the row as markdown."""
        path = DOCS / "figures" / f"{self.measured}.json"
        found = self.figure.format(**json.loads(path.read_text())) if path.exists() else MISSING
        cells = (str(number), self.algorithm, self.source, f"`{self.code}`", f"`{self.test}`", found)
        return f"| {' | '.join(cells)} |"


ROWS = (
    Row(
        "noisy mirror descent, constant step, averaged",
        "TTZ14 Algorithm 1, Theorem 3.2",
        f"{SOLVERS}/mirror_descent.py",
        "tests/papers/test_rates.py::"
        "test_mirror_descent_in_the_geometry_of_its_set_hardly_feels_the_dimension",
        "from 100 to 10,000 features the excess risk grows {growth_L1Ball:.2f} times on the l1 ball and "
        "{growth_Simplex:.2f} times on the simplex; with the Euclidean map {growth_EuclideanL1Ball:.2f} and "
        "{growth_EuclideanSimplex:.2f} times, up to that of the start",
        "rates_dimension",
    ),
    Row(
        "strongly convex mirror descent",
        "TTZ14 Appendix A",
        f"{SOLVERS}/strongly_convex_mirror_descent.py",
        "tests/papers/test_strongly_convex.py::test_excess_risk_falls_like_one_over_n_squared",
        "excess risk falls like n^({slope_strongly_convex:.2f})",
        "rates_records",
    ),
    Row(
        "the same loop with any sub-Gaussian oracle",
        "TTZ14 Corollary 3.6",
        f"{SOLVERS}/own_oracle.py",
        "tests/papers/test_descent.py::test_mirror_descent_on_sub_gaussian_gradients",
        "excess risk {share_of_bound:.0%} of the bound, with noise a hundred times larger in some directions "
        "than in others",
        "rates_oracle",
    ),
    Row(
        "objective perturbation",
        "TTZ14 Algorithm 2, KD19 section 4.3",
        f"{SOLVERS}/objective_perturbation.py",
        "tests/papers/test_objective_perturbation.py::test_excess_risk_follows_the_gaussian_width_of_the_set",
        "excess risks on the l1 and group balls, over those on the l2 ball, are "
        "{excess_over_width_least:.2f} to {excess_over_width_most:.2f} times the ratios of widths",
        "rates_width",
    ),
    Row(
        "Frank-Wolfe on polytopes",
        "TTZ14 Algorithm 4, TTZ15 Algorithm 2",
        f"{SOLVERS}/frank_wolfe.py",
        "tests/papers/test_frank_wolfe.py::test_excess_risk_of_private_lasso_falls_with_n",
        "excess risk falls like n^({slope_in_n:.2f}) from n = {smallest_n:,.0f} to {largest_n:,.0f}, and "
        "grows {growth_with_p:.2f} times from 100 to 10,000 features",
        "lasso_rates",
    ),
    Row(
        "Frank-Wolfe on general convex sets",
        "TTZ14 Algorithm 5",
        f"{SOLVERS}/general_frank_wolfe.py",
        "tests/papers/test_rates.py::test_excess_over_the_nuclear_ball_follows_the_square_root_of_the_side",
        "on m by m matrices of bounded nuclear norm the largest excess risk over five signals grows like "
        "m^{slope_frank_wolfe:.2f}; mirror descent like m^{slope_spectral:.2f}, with the Euclidean map "
        "m^{slope_euclidean:.2f}",
        "rates_nuclear",
    ),
    Row(
        "variance-reduced descent, with epochs that double or not",
        "WYX17 Algorithms 1 and 2",
        f"{SOLVERS}/svrg.py",
        "tests/papers/test_svrg.py::test_with_samples_but_without_noise_it_still_reaches_the_optimum",
        "to reach its risk at condition number {condition:.0f}, n = {n:,.0f}, full descent needs "
        "{times_the_passes_with_noise:.2f} times its gradient evaluations; without noise "
        "{times_the_passes_without_noise:.2f} times",
        "svrg",
    ),
    Row(
        "accelerated mirror descent",
        "WYX17 Algorithm 3",
        f"{SOLVERS}/accelerated_mirror_descent.py",
        "tests/papers/test_accelerated.py::test_without_noise_the_excess_falls_like_one_over_t_squared",
        "excess risk falls like n^({slope_accelerated:.2f}), without use of strong convexity",
        "rates_records",
    ),
    Row(
        "gradient descent under Polyak-Łojasiewicz, and non-convex",
        "WYX17 Algorithm 4",
        f"{SOLVERS}/gradient_descent.py",
        "tests/papers/test_rates.py::test_default_descent_with_a_ridge_falls_like_one_over_n_squared",
        "excess risk falls like n^({slope_gradient_descent:.2f}) by default",
        "rates_records",
    ),
    Row(
        "output perturbation with structured sparsity",
        "KD19 section 4.1",
        f"{SOLVERS}/output_perturbation.py",
        "tests/papers/test_output_perturbation.py::test_a_quadratic_term_bounds_the_jump",
        "excess risk falls like n^({slope_output_perturbation:.2f})",
        "rates_records",
    ),
    Row(
        "Frank-Wolfe on the dual of a structured norm",
        "KD19 Algorithm 2",
        f"{SOLVERS}/dual_frank_wolfe.py",
        "tests/papers/test_dual_frank_wolfe.py::"
        "test_with_exact_answers_the_primal_excess_is_within_its_bound",
        "two of ten groups in use, n = 4,000: {share_dual:.1%} of the excess risk of 0 is left; by output "
        "perturbation {share_output_perturbation:.1%}",
        "rates_structure",
    ),
    Row(
        "submodular toolkit",
        "KD19 section 2",
        "src/dpcvx/domains/set_functions.py",
        "tests/papers/test_structured_sparsity.py::test_greedy_is_optimal_over_the_polyhedron",
        "proximal steps in 1,000 coordinates have a relative duality gap of at most {prox_gap:.0e}",
        "rates_structure",
    ),
    Row(
        "Gaussian widths, radii and Minkowski norms of every set",
        "TTZ14 section 2",
        "src/dpcvx/domains/width.py",
        "tests/papers/test_geometry.py::test_widths_of_section_3_2",
        "closed forms are {closed_over_simulated_least:.3f} to {closed_over_simulated_most:.3f} times the "
        "simulated widths",
        "rates_width",
    ),
    Row(
        "sparse vector with restarts",
        "U15 section 3.1",
        "src/dpcvx/queries/sparse_vector.py",
        "tests/privacy/test_sparse_vector.py::test_every_outcome_is_within_epsilon_and_comes_near_it",
        "each of {runs:.0f} runs has {epsilon_over_paper:.2f} times the paper's epsilon at the same total "
        "budget, and {noise_over_paper:.2f} times its noise",
        "rates_threshold",
    ),
    Row(
        "online private multiplicative weights for convex-minimisation queries",
        "U15 Figure 3",
        "src/dpcvx/queries/multiplicative_weights.py",
        "tests/privacy/test_engine.py::test_a_large_error_is_measured_anew_and_learned_from",
        "the first {queries:,.0f} of {planned:,.0f} regressions on {n:,.0f} records: mean excess risk "
        "{mean:.5f}; by composition {mean_composition:.4f}, on the first {queries_composition:.0f}",
        "queries",
    ),
    Row(
        "hard instances",
        "TTZ14 Theorems 5.8 and 5.9",
        "src/dpcvx/papers/hard_instances.py",
        "tests/papers/test_hard_instances.py::"
        "test_the_private_lasso_is_above_the_lower_bound_and_the_plain_one_below",
        "at n = {largest_n:,.0f}, epsilon = {epsilon}: corrective Frank-Wolfe {corrective_over_bound:.0f} "
        "times and Frank-Wolfe {frank_wolfe_over_bound:.0f} times the lower bound for every private "
        "algorithm, the answer 0 {nothing_over_bound:.1f} times; they fall like n^({slope_corrective:.2f}), "
        "n^({slope_frank_wolfe:.2f}) and the bound like n^({slope_lower_bound:.2f})",
        "hard_instances",
    ),
)

BEYOND = (
    Row(
        "corrective Frank-Wolfe: select a few vertices, refit on them",
        "none",
        f"{SOLVERS}/corrective_frank_wolfe.py",
        "tests/papers/test_corrective.py::test_the_excess_risk_is_many_times_below_plain_frank_wolfe",
        "private LASSO, n = 10,000, p = 1,000: plain Frank-Wolfe leaves {gain_4_n10000:.0f} times its excess "
        "risk for 4 equal coefficients, {gain_8_n10000:.0f} times for 8, {gain_16_n10000:.1f} for 16 and "
        "{gain_harmonic_n10000:.1f} times for harmonic ones",
        "corrective",
    ),
    Row(
        "group selection: draw a few groups of features, refit on them",
        "none",
        f"{SOLVERS}/group_selection.py",
        "tests/privacy/test_group_selection.py::"
        "test_two_useful_groups_of_twenty_are_found_and_the_fit_is_better_than_one_of_all",
        "n = 10,000, 2 of 20 groups of ten columns useful, truth 0.65: R^2 {two_default_1:.2f}, by mirror "
        "descent {two_mirror_descent_1:.2f}, by gradient descent {two_gradient_descent_1:.2f}",
        "group_designs",
    ),
    Row(
        "one Newton step from released gradients, with the covariance of its error",
        "none",
        f"{SOLVERS}/one_step.py",
        "tests/contracts/test_uncertainty.py::test_coverage_is_within_two_points_of_nominal",
        "3 to 20 features, 5,000 to 50,000 people, epsilon 0.5 to 4, {seeds} runs or more where no direction "
        "is hidden by noise: 95 % intervals cover {linear_lowest:.1f} to {linear_highest:.1f} % of "
        "coefficients in {linear_cells} linear settings, {logistic_lowest:.1f} to {logistic_highest:.1f} % "
        "in {logistic_cells} logistic ones",
        "intervals",
    ),
)

HEAD = r"""# Algorithms, with measured figures

Which algorithms does dpcvx implement, and how well do they work? One row for each algorithm of the papers,
then those from elsewhere: its source, its code, a test of its guarantee, and a figure measured by a benchmark
($\varepsilon = 1$, $\delta = 10^{-6}$ or $1/n^2$, defaults unless stated otherwise; excess risk is relative
to the optimum on the same records). This page is generated by `docs/algorithms_table.py` from the numbers
that `benchmarks/rates.py`, `lasso_rates.py`, `svrg.py`, `queries.py`, `corrective.py`, `intervals.py` and
`hard_instances.py` write to `docs/figures`. [From papers to code](paper_to_code.md) lists every statement and
every difference from the papers.

| # | algorithm | source | code | test | measured |
|---|---|---|---|---|---|
"""


def page() -> str:
    """Return the text of algorithms.md."""
    return HEAD + "".join(row.line(i + 1) + "\n" for i, row in enumerate(ROWS + BEYOND))


if __name__ == "__main__":
    (DOCS / "algorithms.md").write_text(page())
    print("wrote docs/algorithms.md")
