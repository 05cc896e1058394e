"""`etude tasks import`: rows of the SWE-bench family, Harbor or Terminal-Bench directories, or a source by import path, as a folder of tasks."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.core.events.stopping import run_async

if TYPE_CHECKING:
    from etude.sandbox.protocol import SandboxPool
    from etude.tasks.importers.importing import Imported
    from etude.tasks.validation.suite_build import SuiteDecision

app = typer.Typer(
    no_args_is_help=True,
    help="Import SWE-bench rows, Harbor or Terminal-Bench directories, or your own source as tasks; each is verified.",
)

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Output folder of the tasks; it must not exist yet.")]
Count = Annotated[int | None, typer.Option("--count", min=1, help="Take this many at most.")]
Plan = Annotated[bool, typer.Option("--dry-run", help="Print what would be imported and what can't be; run nothing.")]
Timeout = Annotated[float, typer.Option("--test-timeout", min=1, help="Seconds for one run of a task's tests.")]


class Words(ValueError):
    """An option that isn't written as it must be."""


Rows = Annotated[
    Path, typer.Argument(metavar="ROWS", help="JSON lines, a JSON array or Parquet; any set of the family.")
]
Repos = Annotated[
    Path, typer.Option("--repos", metavar="DIR", help="Clones of the repositories; nothing is downloaded.")
]
TestCommand = Annotated[
    str | None, typer.Option("--test-command", help="Runs the tests in place of pytest; {report} is JUnit's path.")
]
Install = Annotated[
    bool, typer.Option("--install", help="Install each row's tree by the rules, as `tasks install` does.")
]


@app.command("swe-bench")
def swe_bench(
    rows: Rows,
    repos: Repos,
    out: Out = Path("tasks/swe-bench"),
    test_command: TestCommand = None,
    install: Install = False,
    test_timeout: Timeout = 120.0,
    count: Count = None,
    dry_run: Plan = False,
    json: Json = False,
) -> Answer:
    """Import rows whose repository is cloned here. Each is run before and after its patch; the others are reported with the reason."""
    from etude.pipeline.run.row_installing import open_row_installer
    from etude.tasks.graders.commands import CommandsGrader
    from etude.tasks.importers.swe_bench import candidates, on_host, without_clone
    from etude.tasks.importers.swe_bench_rows import read_rows
    from etude.tasks.validation.change import GradingContext

    found, left_out = read_rows(rows)
    if not repos.is_dir():
        raise FileNotFoundError(f"{repos}: there is no such folder of clones")
    left_out |= without_clone(found, repos)
    possible = [row for row in found if row.instance_id not in left_out]
    if dry_run:
        return _planned([row.instance_id for row in possible], left_out)
    if install and test_command:
        raise Words("--install finds out how the tests are run: leave --test-command out, or --install")
    asked = {"rows": str(rows), "repos": str(repos), "command": test_command, "install": install, "count": count}

    async def work(pool: SandboxPool) -> Imported:
        bench = GradingContext(pool, CommandsGrader(), test_timeout)
        found = open_row_installer(repos, pool) if install else on_host(tuple(shlex.split(test_command or "")))
        return await _imported(candidates(possible, repos, bench, install=found), out, asked, left_out, count)

    return _done(work)


@app.command()
def harbor(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Harbor or Terminal-Bench directories, or one of them.")
    ],
    out: Out = Path("tasks/harbor"),
    image: Annotated[
        list[str] | None,
        typer.Option(
            "--image", metavar="GLOB=IMAGE", help="Tasks that run in an image of the layer store; repeatable."
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="Value of ${NAME} in a task's settings; repeatable."),
    ] = None,
    count: Count = None,
    dry_run: Plan = False,
    json: Json = False,
) -> Answer:
    """Import directories whose image is in the layer store: the solution must score 1 and nothing 0 by the task's own tests."""
    from etude.tasks.importers.importing import foreign_candidates
    from etude.tasks.importers.terminal import read_foreign_tasks

    images, variables = _pairs(image, "--image", "GLOB=IMAGE"), _pairs(env, "--env", "NAME=VALUE")
    found, left_out = read_foreign_tasks(folder, variables)
    if dry_run:
        return _planned([task.id for task in found], left_out)
    asked = {"folder": str(folder), "images": images, "env": sorted(variables), "count": count}

    async def work(pool: SandboxPool) -> Imported:
        return await _imported(foreign_candidates(found, images, pool), out, asked, left_out, count)

    return _done(work)


@app.command()
def source(
    path: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="The source by import path. Its code runs on this machine.")
    ],
    out: Out = Path("tasks/imported"),
    plugins: Annotated[
        list[str] | None,
        typer.Option(
            "--plugin", metavar="MODULE:NAME", help="A grader by import path that tasks may name; repeatable."
        ),
    ] = None,
    count: Count = None,
    dry_run: Plan = False,
    json: Json = False,
) -> Answer:
    """Import the tasks of a source in your own package: each reference must score 1, nothing 0 and every cheat 0."""
    from etude.core.plugins import source_digests
    from etude.tasks.importers.plugin import ids_of, source_candidates
    from etude.tasks.registry import graders_with

    graders, sources = graders_with(plugins or ()), source_digests([path, *(plugins or ())])
    ids = ids_of(path)
    if dry_run:
        return _planned(list(ids), {})
    asked = {"source": path, "sources": sources, "count": count}

    async def work(pool: SandboxPool) -> Imported:
        return await _imported(source_candidates(path, graders, pool), out, asked, {}, count)

    return _done(work)


async def _imported(
    candidates: list[Any], out: Path, asked: dict[str, Any], left_out: dict[str, str], count: int | None
) -> Imported:
    from etude.tasks.importers.importing import import_tasks

    return await import_tasks(candidates, out, asked, left_out, _say, count=count)


def _done(work: Callable[[SandboxPool], Awaitable[Imported]]) -> Answer:
    from etude.sandbox.pool import open_pool
    from etude.sandbox.settings import SandboxSettings

    async def whole() -> Imported:
        pool = await open_pool(SandboxSettings())
        try:
            return await work(pool)
        finally:
            await pool.close()

    done = run_async(whole())
    document = {"folder": str(done.folder), "taken": list(done.taken), "left_out": dict(done.left_out)}
    lines = [f"{len(done.taken)} tasks in {done.folder}, {len(done.left_out)} left out", *_reasons(done.left_out)]
    return Answer(document, "\n".join(lines))


def _planned(ids: list[str], left_out: dict[str, str]) -> Answer:
    lines = [f"{len(ids)} would be tried, {len(left_out)} can't be", *_reasons(left_out)]
    return Answer({"tried": ids, "left_out": left_out}, "\n".join(lines))


def _reasons(left_out: Any) -> list[str]:
    return [f"  {name}: {' '.join(reason.split())[:200]}" for name, reason in left_out.items()]


def _pairs(words: list[str] | None, option: str, form: str) -> dict[str, str]:
    pairs = [word.partition("=") for word in words or []]
    if wrong := next((name for name, equals, _ in pairs if not name or not equals), None):
        raise Words(f"{option} {wrong}: it is written {form}")
    return {name: value for name, _, value in pairs}


def _say(done: int, whole: int, last: SuiteDecision) -> None:
    word = f"left out: {' '.join(last.reason.split())[:160]}" if last.reason else "sound"
    print(f"{done} of {whole}  {last.id}: {word}", file=sys.stderr, flush=True)
