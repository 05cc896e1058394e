"""`etude tasks list [DIR]`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json, Overrides
from etude.cli.prepare import DEFAULT_RECIPE
from etude.cli.tasks.source import NoTask, RecipeName, exercises
from etude.cli.tasks.stats import summary_of

if TYPE_CHECKING:
    from etude.tasks.task_row import TaskRow

Value = Annotated[str | None, typer.Option(help="Only tasks of a folder with this value.")]
Difficulty = Annotated[
    str | None,
    typer.Option(
        "--difficulty", metavar="FROM-TO", help="Range of measured difficulty of a folder's tasks, e.g. 0.5-1."
    ),
]
Summary = Annotated[
    bool,
    typer.Option("--summary", help="Count a folder's tasks by kind, with lengths of prompts and sizes of changes."),
]


def list_tasks(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="A folder of tasks. Default: the exercises of the recipe.")
    ] = None,
    split: Annotated[
        Literal["train", "validation", "heldout"] | None,
        typer.Option("--split", help="Split of the tasks. Default: all of a folder, heldout of the exercises."),
    ] = None,
    level: Annotated[str | None, typer.Option("--level", help="Only exercises of this level.")] = None,
    category: Value = None,
    generator: Value = None,
    project: Value = None,
    difficulty: Difficulty = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of rows to print.")] = 20,
    summary: Summary = False,
    recipe: RecipeName = DEFAULT_RECIPE,
    overrides: Overrides = None,
    json: Json = False,
) -> Answer:
    """Print which tasks there are; exercises are made only when shown, exported or attempted."""
    if folder is not None:
        asked = {"split": split, "level": level, "category": category, "generator": generator, "project": project}
        given = {key: value for key, value in asked.items() if value is not None}
        return summary_of(_rows(folder, given, difficulty)) if summary else _folder(folder, given, limit, difficulty)
    if summary:
        raise NoTask(
            "--summary: exercises are made only when they are asked for; name a folder of tasks for this option"
        )
    named = (("--category", category), ("--generator", generator), ("--project", project), ("--difficulty", difficulty))
    for option, value in named:
        if value is not None:
            raise NoTask(f"{option} {value}: exercises are selected by --level; name a folder of tasks for this option")
    try:
        ids = exercises(recipe, overrides).ids(split or "heldout", level=level)
    except ValueError as error:
        raise NoTask(f"--level {level}: {error}") from error
    shown = list(itertools.islice(ids, limit))
    return Answer(
        {"split": split or "heldout", "total": len(ids), "ids": shown}, "\n".join(shown) + _more(len(shown), len(ids))
    )


def _bounds(difficulty: str) -> tuple[float, float]:
    low, _, high = difficulty.partition("-")
    try:
        bounds = float(low), float(high)
    except ValueError:
        bounds = 1.0, 0.0
    if not 0 <= bounds[0] <= bounds[1] <= 1:
        raise NoTask(f"--difficulty {difficulty}: give two numbers between 0 and 1, the smaller first, e.g. 0.5-1")
    return bounds


def _rows(folder: Path, asked: dict[str, str], difficulty: str | None) -> list[TaskRow]:
    """The rows with these values. Raises NoTask for a range of what was not measured."""
    from etude.tasks.store.opened import open_tasks

    rows = [
        row
        for row in open_tasks(folder).rows.values()
        if all(getattr(row, key) == value for key, value in asked.items())
    ]
    if difficulty is not None:
        low, high = _bounds(difficulty)
        if rows and all(row.difficulty is None for row in rows):
            raise NoTask(f"--difficulty {difficulty}: none was measured yet; `etude tasks difficulty {folder}` does")
        rows = [row for row in rows if row.difficulty is not None and low <= row.difficulty <= high]
    return rows


def _folder(folder: Path, asked: dict[str, str], limit: int, difficulty: str | None) -> Answer:
    from dataclasses import asdict

    rows = _rows(folder, asked, difficulty)
    if difficulty is not None:
        asked = {**asked, "difficulty": difficulty}
    shown = rows[:limit]
    document: dict[str, Any] = {
        "folder": str(folder),
        **asked,
        "total": len(rows),
        "tasks": [asdict(row) for row in shown],
    }
    width = max((len(row.id) for row in shown), default=0)
    lines = [
        f"{row.id:<{width}}  {row.category:<13}  {row.split:<10}  {row.lines:>5} lines {row.files:>3} files{_hard(row.difficulty)}"
        for row in shown
    ]
    return Answer(
        document, "\n".join(lines) + _more(len(shown), len(rows)) if rows else f"no task of {folder} is asked for"
    )


def _hard(difficulty: float | None) -> str:
    return "" if difficulty is None else f"  {difficulty:.2f}"


def _more(shown: int, whole: int) -> str:
    return f"\n… {whole} in all" if whole > shown else ""
