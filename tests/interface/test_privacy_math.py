"""The page of privacy constants: what the code cites is there, and what the page names exists."""

import ast
import math
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "privacy_math.md").read_text(encoding="utf-8")
SECTION = r"§(\d+(?:\.\d+)?[a-z]?)"
HEADINGS = re.findall(rf"^#+ {SECTION}\.? \S", PAGE, re.MULTILINE)
REFERENCE = re.compile(r"`((?:src|tests|docs|benchmarks|examples)/[^`:\s]+)(?:::([\w.]+))?`")


def citations(folder):
    """Pairs of a file and a section that it cites; one citation may list several."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        if path == Path(__file__):
            continue
        text = re.sub(r"\s*\n\s*(?:# ?)?", " ", path.read_text(encoding="utf-8"))  # a citation may wrap
        for listed in re.findall(r"PRIVACY_MATH ((?:,? ?(?:and )?§[\w.]+)+)", text):
            yield from ((str(path.relative_to(ROOT)), section) for section in re.findall(SECTION, listed))


def unresolved(cited):
    return [(path, section) for path, section in cited if section not in HEADINGS]


def test_every_citation_in_the_code_has_a_heading():
    cited = list(citations("src"))
    assert {"1", "11b"} <= {section for _, section in cited}
    assert not unresolved(cited)


def test_every_citation_in_the_tests_has_a_heading():
    cited = list(citations("tests"))
    assert cited
    assert not unresolved(cited)


def test_no_heading_is_given_twice():
    assert len(HEADINGS) == len(set(HEADINGS)) > 15


def test_sections_that_the_page_refers_to_are_on_it():
    assert not unresolved(("docs/privacy_math.md", section) for section in re.findall(SECTION, PAGE))


def defines(tree, names):
    """Whether a module has the function, class or method that the dotted name gives."""
    body = tree.body
    for name in names:
        found = [
            node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
        ]
        if not found:
            return False
        body = found[0].body
    return True


def test_everything_that_the_page_names_exists():
    named = {}
    for path, name in REFERENCE.findall(PAGE):
        named.setdefault(path, set()).add(name)
    assert sum(map(len, named.values())) > 150
    lost = [path for path in named if not (ROOT / path).exists()]
    for path in sorted(set(named) - set(lost)):
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8")) if any(named[path]) else None
        lost += [f"{path}::{name}" for name in named[path] if name and not defines(tree, name.split("."))]
    assert not lost


def test_no_path_is_named_in_another_form():
    """A path without the form checked above would escape the check."""
    assert len(REFERENCE.findall(PAGE)) == len(re.findall(r"(?:src|tests|benchmarks|examples)/\w", PAGE))
    assert {path.split("/")[0] for path, _ in REFERENCE.findall(PAGE)} == {"src", "tests"}


def chance_of_selection(lead, others):
    """P(0 + Lap(1) < lead + Lap(1) for each of the others)."""

    def integrand(x):
        y = x - lead
        above = 0.5 * math.exp(-y) if y > 0 else 1 - 0.5 * math.exp(y)
        return 0.5 * math.exp(-abs(x)) * above**others

    edges = sorted({-40.0, 0.0, lead, 40.0})
    return sum(quad(integrand, a, b, epsabs=1e-13)[0] for a, b in pairwise(edges))


def delta_of_binomials(epsilon, count, p, q):
    k = np.arange(count + 1)
    return float(np.maximum(binom.pmf(k, count, p) - math.exp(epsilon) * binom.pmf(k, count, q), 0).sum())


@pytest.mark.parametrize(
    ("T", "claimed", "others", "lead", "at_least"),
    [(10, 1, 4, 0, 0.842), (100, 1, 3, 0.25, 0.877), (10, 8, 5, 0, 8.045), (100, 8, 3, 0.25, 8.904)],
)
def test_the_papers_noisy_minimum_costs_more_than_claimed(T, claimed, others, lead, at_least):
    """§2.3: one score falls by Delta while the others rise by it, T - 1 times; lengths in units of lambda."""
    delta = 1e-6
    move = math.sqrt(2) * claimed / math.sqrt(T * math.log(1 / delta)) / 2  # Delta / lambda = eps0 / 2
    p, q = chance_of_selection(lead + move, others), chance_of_selection(lead - move, others)
    assert delta_of_binomials(at_least, T - 1, p, q) > delta
    assert delta_of_binomials(at_least + 1e-3, T - 1, p, q) < delta
    assert f"| {T} | {claimed} |" in PAGE
    assert re.search(rf"\| {T} \| {claimed} \|.*\b{at_least}\b", PAGE)
