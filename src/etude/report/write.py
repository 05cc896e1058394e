"""Writes `report.json` and `report.html` of a run; both are replaced as a whole, never half-written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from etude.report.advisories.collect import advisories
from etude.report.beside import read_beside
from etude.report.collect import collect, metrics, samples, texts
from etude.report.page import page
from etude.report.settings import ReportSettings


def write_report(run: Path, settings: ReportSettings) -> dict[str, Any]:
    """Rebuild both files from the run's own and return the report. Raises NotARun, BesideError."""
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


def _replace(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text)
    os.replace(part, path)
