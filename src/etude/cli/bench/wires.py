"""`etude bench wires`: how many cheats of a suite the audit's tripwires catch, and how many of its references they bother."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.bench.making import read_recipe_named
from etude.cli.option import Json, Overrides
from etude.cli.prepare import DEFAULT_RECIPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etude.evaluate.bench.audit.measure import CheckedChange

Suites = Annotated[
    list[str] | None, typer.Argument(metavar="[SUITE]...", help="Suites' names or folders. Default: exercises real.")
]
Tasks = Annotated[int | None, typer.Option("--tasks", min=1, help="Maximum number of tasks of each built-in suite.")]
RecipeName = Annotated[str, typer.Option("--recipe", help="Recipe to take the exercises from.")]
DEFAULT = ("exercises", "real")
SHOWN = 20  # misses that a person reads in the terminal; --json has all


def wires(
    suites: Suites = None,
    tasks: Tasks = None,
    recipe: RecipeName = DEFAULT_RECIPE,
    overrides: Overrides = None,
    json: Json = False,
) -> Answer:
    """Print the recall of the tripwire checks on all cheats by level, and their precision on the reference solutions. Nothing is run."""
    from etude.evaluate.bench.audit.measure import check_changes
    from etude.pipeline.run.suites import open_suite

    found = read_recipe_named(recipe, overrides)
    opened = [open_suite(name, found, tasks=tasks) for name in suites or DEFAULT]
    rows = {
        suite.name: [row for task_id in suite.ids for row in check_changes(suite.task(task_id))] for suite in opened
    }
    every = [row for some in rows.values() for row in some]
    document = {
        "in_all": _counts(every),
        "suites": {name: {level: _counts(_of(some, "level", level)) for level in _values(some, "level")} for name, some in rows.items()},
        "by_cheat": {name: _counts(_of(every, "cheat", name)) for name in _values(every, "cheat") if name},
        "missed": [asdict(row) for row in every if row.cheat and not row.wires],
        "bothered": [asdict(row) for row in every if not row.cheat and row.wires],
    }  # fmt: skip
    return Answer(document, "\n".join(_lines(document)))


def _counts(rows: Sequence[CheckedChange]) -> dict[str, Any]:
    from etude.evaluate.bench.audit.measure import accuracy

    found = accuracy(rows)
    return {**asdict(found), "recall": found.recall, "precision": found.precision}


def _values(rows: Sequence[CheckedChange], name: str) -> list[str]:
    return sorted({getattr(row, name) for row in rows})


def _of(rows: Sequence[CheckedChange], name: str, value: str) -> list[CheckedChange]:
    return [row for row in rows if getattr(row, name) == value]


def _lines(document: dict[str, Any]) -> list[str]:
    rows = [(f"{suite} {level}", row) for suite, levels in document["suites"].items() for level, row in levels.items()]
    rows += [(f"cheat {name}", row) for name, row in document["by_cheat"].items()]
    lines = [
        f"{'':44}{'caught':>14}{'bothered':>14}",
        *(_line(*row) for row in [*rows, ("in all", document["in_all"])]),
    ]
    recall, precision = (_percent(document["in_all"][name]) for name in ("recall", "precision"))
    missed = [f"  missed: {row['cheat']} on {row['task_id']}" for row in document["missed"]]
    missed += [
        f"  bothered: the reference of {row['task_id']} by {', '.join(row['wires'])}" for row in document["bothered"]
    ]
    more = [f"  … and {len(missed) - SHOWN} more with --json"] if len(missed) > SHOWN else []
    return [*lines, f"recall {recall}, precision {precision}", *missed[:SHOWN], *more]


def _line(name: str, row: dict[str, Any]) -> str:
    bothered = f"{row['bothered']} of {row['references']}" if row["references"] else ""
    return f"{name:44}{row['caught']:>6} of {row['cheats']:<4}{bothered:>14}"


def _percent(value: float | None) -> str:
    return "not known" if value is None else f"{value:.1%}"
