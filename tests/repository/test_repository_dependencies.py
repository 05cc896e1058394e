"""The tested versions are installed: every direct dependency is pinned, and what only tests import is no dependency of the package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from etude.cli.extras import EXTRAS as EXTRA_OF_PACKAGE

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
DIRECT = [
    line
    for line in (*PROJECT["dependencies"], *(line for lines in EXTRAS.values() for line in lines))
    if not line.startswith("etude[")  # an extra that takes in others
]


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


def stanzas(name: str) -> dict[str, str]:
    """The lines of each package in a list with hashes."""
    text = "".join(line for line in (ROOT / name).read_text().splitlines(keepends=True) if not line.startswith("#"))
    return {plain(part.partition("==")[0]): part for part in re.split(r"(?m)^(?=[A-Za-z0-9])", text) if part}


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-test.txt"])
def test_every_package_that_the_launcher_installs_has_its_pinned_version_and_a_hash(name: str) -> None:
    for package, lines in stanzas(name).items():
        assert "--hash=sha256:" in lines, package
        version = re.match(r"[^=]+==([^ ;\\]+)", lines)
        assert version is not None and PINS.get(package, version[1]) == version[1], f"{package}: make {name} again"


def test_the_lists_hold_every_direct_dependency_but_pytorch() -> None:
    lines = [*PROJECT["dependencies"], *EXTRAS["train"], *EXTRAS["rl"]]
    core = {plain(Requirement(line).name) for line in lines} - {"torch", "etude"}
    every = {plain(Requirement(line).name) for line in DIRECT} - {"torch"}
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert core | {plain(Requirement(line).name) for line in build} <= set(stanzas("requirements.txt"))
    assert every | set(stanzas("requirements.txt")) <= set(stanzas("requirements-test.txt"))
    assert set(PINS) - {"torch"} <= set(stanzas("requirements-test.txt"))


def test_the_package_without_extras_needs_neither_torch_nor_ray() -> None:
    assert not {plain(Requirement(line).name) for line in PROJECT["dependencies"]} & {
        "torch",
        "ray",
        "safetensors",
        "boto3",
    }


def test_every_package_that_an_error_names_is_in_its_extra() -> None:
    for package, extra in EXTRA_OF_PACKAGE.items():
        if package != "botocore":  # comes with boto3
            assert package in {plain(Requirement(line).name) for line in EXTRAS[extra]}


def test_the_launcher_installs_packages_by_hash_alone() -> None:
    lines = [line for line in (ROOT / "etude").read_text().splitlines() if re.search(r"\bpip --", line)]
    assert any("--require-hashes" in line for line in lines)
    for line in lines:
        assert "--require-hashes" in line or "torch" in line or '--no-deps --no-build-isolation -e "$root"' in line, (
            line
        )
