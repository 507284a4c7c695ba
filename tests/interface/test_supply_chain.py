"""The list of packages that a change is tested with: every package that the project asks for, with hashes."""

import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def locked_versions():
    """Versions of each package that are installed on this platform."""
    found = {}
    for line in LOCK.splitlines():
        if line.strip() and not line.startswith("#"):
            requirement = Requirement(line.split(" --hash")[0])
            if requirement.marker is None or requirement.marker.evaluate():
                (pin,) = requirement.specifier
                found.setdefault(canonicalize_name(requirement.name), []).append(pin.version)
    return found


def asked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [Requirement(line) for line in project["dependencies"]]
    return asked + [each for extra in ("demo", "lint", "test") for each in wanted(project, extra)]


def test_locked_versions_are_those_that_the_project_asks_for():
    locked = locked_versions()
    for requirement in asked_for():
        versions = locked[canonicalize_name(requirement.name)]
        assert all(requirement.specifier.contains(version) for version in versions), requirement


def _requires(name, version):
    """Requirements of an installed package; none of one that this environment does without, or has newer."""
    try:
        return (metadata.requires(name) or ()) if metadata.version(name) == version else ()
    except metadata.PackageNotFoundError:
        return ()


def test_the_list_is_complete_for_an_installation_that_resolves_nothing():
    """`.ci/run` installs it with --no-deps: all that a package asks for must be in it, in such a version."""
    locked, missing, seen = locked_versions(), [], set()
    left = asked_for()
    while left:
        requirement = left.pop()
        name, extras = canonicalize_name(requirement.name), tuple(sorted(requirement.extras))
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        (version,) = locked.get(name, [None])
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            missing.append(f"{requirement} is {version}")
        elif (name, extras) not in seen:
            seen.add((name, extras))
            for line in _requires(name, version):
                inner = Requirement(line)
                chosen = ("", *extras)
                if inner.marker is None or any(inner.marker.evaluate({"extra": each}) for each in chosen):
                    inner.marker = None
                    left.append(inner)
    assert not missing
    assert len(seen) > 80


def test_every_locked_package_has_its_hashes():
    packages = [line for line in LOCK.splitlines() if line.strip() and not line.startswith("#")]
    assert len(packages) > 100
    assert all("==" in line and "--hash=sha256:" in line for line in packages)


def test_the_list_names_no_place_where_packages_come_from():
    assert "://" not in LOCK
