"""`etude tasks check`: is every task of a folder sound?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.core.events.stopping import run_async


def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of tasks, or one task.")],
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Number of tasks to check at once.")] = 2,
    again: Annotated[
        bool, typer.Option("--again", help="Check again the tasks that an earlier check has a result for.")
    ] = False,
    plugins: Annotated[
        list[str] | None,
        typer.Option(
            "--plugin",
            metavar="MODULE:NAME",
            help="A grader by import path that tasks of the folder may name; repeatable. Its code runs on this machine.",
        ),
    ] = None,
    json: Json = False,
) -> Answer:
    """Grade references (three times), nothing done and every cheat, and search each sandbox for leaks. Fails if any task is off."""
    rows = run_async(_rows(folder, concurrency, again, plugins or []))
    from etude.tasks.checking.check import summary

    return Answer({"tasks": [row.to_json() for row in rows]}, summary(rows), int(not all(row.good for row in rows)))


async def _rows(folder: Path, concurrency: int, again: bool, plugins: list[str]) -> list[Any]:
    from etude.sandbox.pool import open_pool
    from etude.sandbox.settings import SandboxSettings
    from etude.tasks.checking.check import CheckRow, check_folder

    def progress(done: int, whole: int, row: CheckRow) -> None:
        print(f"{done}/{whole} {'ok ' if row.good else 'OFF'} {row.id}", file=sys.stderr, flush=True)

    pool = await open_pool(SandboxSettings())
    try:
        return await check_folder(
            folder, pool, concurrency=concurrency, again=again, plugins=plugins, progress=progress
        )
    finally:
        await pool.close()
