"""`etude bench refresh`: the next version of a suite, from newer sessions and without the tasks that tell nothing any more."""

from __future__ import annotations

import shlex
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.bench.judging import KeyEnv
from etude.cli.bench.make import asked_of, of_sessions
from etude.cli.bench.making import (
    TEST_TIMEOUT_S,
    Concurrency,
    Count,
    Plan,
    PriceFile,
    RecipeName,
    Repo,
    Rubrics,
    Sessions,
    price_list,
    read_recipe_named,
    size_suite,
)
from etude.cli.option import Json, Overrides
from etude.cli.prepare import DEFAULT_RECIPE

if TYPE_CHECKING:
    from etude.evaluate.bench.renewal import Renewal
    from etude.evaluate.bench.suites.folder import FolderSuite
    from etude.pipeline.run.suite_making import SuiteBuildPlan
    from etude.tasks.recorded.task_plans import RecordedTaskPlan


class RefreshError(Exception):
    """Nothing was named by which the suite could change."""


Before = Annotated[str, typer.Argument(metavar="SUITE", help="The version before: a folder, or a name under suites/.")]
Runs = Annotated[
    list[Path] | None,
    typer.Option(
        "--run", metavar="DIR", help="Bench run of the suite, from which saturated tasks are found; repeatable."
    ),
]
Least = Annotated[int, typer.Option("--least", min=1, help="Attempts, all solved, that retire a task.")]
Since = Annotated[
    datetime | None,
    typer.Option("--since", formats=["%Y-%m-%d"], help="Sessions from this day on. Default: the version's own day."),
]
SameTimeout = Annotated[
    float | None,
    typer.Option("--test-timeout", min=1.0, help="Seconds one run of the tests may take. Default: the suite's own."),
]
SameCommand = Annotated[
    str | None, typer.Option("--test-command", help="Test command of new tasks. Default: the suite's own.")
]
NextVersion = Annotated[
    str | None,
    typer.Option("--version", help="New version. Default: the old version with its last number raised by one."),
]
NextFolder = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Folder of the new version. Default: NAME-VERSION in the folder of the old one."
    ),
]


def refresh(
    suite: Before,
    from_sessions: Sessions = None,
    run: Runs = None,
    least: Least = 8,
    since: Since = None,
    repository: Repo = None,
    rubrics: Rubrics = None,
    key_env: KeyEnv = "OPENAI_API_KEY",
    test_command: SameCommand = None,
    test_timeout: SameTimeout = None,
    count: Count = None,
    version: NextVersion = None,
    prices: PriceFile = None,
    out: NextFolder = None,
    concurrency: Concurrency = 2,
    recipe: RecipeName = DEFAULT_RECIPE,
    overrides: Overrides = None,
    dry_run: Plan = False,
    json: Json = False,
) -> Answer:
    """Make a suite's next version: new tasks from newer sessions, saturated ones retired, the rest kept as it was frozen."""
    from etude.evaluate.bench.renewal import command_of, renewal
    from etude.evaluate.bench.suites.find import read_suite

    _check_sources(from_sessions, run)
    before = read_suite(suite)
    before.verify()
    found = renewal(before, run or [], least)
    asked, left_out = asked_of(from_sessions or [], repository)
    fresh, old = _newer(asked, found, since.date() if since else before.manifest.released)
    words = {"before": before.digest, "retired": list(found.retired), "sessions": from_sessions, "since": since}
    words |= {"repository": repository, "command": test_command, "count": count}
    making = _making(before, found, words, version, out, prices)
    pinned = float(before.manifest.harness.get("test_timeout_s", TEST_TIMEOUT_S))
    making = size_suite(making, count, concurrency, test_timeout or pinned)
    command = shlex.join(command_of(map(before.task, before.ids))) if test_command is None else test_command
    read = read_recipe_named(recipe, overrides)
    return of_sessions(read, making, fresh, left_out | old, command, (rubrics, key_env), dry_run)


def _check_sources(sessions: list[Path] | None, runs: list[Path] | None) -> None:
    if not sessions and not runs:
        raise RefreshError(
            "say by what the suite changes: --from-sessions DIR (new tasks), --run DIR (retired ones), or both"
        )


def _newer(found: list[RecordedTaskPlan], by: Renewal, since: date) -> tuple[list[RecordedTaskPlan], dict[str, str]]:
    """What is new to the suite, and why the rest is not."""
    fresh: list[RecordedTaskPlan] = []
    old: dict[str, str] = {}
    for one in found:
        day = date.fromtimestamp(one.reference.session.header.created_unix_s)  # as `released` is: of this machine
        if one.id in by.known:
            old[one.id] = "it is in the suite, or was retired from it"
        elif day < since:
            old[one.id] = f"its session is of {day}, before {since}: --since takes older ones"
        else:
            fresh.append(one)
    return fresh, old


def _making(
    before: FolderSuite, found: Renewal, words: dict, version: str | None, out: Path | None, prices: Path | None
) -> SuiteBuildPlan:
    """The version to be: limits and environment are the same, else the tasks that stay would be other tasks."""
    from etude.evaluate.bench.renewal import next_version, rubrics_of
    from etude.pipeline.run.suite_making import SuiteBuildPlan

    update = {"version": version or next_version(before.version), "released": date.today()}
    manifest = before.manifest.model_copy(update=update)
    root = out or before.root.parent / f"{before.name}-{manifest.version}"
    named = before.manifest.environment.requirements
    return SuiteBuildPlan(
        root,
        manifest,
        {"words": words, "version": manifest.version},
        price_list(prices) if prices else before.prices,
        requirements=before.root / named if named else None,
        after=before,
        kept=[before.task(task_id) for task_id in found.kept],
        rubrics=rubrics_of(before, found.kept),
        retired=found.retired,
    )
