"""`etude report`: a run's report rebuilt or served, two runs compared, its rows asked for; without a verb, the report of a run."""

from __future__ import annotations

import typer

from etude.cli.fallback import FallbackGroup
from etude.cli.report import compare, pareto, query, rebuild, sink


class ReportGroup(FallbackGroup):
    """`etude report RUN` is as old as the command."""

    fallback = "rebuild"


app = typer.Typer(cls=ReportGroup, help="Read a run's files. [DIR] without a verb is `etude report rebuild [DIR]`.")
app.command("rebuild")(rebuild.report)
app.command("compare")(compare.compare)
app.command("query")(query.query)
app.command("pareto")(pareto.pareto)
app.command("sink")(sink.sink)

__all__ = ["app"]
