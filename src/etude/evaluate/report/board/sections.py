"""The report's own sections for the board: the same functions over the same files, each by itself.

A section that an old run's files can't fill is left out and named, the others stand.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from etude.core.events.finite import loads
from etude.evaluate.report import outcome
from etude.evaluate.report.advisories.collect import advisories
from etude.evaluate.report.advisories.shown import advisories_html
from etude.evaluate.report.bench_run import bench_lead, bench_sections
from etude.evaluate.report.collect import SCHEMA, NotARun, collect, metrics, texts
from etude.evaluate.report.comparison_curves import FORMER_NAME, ComparisonCurvesError, read_comparison_curves
from etude.evaluate.report.page import sections, subtitle
from etude.evaluate.report.pareto.points import heading
from etude.evaluate.report.settings import ReportSettings
from etude.evaluate.report.working import at_work

# What a section takes from a report may be of another form in a run of an older version.
OLDER = (KeyError, TypeError, ValueError, IndexError, AttributeError)
TRAINED = ("base", "sft", "rl")
SIGNS = ("stages.json", "report.json", "recipe.toml", "machine.json", "*/summary.json", "corpus/samples.json")
# What the advisories are judged by.
WARNED = ("events.jsonl", "ledger.jsonl", "stages.json", "rl/groups", "rl/ledger.jsonl", "faults.jsonl", "judged.json", "conditions.json",
          "policies", "policies/*.jsonl", "bench/*.jsonl")  # fmt: skip
JUDGED_EVERY_S = 5.0  # a stall is reported after six median steps, so a shorter interval brings nothing


class Sections:
    """Rebuilt when one of the files that they are made of changed."""

    def __init__(self, run: Path, settings: ReportSettings | None = None) -> None:
        """`settings`: instead of those that the run's recipe has."""
        self._run = run
        self._settings = settings
        self._lock = threading.Lock()
        self._made_of: tuple[Any, ...] | None = None
        self._made: dict[str, Any] = {}
        self._warning = threading.Lock()
        self._warned: tuple[Any, dict[str, str]] | None = None

    def sign(self) -> tuple[Any, ...]:
        """Equal as long as nothing changed that the sections are made of."""
        return _times(self._run, SIGNS)

    def advisories(self) -> dict[str, str]:
        """What the run's files warn of now, as `html`. Judged again when they changed, and for a run at work every few seconds: one
        that stalls changes no file."""
        alive = at_work(self._run)
        sign = _times(self._run, WARNED), alive and time.monotonic() // JUDGED_EVERY_S
        with self._warning:
            if self._warned is None or self._warned[0] != sign:
                self._warned = sign, {"html": self._advisories_html()}
            return self._warned[1]

    def _advisories_html(self) -> str:
        try:
            found = [advisory.to_json() for advisory in advisories(self._run)]
        except (*OLDER, OSError) as error:
            return f'<p class="muted">Advisories: {escape(_why(error))}</p>'
        return advisories_html(found, list(self.read()["sections"]))

    def read(self) -> dict[str, Any]:
        """`title`, `lead` (HTML), `sections` {name: HTML} and `problems` {what: why}."""
        with self._lock:
            sign = self.sign()
            if sign != self._made_of:
                self._made, self._made_of = self._make(), sign
            return self._made

    def _make(self) -> dict[str, Any]:
        problems = self._schema()
        if not problems and (bench := self._bench()) is not None:
            return self._of_bench(bench, problems)
        try:
            report = collect(self._run)
        except NotARun:
            return {"title": self._run.name, "lead": "", "sections": {}, "problems": problems}
        except (*OLDER, OSError) as error:
            problems["the report"] = _why(error)
            return {"title": self._run.name, "lead": "", "sections": {}, "problems": problems}
        settings = self._settings.model_dump() if self._settings else report["recipe"].get("report", {})
        title = f"Etude: {settings.get('title') or report['recipe'].get('run', {}).get('name', self._run.name)}"
        drawn, lead = self._draw(report, settings, problems), []
        for part in (subtitle, outcome.lead, outcome.headline):
            try:
                lead.append(part(report))
            except OLDER as error:
                problems[f"the {part.__name__}"] = _why(error)
        return {"title": title, "lead": "".join(lead), "sections": drawn, "problems": problems}

    def _draw(self, report: dict[str, Any], settings: dict[str, Any], problems: dict[str, str]) -> dict[str, str]:
        try:
            named = settings.get("comparisons") or settings.get(
                FORMER_NAME, []
            )  # a run's recipe may have the former name
            trained = any(stage in report for stage in TRAINED)  # else there is nothing to draw comparisons
            comparisons, missing = read_comparison_curves(self._run, named if trained else [])
            report = report | {"comparisons": {"missing": missing}}
            parts = sections(report, metrics(self._run), comparisons, texts(self._run))
        except (*OLDER, OSError, ComparisonCurvesError) as error:
            problems["the sections"] = _why(error)
            return {}
        return self._drawn(parts, problems)

    def _drawn(self, parts: dict[str, Callable[[], Sequence[str]]], problems: dict[str, str]) -> dict[str, str]:
        drawn = {}
        for name, draw in parts.items():
            try:
                drawn[name] = "".join(draw())
            except OLDER as error:
                problems[name] = _why(error)
        return {name: content for name, content in drawn.items() if content}

    def _bench(self) -> dict[str, Any] | None:
        """The report of a suite's run (`etude bench run`), None if this is none or it has none yet."""
        path = self._run / "report.json"
        if (self._run / "recipe.toml").is_file() or not path.is_file():
            return None
        report = loads(path.read_text())
        return report if report.get("kind") == "bench" else None

    def _of_bench(self, report: dict[str, Any], problems: dict[str, str]) -> dict[str, Any]:
        lead = ""
        try:
            lead = bench_lead(report)
        except OLDER as error:
            problems["the policies"] = _why(error)
        return {
            "title": heading(report) or self._run.name,
            "lead": lead,
            "sections": self._drawn(bench_sections(report), problems),
            "problems": problems,
        }

    def _schema(self) -> dict[str, str]:
        """Names the schema of a report.json that another version wrote."""
        path = self._run / "report.json"
        if not path.is_file():
            return {}
        try:
            schema = json.loads(path.read_text()).get("schema")
        except (ValueError, AttributeError, RecursionError) as error:
            return {
                "report.json": f"can't be read ({error}); `etude report RUN` with this run's folder writes it again"
            }
        if schema == SCHEMA:
            return {}
        return {"report.json": f"is of schema {schema}, this version writes {SCHEMA}; `etude report` rebuilds it"}


def _times(run: Path, patterns: Sequence[str]) -> tuple[Any, ...]:
    """When the files of these names changed last."""
    paths = [path for pattern in patterns for path in sorted(run.glob(pattern))]
    return tuple((str(path.relative_to(run)), path.stat().st_mtime_ns) for path in paths if path.exists())


def _why(error: BaseException) -> str:
    return f"left out, the run's files are of another form than this version reads ({type(error).__name__}: {error})"
