"""Writes `report.json` and `report.html` of a run; both are replaced as a whole, never half-written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from etude.core.events.finite import dumps
from etude.core.files import replace_file
from etude.evaluate.report.advisories.collect import advisories
from etude.evaluate.report.board.sections import TRAINED
from etude.evaluate.report.board.static_page import static_page
from etude.evaluate.report.collect import collect
from etude.evaluate.report.comparison_curves import read_comparison_curves
from etude.evaluate.report.settings import ReportSettings


def write_report(run: Path, settings: ReportSettings) -> dict[str, Any]:
    """Rebuild both files from the run's own and return the report. Raises NotARun, ComparisonCurvesError."""
    report = collect(run)
    trained = any(stage in report for stage in TRAINED)
    _, missing = read_comparison_curves(run, settings.comparisons if trained else [])
    if settings.comparisons and trained:
        report["comparisons"] = {"files": settings.comparisons, "missing": missing}
    report["advisories"] = [advisory.to_json() for advisory in advisories(run)]
    replace_file(run / "report.json", dumps(report, indent=1) + "\n")
    write_page(run, settings)
    return report


def write_page(run: Path, settings: ReportSettings | None = None) -> Path:
    """`report.html` of a run or a bench run whose `report.json` exists."""
    replace_file(run / "report.html", static_page(run, settings))
    return run / "report.html"
