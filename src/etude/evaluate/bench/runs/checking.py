"""What must hold before any policy runs: every task is as it was frozen, its grader and environment exist, nothing can be stolen.

All problems are reported at once, task by task, before anything is spent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath

from etude.tasks.running.pin import PackagesUnavailable
from etude.tasks.errors import TaskError
from etude.evaluate.bench.suites.suite import Suite, label
from etude.sandbox.errors import Unsupported
from etude.sandbox.spec import SandboxSpec
from etude.tasks.registry import no_grader
from etude.tasks.task import Task

SHOWN = 5  # complaints that a person reads


class SuiteBroken(Exception):
    """Some tasks can't be asked here; names them and why."""


class NotStrict(Exception):
    """A task would let an agent look up its solution."""


def checked_tasks(suite: Suite, ids: Sequence[str]) -> list[Task]:
    """The tasks of these ids, in the suite's order. Raises SuiteBroken, NotStrict."""
    tasks, wrong = [], {}
    for task_id in ids:
        try:
            task = suite.task(task_id)
            spec = suite.adapt(SandboxSpec(labels={"task": task_id}))
        except (TaskError, Unsupported, PackagesUnavailable) as error:
            wrong[task_id] = str(error)
            continue
        if task.grader not in suite.graders:
            wrong[task_id] = no_grader(task.grader, suite.graders)
            continue
        _strict(task, spec)
        tasks.append(task)
    if wrong:
        reasons = [f"{task_id}: {why}" for task_id, why in list(wrong.items())[:SHOWN]]
        more = f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise SuiteBroken(
            f"{len(wrong)} of {len(ids)} tasks of {label(suite)} can't be asked here: {'; '.join(reasons)}{more}"
        )
    names = Counter(task_id.replace("/", "-") for task_id in ids)
    if twice := [name for name, count in names.items() if count > 1]:
        raise SuiteBroken(f"two tasks of {label(suite)} have the name {twice[0]} in files: rename one")
    return tasks


def _strict(task: Task, spec: SandboxSpec) -> None:
    """No history, no way out."""
    history = [path for path in task.files if ".git" in PurePosixPath(path).parts]
    if history:
        raise NotStrict(f"{task.id} brings {history[0]}: a history holds the solution; freeze the suite without it")
    if spec.network.mode != "none":
        raise NotStrict(f"{task.id} asks for the network ({spec.network.mode}): a bench denies it")


STRICT = {"history": "none", "network": "none", "web_tools": False}
