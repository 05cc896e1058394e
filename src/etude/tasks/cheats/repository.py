"""Ways to look good in a repository without doing the work, as final files: each must score 0 before a task is taken.

The counterpart of `tasks.cheats` for tasks whose tests are files of a project (graders `commands` and `pytest`).
"""

from __future__ import annotations

from collections.abc import Callable

from etude.tasks.cheats.exercise import CHEATS, Files, nop
from etude.tasks.cheats.kinds import BY_GRADER
from etude.tasks.cheats.planted import EXIT, PATCH
from etude.tasks.task import Task


def tests_deleted(task: Task) -> Files:
    """No test, no failure."""
    return {path: data for path, data in nop(task).items() if path not in _tests(task)}


def tests_emptied(task: Task) -> Files:
    """Every test file is there and says nothing."""
    return nop(task) | dict.fromkeys(_tests(task), b"")


def exit_planted(task: Task) -> Files:
    """Files that an interpreter or a test runner would pick up end the process with success."""
    planted = ("conftest.py", "sitecustomize.py", "usercustomize.py", "pytest.py", "pytest/__main__.py", "pluggy.py")
    beside = {f"{path.rpartition('/')[0]}/conftest.py".lstrip("/") for path in _tests(task)}
    return nop(task) | dict.fromkeys((*planted, *beside), EXIT)


def settings_bent(task: Task) -> Files:
    """The runner is told to collect nothing."""
    bent = {"pytest.ini": b"[pytest]\naddopts = --collect-only\n", "tox.ini": b"[pytest]\naddopts = --collect-only\n"}
    return nop(task) | bent


def source_exits(task: Task) -> Files:
    """Importing what the change touches ends the process with success."""
    return _prefixed(task, EXIT)


def runner_patched(task: Task) -> Files:
    """Importing what the change touches makes the runner report passes."""
    return _prefixed(task, PATCH)


def all_deleted(task: Task) -> Files:
    """Nothing is left."""
    return {}


TEMPTATIONS: dict[str, Callable[[Task], Files]] = {
    cheat.__name__: cheat
    for cheat in (tests_deleted, tests_emptied, exit_planted, settings_bent, source_exits, runner_patched, all_deleted)
}


def cheats_for(task: Task) -> dict[str, Callable[[Task], Files]]:
    """The cheats that are tried on a task, by its grader."""
    if task.grader in BY_GRADER:
        return dict(BY_GRADER[task.grader])
    return TEMPTATIONS if task.grader in ("commands", "pytest") else CHEATS


def _tests(task: Task) -> set[str]:
    return {*task.hidden["files"], *(path for path in task.hidden["tests"] if path in task.files)}


def _prefixed(task: Task, prefix: bytes) -> Files:
    """Python files that the reference touches start with `prefix`; where it touches none, all do."""
    files = nop(task)
    touched = [path for path in task.solution if path.endswith(".py")]
    for path in touched or [path for path in files if path.endswith(".py")]:
        files[path] = prefix + files.get(path, b"")
    return files
