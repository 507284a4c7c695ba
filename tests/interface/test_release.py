"""A release: one version everywhere, and the requirements of external checklists."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import dpcvx

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RECIPE = (ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("CITATION.cff", r"^version: (\S+)$"),
        ("recipe/meta.yaml", r'set version = "(\S+)"'),
        ("CHANGELOG.md", r"^## (\d\S*)"),
    ],
)
def test_one_version_everywhere(file, pattern):
    text = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(pattern, text, re.MULTILINE)[1] == dpcvx.__version__
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert (ROOT / PROJECT["tool"]["hatch"]["version"]["path"]).read_text().count(dpcvx.__version__) == 1


def test_the_recipe_asks_for_the_packages_of_the_project():
    listed = RECIPE.split("  run:\n")[1].split("\ntest:")[0]
    found = dict(re.findall(r"^    - ([\w-]+) (\S+)$", listed, re.MULTILINE))
    wanted = {each.name: each.specifier for each in map(Requirement, PROJECT["project"]["dependencies"])}
    assert found.pop("python") == PROJECT["project"]["requires-python"]
    assert {name: Requirement(f"{name}{text}").specifier for name, text in found.items()} == wanted
    assert "license_file: LICENSE" in RECIPE
    assert "noarch: python" in RECIPE
    assert not list((ROOT / "src").rglob("*.so"))


def test_the_workflow_runs_what_every_change_must_pass():
    workflow = (ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8")
    assert "run: bash .ci/run" in workflow
    assert "run: make wheel-check" in workflow
    tested = set(re.findall(r'"(3\.\d+)"', workflow))
    named = [line.rsplit(" ", 1)[1] for line in PROJECT["project"]["classifiers"] if ":: 3." in line]
    assert set(named) <= tested


def test_what_lists_of_others_ask_for_is_there():
    for name in ("LICENSE", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "GOVERNANCE.md", "SECURITY.md"):
        assert (ROOT / name).stat().st_size > 500
    assert (ROOT / "src" / "dpcvx" / "py.typed").is_file()
    paper = (ROOT / "paper" / "paper.md").read_text(encoding="utf-8")
    assert {"# Summary", "# Statement of need", "# References"} <= set(paper.splitlines())
    cited = set(re.findall(r"@(\w+\d+)", paper))
    entries = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "paper" / "paper.bib").read_text(), re.MULTILINE))
    assert cited == entries
    page = (ROOT / "docs" / "releases.md").read_text(encoding="utf-8")
    assert all((ROOT / name).is_file() for name in re.findall(r"`(tests/\S+?)`", page))
