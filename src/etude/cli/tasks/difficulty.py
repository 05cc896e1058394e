"""`etude tasks difficulty DIR [--runs DIR]`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json


def difficulty(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of tasks that was made or imported here.")],
    runs: Annotated[
        list[Path] | None,
        typer.Option("--runs", metavar="DIR", help="Rollouts: of RL, of a bench, of a collection; repeatable."),
    ] = None,
    json: Json = False,
) -> Answer:
    """Measure how hard each task is, by its reference, by what a scripted solver has to read, and by rollouts; write it into the tasks."""
    from etude.pipeline.run.lock import RunLock
    from etude.pipeline.run.rollouts import tried_in
    from etude.tasks.difficulty.marking import mark
    from etude.tasks.store.folder import TaskFolder, is_folder

    if not is_folder(folder):
        TaskFolder(folder)  # which says what is wrong with it
    with RunLock(folder):
        document = mark(TaskFolder(folder, make=True), tried_in(runs or []), _tell)
    return Answer({"folder": str(folder), **document}, _text(document))


def _tell(done: int, whole: int) -> None:
    if done % 100 == 0 or done == whole:
        print(f"{done} of {whole} tasks measured", file=sys.stderr, flush=True)


def _text(document: dict[str, Any]) -> str:
    found = document["difficulty"]
    lines = [f"{document['tasks']} tasks, {document['rollouts']} rollouts at them"]
    if found["count"]:
        lines.append(f"difficulty: median {found['p50']:.2f}, from {found['min']:.2f} to {found['max']:.2f}")
    lines += [f"  {name:<20}{value:.2f}" for name, value in document["by_generator"].items()]
    if document["foretold"] is not None:
        lines.append(
            f"reference and search effort foretell what failed with a rank correlation of {document['foretold']:.2f}"
        )
    if document["rollouts_of_other_tasks"]:
        lines.append(f"{document['rollouts_of_other_tasks']} rollouts are of tasks that are not here")
    return "\n".join(lines)
