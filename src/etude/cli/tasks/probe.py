"""`etude tasks probe`: what a foreign model remembers of tasks."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.prepare import DEFAULT_RECIPE
from etude.core.events.stopping import run_async

if TYPE_CHECKING:
    from etude.tasks.generate.contamination.probing import ProbeRow
    from etude.tasks.task import Task

EXERCISES = 200  # of a hundred thousand and more, unless --count says otherwise
ANSWERS = "contamination"  # in the folder of tasks: a file a model


class ProbeError(Exception):
    """The model stopped answering, or there was nothing to ask."""


Tasks = Annotated[str, typer.Argument(metavar="DIR|exercises|real", help="A folder of tasks, or a built-in source.")]
Policy = Annotated[
    str, typer.Option("--policy", "-p", metavar="P", help="The model: [NAME=]URL#MODEL, or checkpoint:DIR.")
]
Count = Annotated[
    int | None, typer.Option("--count", min=1, help="Probe at most this many tasks, starting with the first.")
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Folder of the answers. Default: DIR/contamination.")
]
Mark = Annotated[bool, typer.Option("--mark", help="Write the figures into the tasks' metadata, of a DIR.")]
KeyEnv = Annotated[str, typer.Option("--key-env", help="The variable that holds the endpoint's key.")]
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, help="Questions in flight.")]


def probe(
    tasks: Tasks,
    policy: Policy,
    count: Count = None,
    out: Out = None,
    mark: Mark = False,
    key_env: KeyEnv = "OPENAI_API_KEY",
    concurrency: Concurrency = 4,
    json: Json = False,
) -> Answer:
    """Test tasks for contamination and flag those that a model knew.

    The model continues reference solutions and names their files from memory. The same command resumes a stopped probe.
    """
    from etude.evaluate.bench.suites.from_tasks import Choice
    from etude.pipeline.recipe.read import find_recipe, read_recipe
    from etude.pipeline.run.collecting import source_of
    from etude.tasks.generate.contamination.probing import flags, mark_task, summary

    source = source_of(tasks, read_recipe([find_recipe(DEFAULT_RECIPE)], []), Choice())
    most = count or (EXERCISES if tasks == "exercises" else None)
    found = [source.make(task_id) for task_id in source.ids[:most]]
    name = re.sub(r"[^\w.-]", "-", policy.partition("#")[2] or policy)
    place = (out or (Path(tasks) if Path(tasks).is_dir() else Path()) / ANSWERS) / f"{name}.jsonl"
    rows = _asked(policy, key_env, found, place, concurrency)
    if not rows:
        raise ProbeError(
            f"none of the {len(found)} tasks has a reference of several telling lines, or a project: nothing to ask"
        )
    if mark:
        _mark(Path(tasks), [mark_task(task, name, rows, flags(rows)) for task in found])
    document = {**summary(name, rows), "answers": str(place)}
    return Answer(document, _text(name, len(rows), document))


def _asked(policy: str, key_env: str, tasks: list[Task], place: Path, concurrency: int) -> list[ProbeRow]:
    """The model's answers, kept at `place`. Raises ProbeError where it stops answering."""
    from etude.agent.policy.protocol import PolicyError
    from etude.pipeline.run.judges import answering
    from etude.tasks.generate.contamination.probing import ProbeAnswers, ask

    async def work() -> list[ProbeRow]:
        async with answering(policy, key_env, "--policy") as model:
            return await ask(model, tasks, ProbeAnswers(place), concurrency=concurrency, progress=_tell)

    try:
        return run_async(work())
    except* PolicyError as several:
        raise ProbeError(
            f"{policy} stopped answering: {several.exceptions[0]}. Run the same command again to go on"
        ) from several


def _text(name: str, questions: int, document: dict[str, Any]) -> str:
    means = ", ".join(f"{probe} {value:.1%}" for probe, value in document["means"].items())
    known = [
        f"  {task}: " + ", ".join(f"{p} {v:.0%}" for p, v in hits.items()) for task, hits in document["flagged"].items()
    ]
    head = f"{name} was asked {questions} questions of {document['tasks']} tasks and remembers {means}; {len(known)} tasks are flagged"
    return "\n".join([head, *known])


def _tell(done: int, whole: int, last: ProbeRow) -> None:
    print(f"{done} of {whole}  {last.task} {last.probe}: {last.score:.0%}", file=sys.stderr, flush=True)


def _mark(folder: Path, tasks: list) -> None:
    """Write each task again in its own directory, complete before the old one is removed."""
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
