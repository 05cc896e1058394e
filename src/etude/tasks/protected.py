"""Which files of a repository are tests, or decide how tests run: those come from the reference, never from the agent.

Promise 9. The list is broad on purpose: a file that is wrongly protected costs an agent an edit, one that is wrongly left
open costs the suite its meaning. The references of a suite's tasks pass under the same rule, or the task is not taken.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

# Names by which test runners find tests, in the languages that repositories of sessions are mostly written in.
TEST_FILE = re.compile(
    r"^(test_.*|.*_tests?|tests?)\.py$|_test\.(go|rb|exs)$|_spec\.rb$|\.(test|spec)\.[cm]?[jt]sx?$|Tests?\.(java|kt|cs|scala)$"
)
TEST_FOLDERS = frozenset(("tests", "test", "__tests__", "spec", "specs", "testdata", "__snapshots__"))
SETTINGS = frozenset(
    ("conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", ".coveragerc", "noxfile.py")
    + ("sitecustomize.py", "usercustomize.py", "package.json", "Makefile", "go.mod", "Cargo.toml")
)
# Documents, by name: they say what code does, not how.
PROSE = re.compile(r"\.(md|rst|txt|adoc)$|(^|/)(README|CHANGES|CHANGELOG|HISTORY|NEWS|PKG-INFO)[^/]*$", re.IGNORECASE)
# Modules of the runner: a file of that name in the workspace would be imported in its stead.
RUNNER = frozenset(("pytest", "_pytest", "pluggy", "iniconfig", "pygments"))
_RUNNER_SETTINGS = re.compile(
    r"^(jest|vitest|vite|karma|mocha|babel|ava|tap)\.config\.|^\.(mocha|tap|nyc|babel|npm|swc)rc|^tsconfig.*\.json$|\.pth$|^\.env$"
)
# What is installed or compiled: never taken from an agent, the environment's own stays. Byte code may hold what no source says.
BUILT = frozenset(("node_modules", "__pycache__", ".git", ".venv", "venv", "site-packages", "surefire-reports"))
_BUILT = re.compile(r"\.(pyc|pyo|class|egg-link)$|\.(egg|dist)-info(/|$)")


def is_test(path: str) -> bool:
    """Whether a file is a test, or belongs to the tests."""
    place = PurePosixPath(path)
    return bool(TEST_FILE.search(place.name)) or any(part in TEST_FOLDERS for part in place.parts[:-1])


def is_protected(path: str) -> bool:
    """Whether a file is a test, decides how tests run, or would stand for the runner itself."""
    place = PurePosixPath(path)
    if is_test(path) or place.name in SETTINGS or _RUNNER_SETTINGS.search(place.name):
        return True
    if BUILT.intersection(place.parts) or _BUILT.search(path):
        return True
    return place.parts[0].removesuffix(".py") in RUNNER or (
        len(place.parts) > 1 and place.parts[1].removesuffix(".py") in RUNNER
    )
