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

_Run = Annotated[Path, typer.Argument(metavar="DIR", help="A run's or a bench run's directory.")]
_Select = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ROWS [COLUMN]...]", help="Which rows, then fields of them, also by * as in rewards.*"),
]
_Where = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="FILTER", help='E.g. "reward > 0.5 and level = one-bug"; repeated: all hold.'),
]
_Sort = Annotated[
    list[str] | None, typer.Option("--sort", metavar="FIELD", help="Order by it; -FIELD turns it; repeatable.")
]
_By = Annotated[
    list[str] | None,
    typer.Option(
        "--by", metavar="FIELD", help="A row for each value of it: how many, and the COLUMNs' means; repeatable."
    ),
]
_Limit = Annotated[int | None, typer.Option("--limit", min=0, help="At most so many rows.")]
_Lines = Annotated[bool, typer.Option("--jsonl", help="One JSON object a line, as they are read.")]
_Csv = Annotated[bool, typer.Option("--csv", help="Comma-separated values with a head.")]
_Fields = Annotated[bool, typer.Option("--fields", help="Name the rows' fields instead, and how many rows have each.")]


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
    from etude.evaluate.report.query.filter import Both, parse
    from etude.evaluate.report.query.groups import grouped
    from etude.evaluate.report.query.select import Wanted, fields_of
    from etude.evaluate.report.query.select import select as chosen

    if jsonl + csv + json > 1:
        raise BadQuery("--json, --jsonl and --csv are three forms of the same rows: give one of them")
    tables.check_run(run)
    name, *columns = select or [""]
    if not name:
        return _known(run)
    table = tables.find(name)
    rows = lambda: table.read(run)
    if fields:
        found = fields_of(rows())
        return Answer({"rows": name, "fields": found}, "\n".join(f"{field}  {n}" for field, n in found.items()))
    filters = tuple(parse(text) for text in where or [])
    where_all = Both(filters, every=True) if filters else None
    if by:
        named, all_rows = chosen(rows, Wanted([*by, *columns], where_all))
        gathered = grouped(all_rows, by, [name for name in named if name not in by])
        rows, columns, where_all = (lambda: iter(gathered)), list(gathered[0]) if gathered else [], None
    wanted = Wanted(columns, where_all, sort or [], limit)
    if not columns and not by and not (jsonl or csv or json):
        wanted = Wanted(_shown(table, rows), wanted.where, wanted.sort, wanted.limit)
    head, found = chosen(rows, wanted)
    if not head and not json:
        print("no rows", file=sys.stderr)
        return Answer({}, "")
    if json:
        return Answer({"rows": list(found), "columns": head}, "")
    form = formats.json_lines if jsonl else formats.comma_separated if csv else formats.table
    _print(form(head, found))
    return Answer({}, "")


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
