"""`etude tasks probe`: what a foreign model remembers of tasks."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.prepare import DEFAULT_RECIPE
from etude.events.stopping import run_async

if TYPE_CHECKING:
    from etude.factory.contamination.probing import Row

EXERCISES = 200  # of a hundred thousand and more, unless --count says otherwise
ANSWERS = "contamination"  # in the folder of tasks: a file a model


class ProbeError(Exception):
    """The model stopped answering, or there was nothing to ask."""


def probe(
    tasks: Annotated[
        str, typer.Argument(metavar="DIR|exercises|real", help="A folder of tasks, or a built-in source.")
    ],
    policy: Annotated[
        str, typer.Option("--policy", "-p", metavar="P", help="The model: [NAME=]URL#MODEL, or checkpoint:DIR.")
    ],
    count: Annotated[int | None, typer.Option("--count", min=1, help="Only so many tasks, from the first.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where answers are kept. Default: DIR/contamination.")
    ] = None,
    mark: Annotated[bool, typer.Option("--mark", help="Write the figures into the tasks' metadata, of a DIR.")] = False,
    key_env: Annotated[
        str, typer.Option("--key-env", help="The variable that holds the endpoint's key.")
    ] = "OPENAI_API_KEY",
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Questions in flight.")] = 4,
    json: Json = False,
) -> Answer:
    """Ask a model to continue references and to name their files from memory; flag the tasks that it knew. The same command goes on."""
    from etude.bench.suites.from_tasks import Choice
    from etude.factory.contamination.probing import Answers, ask, flags, marked, summary
    from etude.policy.protocol import PolicyError
    from etude.recipe.read import find_recipe, read_recipe
    from etude.run.judges import answering
    from etude.run.suite_sources import source_of

    source = source_of(tasks, read_recipe([find_recipe(DEFAULT_RECIPE)], []), Choice())
    most = count or (EXERCISES if tasks == "exercises" else None)
    found = [source.make(task_id) for task_id in source.ids[:most]]
    name = re.sub(r"[^\w.-]", "-", policy.partition("#")[2] or policy)
    place = (out or (Path(tasks) if Path(tasks).is_dir() else Path()) / ANSWERS) / f"{name}.jsonl"

    async def asked() -> list[Row]:
        async with answering(policy, key_env, "--policy") as model:
            return await ask(model, found, Answers(place), concurrency=concurrency, progress=_tell)

    try:
        rows = run_async(asked())
    except* PolicyError as several:
        raise ProbeError(
            f"{policy} stopped answering: {several.exceptions[0]}. Run the same command again to go on"
        ) from several
    if not rows:
        raise ProbeError(
            f"none of the {len(found)} tasks has a reference of several telling lines, or a project: nothing to ask"
        )
    if mark:
        _mark(Path(tasks), [marked(task, name, rows, flags(rows)) for task in found])
    document = {**summary(name, rows), "answers": str(place)}
    means = ", ".join(f"{probe} {value:.1%}" for probe, value in document["means"].items())
    known = [
        f"  {task}: " + ", ".join(f"{p} {v:.0%}" for p, v in hits.items()) for task, hits in document["flagged"].items()
    ]
    head = f"{name} was asked {len(rows)} questions of {document['tasks']} tasks and remembers {means}; {len(known)} tasks are flagged"
    return Answer(document, "\n".join([head, *known]))


def _tell(done: int, whole: int, last: Row) -> None:
    print(f"{done} of {whole}  {last.task} {last.probe}: {last.score:.0%}", file=sys.stderr, flush=True)


def _mark(folder: Path, tasks: list) -> None:
    """Each task anew in its own directory, whole before the old one goes."""
    import shutil

    from etude.tasks.harbor import read_task, write_task

    if not folder.is_dir():
        raise ProbeError(f"--mark writes into a folder of tasks, and {folder} is none")
    places = {read_task(file.parent).id: file.parent for file in folder.rglob("task.toml")}
    for task in tasks:
        place = places[task.id]
        fresh = place.with_name(f".{place.name}.marked")
        shutil.rmtree(fresh, ignore_errors=True)  # half of one, of a run that was killed
        write_task(task, fresh)
        shutil.rmtree(place)
        fresh.rename(place)
