"""Writes `report.json` and `report.html` of a run; both are replaced as a whole, never half-written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from etude.report.advisories.collect import advisories
from etude.report.beside import read_beside
from etude.report.collect import collect, metrics, samples, texts
from etude.report.page import page, suite_page
from etude.report.pages.suite import is_suite
from etude.report.settings import ReportSettings


def write_report(run: Path, settings: ReportSettings) -> dict[str, Any]:
    """Rebuild both files from the run's own and return the report; of a suite's run, whose report.json the bench itself makes from
    the outcomes, the page alone. Raises NotARun, BesideError."""
    suite = suite_report(run)
    if suite is not None:
        warned = [advisory.to_json() for advisory in advisories(run)]
        _replace(run / "report.html", suite_page(suite, title=settings.title or run.name, advisories=warned))
        return suite
    report = collect(run)
    trained = any(stage in report for stage in ("base", "sft", "rl"))  # else there is nothing to draw beside
    beside, missing = read_beside(run, settings.beside if trained else [])
    if settings.beside and trained:
        report["beside"] = {"files": settings.beside, "missing": missing}
    report["advisories"] = [advisory.to_json() for advisory in advisories(run)]
    title = settings.title or report["recipe"].get("run", {}).get("name", run.name)
    _replace(run / "report.json", json.dumps(report, indent=1, allow_nan=False) + "\n")
    chosen = samples(run)[: settings.rollouts]
    html = page(report, metrics(run), chosen, title=title, beside=beside, texts=texts(run))
    _replace(run / "report.html", html)
    return report


def suite_report(run: Path) -> dict[str, Any] | None:
    """The report of a suite's bench run, None if the folder is none."""
    path = run / "report.json"
    if (run / "recipe.toml").is_file() or not path.is_file():
        return None
    report = json.loads(path.read_text())
    return report if is_suite(report) else None


def _replace(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text)
    os.replace(part, path)
