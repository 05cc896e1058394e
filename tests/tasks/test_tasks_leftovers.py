"""Histories, caches, builds and solutions are distinguished from a project's own folders of the same name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.tasks.leftovers import leftovers

OUTPUT = {
    "a compiled bundle next to its sources": (["package.json", "lib/index.js", "dist/qs.js"], ["dist/qs.js"]),
    "what setup.py build leaves": (["setup.py", "pkg/a.py", "build/lib/pkg/a.py"], ["build/lib/pkg/a.py"]),
    "a build of the same modules": (["package.json", "src/a.ts", "build/a.js"], ["build/a.js"]),
    "declarations": (["package.json", "src/a.ts", "build/types.d.ts"], ["build/types.d.ts"]),
    "of a workspace": (
        ["package.json", "packages/x/package.json", "packages/x/src/i.js", "packages/x/dist/i.js"],
        ["packages/x/dist/i.js"],
    ),
    "wheels, wherever they lie": (["vendor/dist/x-1.whl", "pkg/a.py"], ["vendor/dist/x-1.whl"]),
    "a task's own solution": (["pkg/a.py", "solution/solve.sh"], ["solution/solve.sh"]),
    "caches and histories": (["a.py", "x/__pycache__/a.pyc", ".git/HEAD"], ["x/__pycache__/a.pyc", ".git/HEAD"]),
}
OWN = {
    "a package that is called build": ["pyproject.toml", "build/__init__.py", "build/env.py", "tests/test_env.py"],
    "a command among others": ["setup.py", "setuptools/command/build/run.py", "setuptools/dist/core.py"],
    "a source folder deep below": ["package.json", "src/build/index.js", "src/dist/geometry.js", "src/index.js"],
    "scripts of the build": ["package.json", "src/index.js", "build/release.sh", "build/rollup.config.js"],
    "a release of nothing but dist": ["package.json", "dist/index.js", "test/index.js", "gulpfile.js"],
    "two folders that hold all there is": ["package.json", "build/a.js", "dist/a.js"],
    "a solver's module": ["pyproject.toml", "solver/solution/step.py", "solution/__init__.py", "solution/graph.py"],
}


@pytest.mark.parametrize("kind", OUTPUT)
def test_what_was_built_is_no_part_of_a_project(kind: str) -> None:
    paths, expected = OUTPUT[kind]
    assert leftovers(paths) == set(expected)


@pytest.mark.parametrize("kind", OWN)
def test_a_projects_own_folder_stays_whatever_it_is_called(kind: str) -> None:
    assert not leftovers(OWN[kind])


NAMES = st.lists(
    st.sampled_from(("src", "build", "dist", "lib", "a.py", "b.js", "package.json")), min_size=1, max_size=4
)


@given(st.sets(NAMES.map("/".join), max_size=12))
def test_what_is_found_is_of_the_tree_and_once_it_is_gone_nothing_more_is_found(paths: set[str]) -> None:
    found = leftovers(paths)
    assert found <= paths
    assert leftovers(reversed(sorted(paths))) == found
    assert not leftovers(paths - found)
