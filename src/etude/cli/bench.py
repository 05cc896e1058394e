"""`etude bench`: the run's bench stage, or with --model the same tasks asked of an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import DryRun, Json, Out, Overrides, Recipes
from etude.cli.prepare import prepare
from etude.cli.run import go


class EndpointError(Exception):
    """The endpoint was not described well enough to ask it."""


def bench(
    recipes: Recipes = None,
    overrides: Overrides = None,
    out: Out = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="URL", help="Ask this endpoint instead, e.g. http://127.0.0.1:8000/v1."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="The model's name at the endpoint.")] = None,
    tasks: Annotated[int, typer.Option("--tasks", min=2, help="Held-out tasks asked of the endpoint.")] = 24,
    passes: Annotated[int, typer.Option("--passes", min=1, help="Attempts at each task.")] = 1,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Attempts in flight.")] = 4,
    real: Annotated[bool, typer.Option("--real/--no-real", help="Ask the real-package bugs too.")] = True,
    dry_run: DryRun = False,
    json: Json = False,
) -> Answer:
    """Compare the run's checkpoints on held-out tasks, or ask the same tasks of an endpoint (--model URL)."""
    run = prepare(recipes, overrides, out)
    if model is None:
        return go(run, ["bench"], dry_run=dry_run)
    if not re.match(r"https?://", model):
        raise EndpointError(f"--model {model}: give the endpoint's address, e.g. http://127.0.0.1:8000/v1")
    if not name:
        raise EndpointError("say which model to ask for at the endpoint: --name NAME")
    # One folder for each model, so that an interrupted bench goes on and two models never mix.
    folder = (out or Path("runs")) / "endpoints" / re.sub(r"[^\w.-]", "-", name)
    if dry_run:
        document: dict[str, Any] = {
            "endpoint": model,
            "name": name,
            "tasks": tasks,
            "passes": passes,
            "out": str(folder),
        }
        return Answer(document, f"would ask {name} at {model}: {tasks} tasks, {passes} passes, into {folder}")
    from etude.events.live import LiveView
    from etude.events.log import EventLog
    from etude.run.endpoint import Endpoint, bench_endpoint
    from etude.run.lock import RunLock

    events = folder / "events.jsonl"
    with RunLock(folder), LiveView(events):
        asked = bench_endpoint(
            run.recipe, Endpoint(model, name, tasks, passes, concurrency, real), folder, EventLog(events)
        )
        found = asyncio.run(asked)
    return Answer(found, _table(found))


def _table(found: dict[str, Any]) -> str:
    rows = {**found["bench"], "real packages": found.get("bench_real")}
    lines = []
    for name, entry in rows.items():
        if entry and "skipped" in entry:
            lines.append(f"{name}: left out, {entry['skipped']}")
        elif entry:
            low, high = entry["ci95"]
            lines.append(f"{name}: {entry['avg']:.1f}% [{low:.1f}, {high:.1f}] of {entry['tasks']} tasks")
    return "\n".join(lines)
