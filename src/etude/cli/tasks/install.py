"""`etude tasks install`: install the projects of a list in environments, from which tasks are made."""

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
from etude.cli.tasks import agents as asked
from etude.core.events.stopping import run_async

if TYPE_CHECKING:
    from etude.pipeline.recipe.recipe import Recipe
    from etude.pipeline.run.install_agents import Agents
    from etude.tasks.generate.install.installing import Installer
    from etude.tasks.generate.sources.projects import CatalogueProject


class InstallError(Exception):
    """What was asked for names something that there is not."""


Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Projects of the list. Default: all.")]
Projects = Annotated[Path, typer.Option("--projects", metavar="FILE", help="The list of projects.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Projects at a time.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the projects and the builders, install nothing.")]
RecipeName = Annotated[str, typer.Option("--recipe", help="Recipe to take sandbox settings from.")]


def install(
    names: Names = None,
    projects: Projects = Path("recipes/projects.toml"),
    builder: asked.Builders = None,
    setter: asked.Setter = None,
    judge: asked.OutputJudge = None,
    key_env: asked.AgentKey = "OPENAI_API_KEY",
    max_turns: asked.Turns = asked.TURNS,
    max_tokens: asked.Tokens = asked.TOKENS,
    max_minutes: asked.Minutes = asked.MINUTES,
    max_cost: asked.Dollars = None,
    prices: asked.PriceList = None,
    sessions: asked.Sessions = None,
    jobs: Jobs = 2,
    recipe: RecipeName = DEFAULT_RECIPE,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> Answer:
    """Fetch each project, propose goals, build it in a sandbox until three of them behave, and run its tests three times. What is
    installed is kept with its recipe; a project that can't be installed is reported with the reason. With several --builder each of them installs
    every project, and the yields and costs stand side by side. Exit status 1 if any was installed by none."""
    from etude.pipeline.recipe.read import find_recipe, read_recipe
    from etude.tasks.generate.install.account import account, describe_account
    from etude.tasks.generate.sources.projects import read_projects

    listed = {one.name: one for one in read_projects(projects)}
    if strange := [name for name in names or () if name not in listed]:
        raise InstallError(f"{projects} has no project {strange[0]!r}; it has {', '.join(sorted(listed))}")
    chosen = [one for name, one in listed.items() if not names or name in names]
    limits = {"turns": max_turns, "tokens": max_tokens, "minutes": max_minutes, "dollars": max_cost}
    who = asked.agents(builder, setter, judge, key_env, prices=prices, sessions=sessions, **limits)
    read = read_recipe([find_recipe(recipe)], overrides or [])
    if dry_run:
        return _plan(chosen, who, jobs)
    rows, shared = run_async(_installed(read, chosen, jobs, who))
    document = account(rows, shared)
    lines = [*(_line(row, len(document["builders"]) > 1) for row in rows), describe_account(document)]
    return Answer(document, "\n".join(lines), 0 if document["installed"] == document["of"] else 1)


def _plan(chosen: list[CatalogueProject], who: Agents, jobs: int) -> Answer:
    """What --dry-run shows: nothing is fetched or installed."""
    document = {"projects": [project.name for project in chosen], "builders": list(who.builders), "jobs": jobs}
    text = f"would install {len(chosen)} projects with {', '.join(who.builders)}, {jobs} at a time\n"
    return Answer(document, text + "\n".join(f"  {project.name} {project.version}" for project in chosen))


async def _installed(
    recipe: Recipe, chosen: list[CatalogueProject], jobs: int, who: Agents
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    from etude.pipeline.run.install_agents import crew
    from etude.sandbox.fleet.open import open_sandboxes
    from etude.tasks.generate.install.account import total
    from etude.tasks.running.pin import default_cache

    who.check()
    pool = await open_sandboxes(recipe.fleet, recipe.sandbox)
    try:
        async with crew(who, recipe, pool, default_cache()) as found:
            turn, done = asyncio.Semaphore(jobs), 0
            of = len(chosen) * len(found.installers)

            async def one(installer: Installer, wanted: CatalogueProject) -> dict[str, Any]:
                nonlocal done
                async with turn:
                    row = await _row(installer, wanted)
                done += 1
                print(f"[{done}/{of}] {_line(row, len(found.installers) > 1)}", file=sys.stderr, flush=True)
                return row

            work = [one(installer, wanted) for installer in found.installers for wanted in chosen]
            rows = list(await asyncio.gather(*work))
            return rows, {"setter": total(found.setter), "judge": total(found.judge)}
    finally:
        await pool.close()


async def _row(installer: Installer, wanted: CatalogueProject) -> dict[str, Any]:
    from etude.sandbox.errors import InfraError
    from etude.tasks.generate.protocols import ProjectDiscarded

    began = time.monotonic()
    row: dict[str, Any] = {
        "project": wanted.name,
        "version": wanted.version,
        "kind": wanted.kind,
        "language": wanted.language,
        "builder": installer.name,
    }
    try:
        built = await installer.install(wanted)
    except (ProjectDiscarded, InfraError) as error:
        fault = "discarded" if isinstance(error, ProjectDiscarded) else "no answer"
        row |= {"installed": False, "verdict": fault, "reason": " ".join(str(error).split())}
        row |= {
            "spent": dict(error.spent)
            if isinstance(error, ProjectDiscarded)
            else installer.bill.of(wanted.id).to_record()
        }
    else:
        found = built.installed
        row |= {
            "installed": True,
            "runner": found.environment.tests.runner,
            "tests": len(found.baseline.passed),
            "flaky": len(found.baseline.flaky),
            "files": len(found.baseline.by_file),
            "snapshot": found.environment.snapshot,
            "licence": found.licence,
            "origin": found.origin,
            "spent": dict(built.spent),
            "notes": list(built.notes),
        }
    return row | {"seconds": round(time.monotonic() - began, 1)}


def _line(row: dict[str, Any], several: bool) -> str:
    name = f"{row['project']} {row['version']}" + (f" by {row['builder']}" if several else "")
    if row["installed"]:
        flaky = f", {row['flaky']} flaky" if row["flaky"] else ""
        notes = "".join(f"; {note}" for note in row["notes"])
        return f"{name}: {row['tests']} tests pass{flaky} ({row['runner']}, {row['seconds']:.0f} s){notes}"
    return f"{name}: {row['verdict']}: {row['reason']}"
