"""Stage report: `report.json` and `report.html`, rebuilt from the run's files."""

from __future__ import annotations

from etude.report.write import write_report
from etude.run.stage import Context


def run(context: Context) -> None:
    """Holds no state of its own."""
    write_report(context.run, context.recipe.report)
