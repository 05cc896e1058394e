"""`etude tasks install`: projects of the list become environments, kept for whoever makes tasks of them."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json, Overrides
from etude.cli.prepare import DEFAULT_RECIPE

if TYPE_CHECKING:
    from etude.factory.sources.projects import Wanted
    from etude.recipe.recipe import Recipe


class InstallError(Exception):
    """What was asked for names something that there is not."""


Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Projects of the list. Default: all.")]
Projects = Annotated[Path, typer.Option("--projects", metavar="FILE", help="The list of projects.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Projects at a time.")]
RecipeName = Annotated[str, typer.Option("--recipe", help="Whose sandboxes are used.")]


def install(
    names: Names = None,
    projects: Projects = Path("recipes/projects.toml"),
    jobs: Jobs = 2,
    recipe: RecipeName = DEFAULT_RECIPE,
    overrides: Overrides = None,
    json: Json = False,
) -> Answer:
    """Fetch each project, propose goals, build it in a sandbox until three of them behave, and run its tests three times. What is
    installed is kept with its recipe; a project that can't be is told with the reason. Exit status 1 if any was not installed."""
    from etude.factory.sources.projects import read_projects
    from etude.recipe.read import find_recipe, read_recipe

    listed = {one.name: one for one in read_projects(projects)}
    if strange := [name for name in names or () if name not in listed]:
        raise InstallError(f"{projects} has no project {strange[0]!r}; it has {', '.join(sorted(listed))}")
    chosen = [one for name, one in listed.items() if not names or name in names]
    rows = asyncio.run(_installed(read_recipe([find_recipe(recipe)], overrides or []), chosen, jobs))
    good = sum(row["installed"] for row in rows)
    document = {"projects": rows, "installed": good, "of": len(rows), "yield": round(good / len(rows), 3)}
    lines = [*map(_line, rows), f"{good} of {len(rows)} projects installed"]
    return Answer(document, "\n".join(lines), 0 if good == len(rows) else 1)


async def _installed(recipe: Recipe, chosen: list[Wanted], jobs: int) -> list[dict[str, Any]]:
    from etude.factory.install.installing import Installer
    from etude.fleet.open import open_sandboxes
    from etude.tasks.running.pin import default_cache

    pool = await open_sandboxes(recipe.fleet, recipe.sandbox)
    try:
        installer, turn, done = Installer(pool, default_cache()), asyncio.Semaphore(jobs), 0

        async def one(wanted: Wanted) -> dict[str, Any]:
            nonlocal done
            async with turn:
                row = await _row(installer, wanted)
            done += 1
            print(f"[{done}/{len(chosen)}] {_line(row)}", file=sys.stderr, flush=True)
            return row

        return list(await asyncio.gather(*map(one, chosen)))
    finally:
        await pool.close()


async def _row(installer: Any, wanted: Wanted) -> dict[str, Any]:
    from etude.factory.making.order import Discarded
    from etude.sandbox.errors import InfraError

    began = time.monotonic()
    row: dict[str, Any] = {
        "project": wanted.name,
        "version": wanted.version,
        "kind": wanted.kind,
        "language": wanted.language,
    }
    try:
        built = await installer.install(wanted)
    except (Discarded, InfraError) as error:
        fault = "discarded" if isinstance(error, Discarded) else "no answer"
        row |= {"installed": False, "verdict": fault, "reason": " ".join(str(error).split())}
    else:
        found = built.installed
        row |= {
            "installed": True,
            "builder": built.builder,
            "runner": found.environment.tests.runner,
            "tests": len(found.baseline.passed),
            "flaky": len(found.baseline.flaky),
            "files": len(found.baseline.by_file),
            "snapshot": found.environment.snapshot,
            "licence": found.licence,
            "origin": found.origin,
        }
    return row | {"seconds": round(time.monotonic() - began, 1)}


def _line(row: dict[str, Any]) -> str:
    name = f"{row['project']} {row['version']}"
    if row["installed"]:
        flaky = f", {row['flaky']} flaky" if row["flaky"] else ""
        return f"{name}: {row['tests']} tests pass{flaky} ({row['runner']}, {row['seconds']:.0f} s)"
    return f"{name}: {row['verdict']}: {row['reason']}"
