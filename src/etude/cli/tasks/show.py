"""`etude tasks show ID`."""

from __future__ import annotations

import difflib
from typing import Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json, Overrides
from etude.cli.prepare import DEFAULT_RECIPE
from etude.cli.tasks.source import From, RecipeName, task_of

Id = Annotated[str, typer.Argument(metavar="ID", help="A task's id, as `etude tasks list` prints it.")]


def show(
    task_id: Id,
    folder: From = None,
    hidden: Annotated[bool, typer.Option("--hidden", help="Show what only the grader sees too.")] = False,
    recipe: RecipeName = DEFAULT_RECIPE,
    overrides: Overrides = None,
    json: Json = False,
) -> Answer:
    """Print one task: the request (all its wordings), the files or, of a real project, what the task changes; the reference as a diff."""
    task = task_of(task_id, folder, recipe, overrides)
    document: dict[str, Any] = {
        "id": task.id,
        "category": task.category,
        "level": task.level,
        "split": task.split,
        "instruction": task.instruction,
        "test_command": list(task.test_command),
        "grader": task.grader,
        "files": task.files,
        "solution": task.solution,
        "metadata": task.metadata,
        **({"hidden": task.hidden} if hidden else {}),
    }
    parts = [f"{task.id}  ({task.category}, {task.level}, {task.split})", task.instruction]
    parts += [
        f"--- {style}\n{text}" for style, text in task.metadata.get("prompts", {}).items() if text != task.instruction
    ]
    if measured := task.metadata.get("difficulty"):
        parts.append(_hard(measured))
    if "environment" in task.metadata:
        parts += [_diff(path, task.files.get(path, ""), text) for path, text in task.solution.items()]
        parts += [f"--- the reference removes {path}" for path in task.metadata.get("removed", ())]
    else:
        parts += [f"--- {path}\n{text}" for path, text in task.files.items()]
        parts += [f"--- solution: {path}\n{text}" for path, text in task.solution.items()]
    if hidden:
        parts += [f"--- hidden: {key}\n{value}" for key, value in task.hidden.items()]
    return Answer(document, "\n\n".join(parts))


def _hard(measured: dict[str, Any]) -> str:
    reference, solver, rollouts = measured["reference"], measured["solver"], measured.get("rollouts")
    text = f"difficulty {measured['score']:.2f}: {reference['lines']} lines in {reference['files']} files, {solver['lines']} lines read to find them"
    return text + (f", {rollouts['mean']:.2f} of {rollouts['attempts']} rollouts solved it" if rollouts else "")


def _diff(path: str, before: str, after: str) -> str:
    return "\n".join(
        difflib.unified_diff(before.splitlines(), after.splitlines(), f"a/{path}", f"b/{path}", lineterm="")
    )
