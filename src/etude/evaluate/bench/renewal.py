"""The next version of a suite: which of its tasks stay as they are, which are retired, and what it is called.

CursorBench is refreshed every few months, from newer sessions. A task that every policy solves always tells nothing any more: it is
retired, by what bench runs of this very suite show. What stays is not touched, so that it is the same task in both versions.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from etude.evaluate.bench.errors import SuiteError
from etude.evaluate.bench.runs.folder import RunFolder
from etude.evaluate.bench.runs.table import read_table
from etude.evaluate.bench.suites.folder import RUBRICS, FolderSuite
from etude.tasks.graders.commands import NAME as COMMANDS
from etude.tasks.place import folder_of
from etude.tasks.task import Task

# Attempts of competing policies, all solved, before a task counts as saturated: one lucky pass of one policy is no evidence.
FEWEST_ATTEMPTS = 8


@dataclass(frozen=True)
class Renewal:
    """Ids that stay, in their order; ids that go, each with the reason; ids that may not come in (again)."""

    kept: tuple[str, ...]
    retired: dict[str, str]
    known: frozenset[str]


def renewal(before: FolderSuite, runs: Sequence[Path], fewest: int = FEWEST_ATTEMPTS) -> Renewal:
    """By the folders of bench runs of this version. Raises SuiteError, NoBenchRun, ConditionsDiffer, OutcomeError."""
    solved: dict[str, int] = {}
    failed: set[str] = set()
    for folder in runs:
        table = read_table(RunFolder(folder))
        if table.shared["suite"]["digest"] != before.digest:
            raise SuiteError(
                f"{folder} asked {table.shared['suite']['label']} with digest {table.shared['suite']['digest'][:12]}, {before.root} is "
                f"{before.name}@{before.version} with {before.digest[:12]}: only runs of this very suite tell which tasks to retire"
            )
        competing = [row for row in table.finished if row.competes]
        if not competing:
            raise SuiteError(
                f"{folder} has no whole pass of a model: nop, cheats and expert don't tell what is saturated"
            )
        for outcome in (outcome for row in competing for outcome in row.outcomes):
            solved[outcome.task_id] = solved.get(outcome.task_id, 0) + 1
            if outcome.score < 1:
                failed.add(outcome.task_id)
    retired = {
        task_id: f"solved in all attempts of every model ({fewest} at least)"
        for task_id in before.ids
        if task_id not in failed and solved.get(task_id, 0) >= fewest
    }
    gone = {task_id for release in before.manifest.changelog for task_id in release.retired}
    return Renewal(
        tuple(task_id for task_id in before.ids if task_id not in retired),
        retired,
        frozenset((*before.ids, *gone)),
    )


def rubrics_of(before: FolderSuite, kept: Sequence[str]) -> dict[str, str]:
    """The rubric files of the tasks that stay, and those that belong to no single task."""
    gone = {folder_of(before.root, task_id).name for task_id in before.ids if task_id not in kept}
    files = sorted((before.root / RUBRICS).glob("*.toml"))
    return {file.stem: file.read_text(encoding="utf-8") for file in files if file.stem not in gone}


def command_of(tasks: Iterable[Task]) -> tuple[str, ...]:
    """How the tests of a suite's repositories run, where all its tasks agree; empty: by pytest. Raises SuiteError where they don't."""
    found = {tuple(task.hidden.get("command", ())) for task in tasks if task.grader == COMMANDS}
    if len(found) > 1:
        commands = " and ".join(sorted(repr(shlex.join(command)) if command else "pytest" for command in found))
        raise SuiteError(
            f"its tasks are tested by {commands}: say with --test-command how those of the new sessions are"
        )
    return found.pop() if found else ()


def next_version(version: str) -> str:
    """The last number of it raised: 1 -> 2, 3.1 -> 3.2. Raises SuiteError where there is none."""
    found = re.fullmatch(r"(.*?)(\d+)", version)
    if found is None:
        raise SuiteError(f"the version {version!r} does not end in a number: name the next one with --version")
    return f"{found[1]}{int(found[2]) + 1}"
