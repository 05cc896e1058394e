"""`etude tasks`: look at the exercises that a recipe trains and benches on."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json, Overrides
from etude.cli.prepare import DEFAULT_RECIPE
from etude.cli.task_install import install
from etude.cli.task_probe import probe

app = typer.Typer(
    no_args_is_help=True, help="List, show and export the exercises of a recipe; publish their fingerprints."
)

app.command("install")(install)
app.command("probe")(probe)

_Recipe = Annotated[str, typer.Option("--recipe", help="The recipe whose [exercises] make the tasks.")]
_Id = Annotated[str, typer.Argument(metavar="ID", help="A task's id, as `etude tasks list` prints it.")]


class NoTask(Exception):
    """There is no such level or task."""


@app.command("list")
def list_tasks(
    split: Annotated[
        Literal["train", "validation", "heldout"], typer.Option("--split", help="Which split.")
    ] = "heldout",
    level: Annotated[str | None, typer.Option("--level", help="One level only.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many ids to print.")] = 20,
    recipe: _Recipe = DEFAULT_RECIPE,
    overrides: Overrides = None,
    json: Json = False,
) -> Answer:
    """Print ids of tasks; they are made only when shown, exported or attempted."""
    try:
        ids = _source(recipe, overrides).ids(split, level=level)
    except ValueError as error:
        raise NoTask(f"--level {level}: {error}") from error
    shown = list(itertools.islice(ids, limit))
    more = f"\n… {len(ids)} in all" if len(ids) > len(shown) else ""
    return Answer({"split": split, "total": len(ids), "ids": shown}, "\n".join(shown) + more)


@app.command()
def show(task_id: _Id, recipe: _Recipe = DEFAULT_RECIPE, overrides: Overrides = None, json: Json = False) -> Answer:
    """Print one task: the request, the files, the reference solution."""
    task = _task(_source(recipe, overrides), task_id)
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
    }
    parts = [f"{task.id}  ({task.category}, {task.level}, {task.split})", task.instruction]
    parts += [f"--- {path}\n{text}" for path, text in task.files.items()]
    parts += [f"--- solution: {path}\n{text}" for path, text in task.solution.items()]
    return Answer(document, "\n\n".join(parts))


@app.command()
def export(
    task_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Tasks to export.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the Harbor directories go.")],
    recipe: _Recipe = DEFAULT_RECIPE,
    overrides: Overrides = None,
    json: Json = False,
) -> Answer:
    """Write tasks as Harbor directories, which other harnesses run too."""
    from etude.tasks.harbor import write_task

    source = _source(recipe, overrides)
    folders = [write_task(_task(source, task_id), out / task_id.replace("/", "-")) for task_id in task_ids]
    return Answer({"exported": [str(f) for f in folders]}, "\n".join(str(f) for f in folders))


@app.command()
def fingerprint(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the files go, one a suite.")],
    json: Json = False,
) -> Answer:
    """Publish what the bench's tasks are known by, so that corpora can refuse documents that hold them; no text can be read back."""
    from dataclasses import asdict

    from etude.factory.exercises import published as exercises
    from etude.tasks.real import published as real

    found = [publish(out) for publish in (exercises.publish, real.publish)]
    lines = [f"{path}: {written.texts} texts, {written.grams:,} fingerprints" for path, written in found]
    return Answer({"files": [{"file": str(path), **asdict(w)} for path, w in found]}, "\n".join(lines))


def _task(source: Any, task_id: str) -> Any:
    try:
        return source.task(task_id)
    except KeyError as error:
        raise NoTask(error.args[0]) from error


def _source(recipe: str, overrides: list[str] | None) -> Any:
    from etude.factory.exercises.source import ExerciseSource
    from etude.recipe.read import find_recipe, read_recipe

    return ExerciseSource(read_recipe([find_recipe(recipe)], overrides or []).exercises)
