"""What the verbs that ask a judge share: how it is named, opened and closed, and the suite of a run's folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from etude.evaluate.bench.grading.judge import Judge
    from etude.evaluate.bench.grading.judgement import JudgementFile
    from etude.evaluate.bench.runs.table import BenchResults
    from etude.evaluate.bench.suites.suite import Suite

JudgeWord = Annotated[
    str | None,
    typer.Option(
        "--judge",
        metavar="[NAME=]URL#MODEL",
        help="Model that judges: an endpoint or checkpoint:DIR. Without it, judging is left out.",
    ),
]
KeyEnv = Annotated[
    str, typer.Option("--key-env", metavar="VARIABLE", help="The environment variable with the API key.")
]
SuiteWord = Annotated[
    str | None,
    typer.Option("--suite", metavar="SUITE", help="Current folder of the suite. Default: the one that the run used."),
]


class JudgeGone(Exception):
    """The judge stopped answering. The answers so far are kept."""


class NoSuite(Exception):
    """The suite of a run can't be had, and what was asked needs it."""


def suite_of(
    table: BenchResults, named: str | None, recipe: str, overrides: list[str] | None
) -> tuple[Suite | None, str]:
    """The suite of a run; or None, and why. A suite that is named explicitly must exist. Raises TaskError, NoSuite."""
    from etude.pipeline.recipe.read import find_recipe, read_recipe
    from etude.pipeline.run.suites import open_suite
    from etude.tasks.errors import TaskError

    label = table.shared["suite"]
    called, seed, count = str(label["name"]), table.shared["seed"], len(table.shared["tasks"])
    found = read_recipe([find_recipe(recipe)], [*(overrides or []), f"bench.seed={seed}"])
    try:
        suite = open_suite(named or called, found, tasks=count)
    except (TaskError, ValueError) as error:
        if named:
            raise
        return (
            None,
            f"the suite {called} can't be had here ({error}): tripwires that compare with it stay silent; name it with --suite",
        )
    absent = [task_id for task_id in table.shared["tasks"] if task_id not in suite.ids]
    if absent and named:
        raise NoSuite(f"--suite {named} has no task {absent[0]}, which the run asked")
    if absent:
        return (
            None,
            f"{called} has no task {absent[0]} as it is here: tripwires that compare with it stay silent; name it with --suite",
        )
    return suite, ""


@asynccontextmanager
async def closing(
    word: str | None, file: JudgementFile, key_env: str, suite: Suite | None
) -> AsyncIterator[Judge | None]:
    """The judge of a word, or none. Raises JudgeGone where the endpoint is at fault."""
    if word is None:
        yield None
        return
    from etude.evaluate.bench.grading.endpoint import price_of
    from etude.evaluate.bench.grading.judge import Judge
    from etude.evaluate.bench.prices import Prices
    from etude.pipeline.run.judges import answering

    async with answering(word, key_env) as policy, going_on("--judge"):
        yield Judge(policy, file, price=price_of(suite.prices if suite else Prices(), policy.name))


@asynccontextmanager
async def going_on(option: str) -> AsyncIterator[None]:
    """Says what to do where an endpoint fails for good. Raises JudgeGone."""
    from etude.agent.policy.protocol import PolicyError

    try:
        yield
    except PolicyError as error:
        raise JudgeGone(
            f"{option} stopped answering: {error}. Run the same command again to go on: what was answered is kept"
        ) from error
