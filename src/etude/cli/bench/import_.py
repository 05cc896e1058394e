"""`etude bench import`: SWE-bench rows, and folders of Harbor or Terminal-Bench, as suites."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from etude.cli.answer import Answer
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
    Requirements,
    TestTimeout,
    Version,
    finish_suite,
    plan,
    plan_suite,
    read_recipe_named,
    size_suite,
)
from etude.cli.option import Json, Overrides
from etude.cli.prepare import DEFAULT_RECIPE
from etude.cli.settings_command import settings_command

if TYPE_CHECKING:
    from etude.tasks.importers.swe_bench_rows import SweBenchRow

app = typer.Typer(no_args_is_help=True, help="Import SWE-bench rows and Harbor or Terminal-Bench folders as suites.")

Name = Annotated[str, typer.Option("--name", help="Name of the suite; it is written to suites/NAME.")]
Images = Annotated[
    list[str] | None,
    typer.Option("--image", metavar="GLOB=IMAGE", help="Tasks that run in an image of the layer store; repeatable."),
]


@app.command("swe-bench", cls=settings_command("--repos", "--name", "--out", "--count"))
def swe_bench(
    rows: Annotated[Path, typer.Argument(metavar="ROWS.jsonl", help="The rows, one JSON object a line.")],
    repos: Annotated[
        Path, typer.Option("--repos", metavar="DIR", help="Clones of the repositories; nothing is downloaded.")
    ],
    name: Name = "swe-bench",
    test_command: Command = None,
    test_timeout: TestTimeout = TEST_TIMEOUT_S,
    count: Count = None,
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
    """Import SWE-bench rows. Each is run before and after its patch; what can't be shown here is left out with the reason."""
    from etude.tasks.importers.swe_bench import candidates, without_clone

    found, left_out = _swe_bench_rows(rows, repos)
    facts = {"version": version, "description": description or f"SWE-bench rows of {rows.name}", "refresh": refresh}
    words = {"rows": rows, "repos": repos, "command": test_command, "count": count}
    limits, pytest = {"test_timeout_s": test_timeout}, test_command is None
    making = plan_suite(name, facts, words, out, after, prices, requirements, limits=limits, pytest=pytest)
    making = size_suite(making, count, concurrency, test_timeout)
    if dry_run:
        absent = without_clone(found, repos)
        return plan(making, [row.instance_id for row in found if row.instance_id not in absent], left_out | absent)
    command = tuple(shlex.split(test_command or ""))
    read = read_recipe_named(recipe, overrides)
    return finish_suite(read, making, lambda bench: candidates(found, repos, bench, command), left_out)


def _swe_bench_rows(rows: Path, repositories: Path) -> tuple[list[SweBenchRow], dict[str, str]]:
    """The rows, and why others can't be read. Raises FileNotFoundError without a folder of clones."""
    from etude.tasks.importers.swe_bench_rows import read_rows

    if not repositories.is_dir():
        raise FileNotFoundError(f"{repositories}: there is no such folder of clones")
    return read_rows(rows)


@app.command(cls=settings_command("--name", "--image", "--out", "--count"))
def harbor(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder of Harbor or Terminal-Bench tasks, or one of them.")
    ],
    name: Annotated[str, typer.Option("--name", help="Name of the suite; it is written to suites/NAME.")] = "harbor",
    image: Images = None,
    count: Count = None,
    version: Version = "1",
    after: After = None,
    description: Description = "",
    refresh: Refresh = "",
    prices: PriceFile = None,
    out: OutDir = None,
    concurrency: Concurrency = 2,
    recipe: RecipeName = DEFAULT_RECIPE,
    overrides: Overrides = None,
    dry_run: Plan = False,
    json: Json = False,
) -> Answer:
    """Import Harbor or Terminal-Bench tasks. Those with an image are run first; the others say at run time which one they lack."""
    from etude.pipeline.run.suite_importing import harbor_candidates
    from etude.tasks.importers.terminal import read_foreign_tasks

    images = dict(_pair(words) for words in image or [])
    found, left_out = read_foreign_tasks(folder)
    facts = {"version": version, "description": description or f"tasks of {folder.name}", "refresh": refresh}
    words = {"folder": folder, "images": images, "count": count}
    making = plan_suite(
        name, facts, words, out, after, prices, None, limits={"test_timeout_s": 300.0}, pytest=False, images=images
    )
    making = size_suite(making, count, concurrency, TEST_TIMEOUT_S)
    if dry_run:
        return plan(making, [task.id for task in found], left_out)
    read = read_recipe_named(recipe, overrides)
    return finish_suite(read, making, lambda bench: harbor_candidates(found, images, bench), left_out)


def _pair(words: str) -> tuple[str, str]:
    glob, _, named = words.partition("=")
    if not glob or not named:
        raise typer.BadParameter(f"--image {words}: give GLOB=IMAGE, e.g. '*=debian:12'")
    return glob, named
