"""`etude bench show`: the suites there are, one of them, or one of its tasks."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.bench.making import read_recipe_named
from etude.cli.option import Json, Overrides
from etude.cli.prepare import DEFAULT_RECIPE

if TYPE_CHECKING:
    from etude.evaluate.bench.suites.suite import Suite

SuiteName = Annotated[
    str | None,
    typer.Argument(
        metavar="[SUITE]", help="Suite to show: exercises, real, a name under suites/, or a folder. Default: all."
    ),
]
TaskId = Annotated[str | None, typer.Argument(metavar="[TASK]", help="Task to show.")]
Verify = Annotated[bool, typer.Option("--verify", help="Verify that every task equals its frozen version.")]
RecipeName = Annotated[str, typer.Option("--recipe", help="Recipe to take the exercises from.")]


class NoSuchTask(Exception):
    """The suite has no task of this name."""


def show(
    suite: SuiteName = None,
    task: TaskId = None,
    verify: Verify = False,
    recipe: RecipeName = DEFAULT_RECIPE,
    overrides: Overrides = None,
    json: Json = False,
) -> Answer:
    """List the suites; show one with its versions, sizes and tasks; or show a task: request, reference and what its tests ask."""
    from etude.evaluate.bench.suites.folder import FolderSuite
    from etude.pipeline.run.suites import open_suite

    if suite is None:
        return _all()
    opened = open_suite(suite, read_recipe_named(recipe, overrides))
    if verify and isinstance(opened, FolderSuite):
        opened.verify()
    return _one(opened) if task is None else _task(opened, task)


def _all() -> Answer:
    """A suite that can't be read is named with the reason, and the others are listed."""
    from etude.evaluate.bench.suites.find import built_in, suite_folders
    from etude.evaluate.bench.suites.folder import FolderSuite
    from etude.tasks.errors import TaskError

    rows: list[dict[str, Any]] = [{"name": name, "built_in": True} for name in built_in()]
    lines = [f"{row['name']}  (built in)" for row in rows]
    for folder in suite_folders():
        row: dict[str, Any] = {"name": folder.name, "folder": str(folder)}
        try:
            found = FolderSuite(folder)
        except TaskError as error:
            rows.append(row | {"error": str(error)})
            lines.append(f"{folder.name}  can't be read: {error}")
            continue
        rows.append(row | {"version": found.version, "tasks": len(found.ids)})
        lines.append(f"{folder.name}  {found.name}@{found.version}, {len(found.ids)} tasks")
    return Answer({"suites": rows}, "\n".join(lines))


def _one(suite: Suite) -> Answer:
    from etude.evaluate.bench.suites.suite import label
    from etude.evaluate.bench.suites.task_size import medians, shape_of

    tasks = [suite.task(task_id) for task_id in suite.ids]
    shapes = medians(map(shape_of, tasks))
    counts = {key: dict(Counter(getattr(task, key) for task in tasks)) for key in ("category", "level")}
    manifest = suite.manifest.model_dump(mode="json")
    prices = [asdict(price) | {"since": price.since.isoformat()} for price in suite.prices.entries]
    judged = [task_id for task_id in suite.ids if suite.rubric(task_id) is not None]
    document = {
        "suite": label(suite),
        "digest": suite.digest,
        "tasks": list(suite.ids),
        **counts,
        **shapes,
        "manifest": manifest,
        "prices": prices,
        "with_rubric": judged,
    }
    lines = [f"{label(suite)}  {len(tasks)} tasks, digest {suite.digest[:12]}  {manifest['description']}"]
    lines += [
        f"{key}: " + ", ".join(f"{name} {count}" for name, count in found.items()) for key, found in counts.items()
    ]
    lines.append(
        f"medians: {shapes['median_changed_lines']:g} changed lines (the report's set: {shapes['report_changed_lines']}), "
        f"{shapes['median_files']:g} files, {shapes['median_prompt_chars']:g} characters of prompt ({shapes['report_prompt_chars']})"
    )
    lines.append(
        f"{len(judged)} tasks have a rubric in addition to their tests; {len(prices)} prices of the suite's own"
    )
    lines += [f"refresh: {manifest['refresh']}"] if manifest["refresh"] else []
    lines += [f"{entry['version']}  {entry['date']}  {entry['change']}" for entry in manifest["changelog"]]
    lines += [f"  {task.id}  {' '.join(task.instruction.split())[:90]}" for task in tasks]
    return Answer(document, "\n".join(lines))


def _task(suite: Suite, task_id: str) -> Answer:
    from etude.evaluate.bench.suites.task_size import shape_of

    if task_id not in suite.ids:
        raise NoSuchTask(f"{suite.name} has no task {task_id!r}; `etude bench show {suite.name}` lists them")
    task = suite.task(task_id)
    shape = asdict(shape_of(task))
    asks = {key: task.hidden[key] for key in ("fail_to_pass", "pass_to_pass", "fails") if key in task.hidden}
    rubric = suite.rubric(task_id)
    document: dict[str, Any] = {
        "id": task.id,
        "category": task.category,
        "level": task.level,
        "instruction": task.instruction,
        "grader": task.grader,
        "files": list(task.files),
        "solution": task.solution,
        "tests": asks,
        "rubric": str(rubric) if rubric else None,
        "metadata": task.metadata,
        **shape,
    }
    head = f"{task.id}  ({task.category}, {task.level}, grader {task.grader})  {shape['lines']} lines in {shape['files']} files"
    parts = [head, task.instruction, *(f"{key}: {', '.join(map(str, names))}" for key, names in asks.items())]
    parts += [f"--- reference: {path}\n{text}" for path, text in task.solution.items()]
    return Answer(document, "\n\n".join(parts))
