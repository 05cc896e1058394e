"""`etude tasks import exercises` and `etude tasks import real`: what Etude itself trains on and is measured by, as folders of tasks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json, Overrides
from etude.cli.prepare import DEFAULT_RECIPE
from etude.cli.tasks.source import RecipeName, exercises

if TYPE_CHECKING:
    from etude.tasks.task import Task

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of tasks; the same folder goes on.")]


def own_exercises(
    out: Out,
    train: Annotated[int, typer.Option("--train", min=0, help="Tasks of the training split, from the first.")] = 160,
    validation: Annotated[
        int, typer.Option("--validation", min=0, help="Number of tasks of the validation split.")
    ] = 40,
    heldout: Annotated[int, typer.Option("--heldout", min=0, help="Number of tasks of the held-out split.")] = 40,
    recipe: RecipeName = DEFAULT_RECIPE,
    overrides: Overrides = None,
    json: Json = False,
) -> Answer:
    """Write the exercises that a recipe trains and benches on as a folder of tasks, in the proportions of its levels."""
    source = exercises(recipe, overrides)
    wanted = {"train": train, "validation": validation, "heldout": heldout}
    ids = [task_id for split, count in wanted.items() for task_id in source.ids(split)[:count]]
    return _stored(ids, source.task, out, "exercises")


def own_real(
    out: Out,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="Maximum number of tasks over all packages.")
    ] = None,
    json: Json = False,
) -> Answer:
    """Write the bugs in real packages, the suite `real`, as a folder of held-out tasks. The pinned releases come from the package index."""
    from etude.tasks.real.source import RealPackages
    from etude.tasks.running.pin import default_cache

    source = RealPackages(default_cache())
    return _stored(source.ids("heldout")[:count], source.task, out, source.name)


def _stored(ids: Iterable[str], make: Callable[[str], Task], out: Path, generator: str) -> Answer:
    from etude.pipeline.run.lock import RunLock
    from etude.tasks.store.folder import TaskFolder
    from etude.tasks.store.own import describe_change

    ids, there = list(ids), 0
    with RunLock(out):
        folder = TaskFolder(out, make=True)
        for number, task_id in enumerate(ids, 1):
            if task_id in folder.rows:
                there += 1
                continue
            folder.add(describe_change(make(task_id), generator))
            if number % 50 == 0:
                print(f"{number} of {len(ids)}", file=sys.stderr, flush=True)
    document = {"folder": str(out), "tasks": len(ids), "written": len(ids) - there}
    return Answer(
        document,
        f"{len(ids)} tasks in {out}, {there} of them from before; `etude tasks check {out}` shows that they are sound",
    )
