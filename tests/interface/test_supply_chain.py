"""The list of packages that a change is tested with: every package that the project asks for, with hashes."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "ci" / "requirements.txt").read_text(encoding="utf-8").replace("\\\n", "")


def wanted(project, extra):
    for line in project["optional-dependencies"][extra]:
        requirement = Requirement(line)
        if requirement.name == project["name"]:
            for other in requirement.extras:
                yield from wanted(project, other)
        else:
            yield requirement


def test_locked_versions_are_those_that_the_project_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [Requirement(line) for line in project["dependencies"]]
    asked += [each for extra in ("demo", "lint", "test") for each in wanted(project, extra)]
    locked = {}
    for name, version in re.findall(r"^([\w.-]+)==([\w.]+)", LOCK, re.MULTILINE):
        locked.setdefault(re.sub(r"[-_.]+", "-", name), []).append(version)
    for requirement in asked:
        versions = locked[re.sub(r"[-_.]+", "-", requirement.name)]
        assert all(requirement.specifier.contains(version) for version in versions), requirement


def test_every_locked_package_has_its_hashes():
    packages = [line for line in LOCK.splitlines() if line.strip() and not line.startswith("#")]
    assert len(packages) > 100
    assert all("==" in line and "--hash=sha256:" in line for line in packages)


def test_the_list_names_no_place_where_packages_come_from():
    assert "://" not in LOCK
