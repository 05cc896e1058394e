"""`etude report query`: rows of a run's files, filtered, chosen, ordered."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.status.completion import complete_run_path

_Run = Annotated[
    Path, typer.Argument(metavar="DIR", autocompletion=complete_run_path, help="A run's or a bench run's directory.")
]
_Select = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ROWS [COLUMN]...]", help="Kind of rows, then their fields; * matches several, as in rewards.*."
    ),
]
_Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="FILTER",
        help='Condition on the rows, e.g. "reward > 0.5 and level = one-bug"; if repeated, all must hold.',
    ),
]
_Sort = Annotated[
    list[str] | None,
    typer.Option("--sort", metavar="FIELD", help="Field to sort by; -FIELD sorts in descending order; repeatable."),
]
_By = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        metavar="FIELD",
        help="Group the rows by this field and print the count and the means of the COLUMNs; repeatable.",
    ),
]
_Limit = Annotated[int | None, typer.Option("--limit", min=0, help="Maximum number of rows.")]
_Lines = Annotated[bool, typer.Option("--jsonl", help="Print one JSON object per line as rows are read.")]
_Csv = Annotated[bool, typer.Option("--csv", help="Comma-separated values with a head.")]
_Fields = Annotated[
    bool, typer.Option("--fields", help="List the fields of the rows, with the number of rows that have each.")
]


class BadQuery(ValueError):
    """Options that can't be had together."""


def query(
    run: _Run,
    select: _Select = None,
    where: _Where = None,
    sort: _Sort = None,
    by: _By = None,
    limit: _Limit = None,
    fields: _Fields = False,
    jsonl: _Lines = False,
    csv: _Csv = False,
    json: Json = False,
) -> Answer:
    """Rollouts, steps, outcomes, sessions, events and more as rows. Without ROWS: which there are."""
    from etude.evaluate.report.query import formats, tables
    from etude.evaluate.report.query.select import RowQuery
    from etude.evaluate.report.query.select import select as chosen

    _check_forms(jsonl, csv, json)
    tables.check_run(run)
    name, *columns = select or [""]
    if not name:
        return _known(run)
    table = tables.find(name)
    rows = lambda: table.read(run)
    if fields:
        return _fields(name, rows())
    where_all = _all_of(where or [])
    if by:
        gathered = _groups(rows, by, columns, where_all)
        rows, columns, where_all = (lambda: iter(gathered)), list(gathered[0]) if gathered else [], None
    elif not columns and not (jsonl or csv or json):
        columns = _shown(table, rows)
    head, found = chosen(rows, RowQuery(columns, where_all, sort or [], limit))
    if not head and not json:
        print("no rows", file=sys.stderr)
        return Answer({}, "")
    if json:
        return Answer({"rows": list(found), "columns": head}, "")
    _print((formats.json_lines if jsonl else formats.comma_separated if csv else formats.table)(head, found))
    return Answer({}, "")


def _check_forms(*forms: bool) -> None:
    if sum(forms) > 1:
        raise BadQuery("--json, --jsonl and --csv are three forms of the same rows: give one of them")


def _all_of(texts: list[str]) -> Any:
    """One filter that holds where each of the texts does; None without any."""
    from etude.evaluate.report.query.filter import Both, parse

    filters = tuple(parse(text) for text in texts)
    return Both(filters, every=True) if filters else None


def _fields(name: str, rows: Iterable[dict[str, Any]]) -> Answer:
    from etude.evaluate.report.query.select import fields_of

    found = fields_of(rows)
    return Answer({"rows": name, "fields": found}, "\n".join(f"{field}  {n}" for field, n in found.items()))


def _groups(rows: Any, by: list[str], columns: list[str], where: Any) -> list[dict[str, Any]]:
    """One row per combination of the columns `by`."""
    from etude.evaluate.report.query.groups import group_rows
    from etude.evaluate.report.query.select import RowQuery, select

    named, all_rows = select(rows, RowQuery([*by, *columns], where))
    return group_rows(all_rows, by, [name for name in named if name not in by])


def _print(lines: Iterable[str]) -> None:
    """A line at a time. A reader that has seen enough (`| head`) ends it without a word."""
    try:
        for line in lines:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter's last flush fails too


def _shown(table: Any, rows: Any) -> list[str]:
    """What of the table's usual columns the first row has; all of a table that has no usual ones."""
    first = next(iter(rows()), {})
    return [name for name in table.shown if name in first]


def _known(run: Path) -> Answer:
    """The rows there are; one is read of each, so that a large run answers at once."""
    from etude.evaluate.report.query.tables import TABLES

    there = {name: next(iter(table.read(run)), None) is not None for name, table in TABLES.items()}
    words = [f"{name:12} {'' if there[name] else '(none here) '}{table.about}" for name, table in TABLES.items()]
    return Answer({"rows": there}, "\n".join([*words, "", "next: etude report query DIR ROWS --fields"]))
