"""`etude bench make`: a suite of one's own, from recorded sessions or from tasks."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from etude.cli.answer import Answer
from etude.cli.bench.judging import KeyEnv
from etude.cli.bench.making import (
    TEST_TIMEOUT_S,
    After,
    Command,
    Concurrency,
    Count,
    Description,
    OutDir,
    Plan,
    PriceFile,
    RecipeName,
    Refresh,
    Repo,
    Requirements,
    Rubrics,
    Sessions,
    TestTimeout,
    Version,
    finish_suite,
    plan,
    plan_suite,
    read_recipe_named,
    size_suite,
    tell_rubric,
)
from etude.cli.option import Json, Overrides
from etude.cli.prepare import DEFAULT_RECIPE

if TYPE_CHECKING:
    from etude.pipeline.recipe.recipe import Recipe
    from etude.pipeline.run.suite_making import SuiteBuildPlan
    from etude.tasks.recorded.task_plans import RecordedTaskPlan

TASKS = "From tasks"


class SuiteMakeError(Exception):
    """The suite was not described well enough to make it."""


Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the suite; it is written to suites/NAME.")]
Tasks = Annotated[
    str | None,
    typer.Option(
        "--from-tasks",
        metavar="DIR|exercises|real",
        rich_help_panel=TASKS,
        help="Harbor directories we exported, or a built-in source.",
    ),
]
Category = Annotated[str | None, typer.Option("--category", rich_help_panel=TASKS, help="Only tasks of this category.")]
Level = Annotated[str | None, typer.Option("--level", rich_help_panel=TASKS, help="Only tasks of this level.")]
SplitName = Annotated[
    Literal["train", "validation", "heldout"],
    typer.Option("--split", rich_help_panel=TASKS, help="Only tasks of this split."),
]
Seed = Annotated[
    int, typer.Option("--seed", rich_help_panel=TASKS, help="Random seed for the order in which tasks are tried.")
]


def make(
    name: Name,
    from_sessions: Sessions = None,
    from_tasks: Tasks = None,
    repository: Repo = None,
    rubrics: Rubrics = None,
    key_env: KeyEnv = "OPENAI_API_KEY",
    test_command: Command = None,
    test_timeout: TestTimeout = TEST_TIMEOUT_S,
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
    _check_sources(from_sessions, from_tasks, rubrics)
    read = read_recipe_named(recipe, overrides)
    facts = {"version": version, "description": description, "refresh": refresh}
    words = {"category": category, "level": level, "split": split, "seed": seed, "repository": repository}
    words |= {"sessions": from_sessions, "tasks": from_tasks, "command": test_command, "count": count, **_bound(read)}
    limits, pytest = _test_runs(from_sessions, from_tasks, test_command, test_timeout)
    making = plan_suite(name, facts, words, out, after, prices, requirements, limits=limits, pytest=pytest)
    making = size_suite(making, count or (24 if from_tasks == "exercises" else None), concurrency, test_timeout)
    if from_sessions:
        asked = asked_of(from_sessions, repository)
        return of_sessions(read, making, *asked, test_command, (rubrics, key_env), dry_run)
    return _tasks(read, making, str(from_tasks), (category, level, split), seed, dry_run)


def _test_runs(
    sessions: list[Path] | None, tasks: str | None, command: str | None, timeout_s: float
) -> tuple[dict[str, float], bool]:
    """The manifest's limits of test runs, and whether the suite's environment needs pytest."""
    return {"test_timeout_s": timeout_s} if sessions else {}, tasks != "exercises" and command is None


def _check_sources(sessions: list[Path] | None, tasks: str | None, rubrics: str | None) -> None:
    """Raises MakeError unless exactly one source is given, and sessions where rubrics are drafted."""
    if bool(sessions) == bool(tasks):
        raise SuiteMakeError("say what the suite is made of: --from-sessions DIR, or --from-tasks DIR|exercises|real")
    if rubrics and not sessions:
        raise SuiteMakeError(
            "--rubrics drafts from the solutions of sessions: tasks of other sources keep the rubrics they have"
        )


def asked_of(places: list[Path], repository: Path | None) -> tuple[list[RecordedTaskPlan], dict[str, str]]:
    """What sessions came to, oldest first, and why others came to nothing."""
    from etude.tasks.recorded.session import read_recorded
    from etude.tasks.recorded.task_plans import plan_recorded_tasks

    sessions, unread = read_recorded(places)
    found, loose = plan_recorded_tasks(sessions, repository)
    return found, unread | loose


def of_sessions(
    recipe: Recipe,
    making: SuiteBuildPlan,
    found: list[RecordedTaskPlan],
    left_out: dict[str, str],
    test_command: str | None,
    drafting: tuple[str | None, str],
    dry_run: bool,
) -> Answer:
    """A suite of what sessions came to, with rubrics where somebody is named to draft them."""
    from dataclasses import replace

    from etude.pipeline.run.suite_making import Drafting
    from etude.tasks.recorded.task_plans import candidates, other_solutions

    word, key_env = drafting
    if word is not None:
        making = replace(making, drafting=Drafting(word, key_env, other_solutions(found), tell_rubric))
    if dry_run:
        return plan(making, [one.id for one in found], left_out)
    command = tuple(shlex.split(test_command or ""))
    return finish_suite(recipe, making, lambda bench: candidates(found, bench, command), left_out, drafts=True)


def _bound(recipe: Recipe) -> dict[str, Any]:
    """The digests of the graders by import path that tasks may name: an unfinished suite goes on with the same ones alone."""
    from etude.core.plugins import source_digests

    return {"plugins": source_digests(recipe.tasks.plugins)} if recipe.tasks.plugins else {}


def _tasks(
    recipe: Recipe, making: SuiteBuildPlan, source: str, wanted: tuple[Any, Any, Any], seed: int, dry_run: bool
) -> Answer:
    from etude.evaluate.bench.suites.from_tasks import Choice, candidates
    from etude.pipeline.run.collecting import source_of

    choice = Choice(*wanted)
    tasks = source_of(source, recipe, choice)
    if dry_run:
        return plan(making, tasks.ids[:100], {}, len(tasks.ids))
    return finish_suite(
        recipe,
        making,
        lambda bench: candidates(
            tasks.ids, tasks.make, choice, seed, bench.pool, tasks.graders | {"commands": bench.grader}
        ),
        {},
    )
