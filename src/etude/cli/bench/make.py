"""`etude bench make`: a suite of one's own, from recorded sessions or from tasks."""

from __future__ import annotations

import shlex
import sys
import time
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json, Overrides
from etude.cli.prepare import DEFAULT_RECIPE

if TYPE_CHECKING:
    from etude.bench.suites.making import Decision
    from etude.recipe.recipe import Recipe
    from etude.run.suite_making import Making

SESSIONS, TASKS = "From sessions", "From tasks"


class MakeError(Exception):
    """The suite was not described well enough to make it."""


Name = Annotated[str, typer.Argument(metavar="NAME", help="What the suite is called; it is written to suites/NAME.")]
Sessions = Annotated[
    list[Path] | None,
    typer.Option(
        "--from-sessions",
        metavar="DIR",
        rich_help_panel=SESSIONS,
        help="Recorded sessions, ours or other agents'; repeatable.",
    ),
]
Tasks = Annotated[
    str | None,
    typer.Option(
        "--from-tasks",
        metavar="DIR|exercises|real",
        rich_help_panel=TASKS,
        help="Harbor directories we exported, or a built-in source.",
    ),
]
Repo = Annotated[
    Path | None,
    typer.Option(
        "--repository",
        metavar="DIR",
        rich_help_panel=SESSIONS,
        help="Where the commits are. Default: each session's own folder.",
    ),
]
Command = Annotated[
    str | None,
    typer.Option(
        "--test-command",
        rich_help_panel=SESSIONS,
        help="How the project's tests run, if not by pytest; {report}: a JUnit file to write.",
    ),
]
TestTimeout = Annotated[
    float,
    typer.Option("--test-timeout", min=1.0, rich_help_panel=SESSIONS, help="Seconds one run of the tests may take."),
]
Category = Annotated[str | None, typer.Option("--category", rich_help_panel=TASKS, help="Only tasks of this category.")]
Level = Annotated[str | None, typer.Option("--level", rich_help_panel=TASKS, help="Only tasks of this level.")]
SplitName = Annotated[
    Literal["train", "validation", "heldout"],
    typer.Option("--split", rich_help_panel=TASKS, help="Only tasks of this split."),
]
Count = Annotated[
    int | None, typer.Option("--count", min=1, help="Stop when so many tasks are sound. Default: all; 24 exercises.")
]
Seed = Annotated[int, typer.Option("--seed", rich_help_panel=TASKS, help="Which tasks are tried first.")]
Version = Annotated[str, typer.Option("--version", help="The suite's version.")]
After = Annotated[
    str | None, typer.Option("--after", metavar="SUITE", help="The version before: its changelog goes on.")
]
Description = Annotated[str, typer.Option("--description", help="What the suite is for, in a line.")]
Refresh = Annotated[str, typer.Option("--refresh", help="How and when the tasks are renewed, in words.")]
PriceFile = Annotated[Path | None, typer.Option("--prices", metavar="FILE", help="A prices.toml to go with the suite.")]
Requirements = Annotated[
    Path | None,
    typer.Option("--requirements", metavar="FILE", help="What the projects' tests need, pinned as for pip."),
]
OutDir = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="The suite's folder. Default: suites/NAME.")]
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, help="Candidates proved at a time.")]
RecipeName = Annotated[str, typer.Option("--recipe", help="Whose sandboxes are used, and whose exercises.")]
Plan = Annotated[bool, typer.Option("--dry-run", help="Say which candidates there are; run nothing, write nothing.")]


def make(
    name: Name,
    from_sessions: Sessions = None,
    from_tasks: Tasks = None,
    repository: Repo = None,
    test_command: Command = None,
    test_timeout: TestTimeout = 600.0,
    category: Category = None,
    level: Level = None,
    split: SplitName = "heldout",
    count: Count = None,
    seed: Seed = 0,
    version: Version = "1",
    after: After = None,
    description: Description = "",
    refresh: Refresh = "",
    prices: PriceFile = None,
    requirements: Requirements = None,
    out: OutDir = None,
    concurrency: Concurrency = 2,
    recipe: RecipeName = DEFAULT_RECIPE,
    overrides: Overrides = None,
    dry_run: Plan = False,
    json: Json = False,
) -> Answer:
    """Make a suite: every task is run before it is taken (reference 1, nothing 0, cheats 0), then the list is frozen."""
    if bool(from_sessions) == bool(from_tasks):
        raise MakeError("say what the suite is made of: --from-sessions DIR, or --from-tasks DIR|exercises|real")
    read = read_recipe_named(recipe, overrides)
    told = {"version": version, "description": description, "refresh": refresh}
    words = {"category": category, "level": level, "split": split, "seed": seed, "repository": repository}
    words |= {"sessions": from_sessions, "tasks": from_tasks, "command": test_command, "count": count}
    limits = {"test_timeout_s": test_timeout} if from_sessions else {}
    making = planned(
        name,
        told,
        words,
        out,
        after,
        prices,
        requirements,
        limits=limits,
        pytest=_needs_pytest(from_tasks, test_command),
    )
    making = sized(making, count or (24 if from_tasks == "exercises" else None), concurrency, test_timeout)
    if from_sessions:
        return _sessions(read, making, from_sessions, repository, tuple(shlex.split(test_command or "")), dry_run)
    return _tasks(read, making, str(from_tasks), (category, level, split), seed, dry_run)


def planned(
    name: str,
    told: dict[str, str],
    words: dict[str, Any],
    out: Path | None,
    after: str | None,
    prices: Path | None,
    requirements: Path | None,
    *,
    limits: dict[str, Any],
    pytest: bool,
    images: dict[str, str] | None = None,
) -> Making:
    """The suite to be: everything but its tasks."""
    from etude.bench.suites.find import SHELF, read_suite
    from etude.bench.suites.manifest import check
    from etude.bench.suites.prices import Prices, read_prices
    from etude.run.suite_making import Making

    for file in filter(None, (prices, requirements)):
        if not file.is_file():
            raise FileNotFoundError(f"{file}: there is no such file")
    environment = {"pytest": pytest, "requirements": "requirements.txt" if requirements else "", "images": images or {}}
    # A repository takes more than an exercise: its tests, its files, its memory.
    attempt = {"memory_mb": 2048, "max_export_bytes": 64 << 20, "limit_s": 3600.0} if limits else {}
    row = {"name": name, "released": date.today(), "harness": limits, "attempt": attempt, "environment": environment}
    manifest = check(row | told, f"the suite {name}")
    before = read_suite(after) if after else None
    asked = {"manifest": manifest.model_dump(mode="json", exclude={"released"}), "words": words}
    listed = read_prices(prices) if prices else Prices()
    return Making(out or SHELF / name, manifest, asked, listed, requirements, before)


def sized(making: Making, count: int | None, concurrency: int, timeout_s: float) -> Making:
    """How many tasks are wanted, and how they are proved."""
    from dataclasses import replace

    return replace(making, count=count, concurrency=concurrency, timeout_s=timeout_s)


def _needs_pytest(source: str | None, command: str | None) -> bool:
    return source != "exercises" and command is None


def read_recipe_named(named: str, overrides: list[str] | None) -> Recipe:
    """The recipe whose sandboxes are used."""
    from etude.recipe.read import find_recipe, read_recipe

    return read_recipe([find_recipe(named)], overrides or [])


def _sessions(
    recipe: Recipe, making: Making, places: list[Path], repository: Path | None, command: tuple[str, ...], dry_run: bool
) -> Answer:
    from etude.bench.suites.from_sessions import asked, candidates
    from etude.bench.suites.recorded import read_recorded

    sessions, unread = read_recorded(places)
    found, loose = asked(sessions, repository)
    if dry_run:
        return plan(making, [one.id for one in found], unread | loose)
    return finished(recipe, making, lambda bench: candidates(found, bench, command), unread | loose)


def _tasks(
    recipe: Recipe, making: Making, source: str, wanted: tuple[Any, Any, Any], seed: int, dry_run: bool
) -> Answer:
    from etude.bench.suites.from_tasks import Choice, candidates
    from etude.run.suite_sources import source_of

    choice = Choice(*wanted)
    tasks = source_of(source, recipe, choice)
    if dry_run:
        return plan(making, tasks.ids[:100], {}, len(tasks.ids))
    return finished(
        recipe,
        making,
        lambda bench: candidates(
            tasks.ids, tasks.make, choice, seed, bench.pool, tasks.graders | {"commands": bench.grader}
        ),
        {},
    )


def plan(making: Making, candidates: Any, left_out: dict[str, str], whole: int | None = None) -> Answer:
    """What would be tried."""
    from etude.bench.suites.account import left_out_lines

    whole = len(candidates) if whole is None else whole
    document = {"folder": str(making.root), "candidates": whole, "first": list(candidates), "left_out": left_out}
    lines = [
        f"would try {whole} candidates and freeze the sound ones as {making.manifest.name}@{making.manifest.version} in {making.root}"
    ]
    lines += [f"  {candidate}" for candidate in list(candidates)[:20]]
    lines += ["  …"] if whole > 20 else []
    return Answer(document, "\n".join([*lines, *left_out_lines(left_out)]))


def finished(recipe: Recipe, making: Making, candidates: Any, left_out: dict[str, str]) -> Answer:
    """Makes the suite and tells how it goes on stderr."""
    from etude.bench.suites.account import told
    from etude.run.suite_making import make_suite

    began = time.monotonic()

    def progress(done: int, whole: int, last: Decision) -> None:
        word = f"left out: {' '.join(last.reason.split())[:160]}" if last.reason else "sound"
        print(
            f"{done} of {whole} after {time.monotonic() - began:.0f} s  {last.id}: {word}", file=sys.stderr, flush=True
        )

    document = make_suite(recipe, making, candidates, left_out, progress)
    return Answer(document, told(document))
