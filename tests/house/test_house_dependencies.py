"""What is installed is what was tested: every direct dependency is pinned, and what only tests import is no dependency of the package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DIRECT = [*PROJECT["dependencies"], *(line for lines in PROJECT["optional-dependencies"].values() for line in lines)]


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


PINS = {
    plain(name): version
    for name, _, version in (line.partition("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
    if version
}


@pytest.mark.parametrize("line", sorted(set(DIRECT)))
def test_every_direct_dependency_is_pinned_at_a_version_that_it_allows(line: str) -> None:
    wanted = Requirement(line)
    assert plain(wanted.name) in PINS, f"add {wanted.name} to constraints.txt"
    assert wanted.specifier.contains(PINS[plain(wanted.name)])


def test_the_openai_package_is_required_by_the_tests_alone() -> None:
    using = [
        path
        for path in (ROOT / "src").rglob("*.py")
        if re.search(r"^\s*(import|from) openai\b", path.read_text(), re.M)
    ]
    assert not using
    assert not [line for line in PROJECT["dependencies"] if Requirement(line).name == "openai"]
    assert [line for line in PROJECT["optional-dependencies"]["test"] if Requirement(line).name == "openai"]
