"""Stage report: report.json and report.html from the run's files, rebuilt at every run."""

from __future__ import annotations

from etude.evaluate.report.write import write_report
from etude.pipeline.run.stage import Context


def run(context: Context) -> None:
    write_report(context.run, context.recipe.report)
    context.log.note(context.stage, f"{context.run / 'report.html'} written")
