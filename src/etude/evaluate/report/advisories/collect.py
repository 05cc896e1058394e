"""From a run's files to the history that the rules read, and the rules' answer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from etude.core import bounded_toml
from etude.core.events.finite import read_file
from etude.evaluate.report.advisories.advisory import Advisory
from etude.evaluate.report.advisories.hints import HINTS
from etude.evaluate.report.advisories.history import RunState, Steps
from etude.evaluate.report.advisories.latest import latest
from etude.evaluate.report.advisories.learning import LEARNING
from etude.evaluate.report.advisories.work import WORK
from etude.evaluate.report.rows.lines import json_lines
from etude.evaluate.report.rows.steps import steps
from etude.evaluate.report.working import at_work

# All rules over one history: alarms first; hints only of a run without any.


ALARMS = (*WORK, *LEARNING)


def judge(history: RunState) -> list[Advisory]:
    """Every alarm in the order of the rules; else every hint."""
    alarms = [found for rule in ALARMS for found in rule(history)]
    return alarms or [found for rule in HINTS for found in rule(history)]


def advisories(run: Path, *, now: float | None = None) -> list[Advisory]:
    """What the run's files warn of; a run that is at work is judged by its current state."""
    return judge(history(run, now=now))


def history(run: Path, *, now: float | None = None) -> RunState:
    """Reads the steps, the latest rollouts and the summaries; what is not there is empty."""
    finished = _json(run / "stages.json")
    times: dict[str, list[float]] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in steps(run):
        times.setdefault(row["stage"], []).append(float(row.get("time") or 0.0))
        rows.setdefault(row["stage"], []).append(row)
    through = _through(run)
    found = {name: Steps(times[name], rows[name], name in finished or name in through) for name in rows}
    recipe = run / "recipe.toml"
    report = _json(run / "conditions.json").get("shared", {}).get("report", {})
    return RunState(
        stages=found,
        recipe=bounded_toml.loads(recipe.read_text()) if recipe.is_file() else {},
        summaries={name: _json(run / name / "summary.json") for name in finished},
        **latest(run),
        judged=_judged(run),
        rubrics=int(report.get("rubrics") or 0),
        judge=str(report.get("judge") or ""),
        now=time.time() if now is None else now,
        alive=at_work(run),
    )


def _through(run: Path) -> set[str]:
    """Stages whose progress came to its end: what they do after the last step is no stall."""
    last = {e["stage"]: e for e in json_lines(run / "events.jsonl") if e.get("kind") == "progress"}
    return {stage for stage, event in last.items() if 0 < event.get("total", 0) <= event.get("done", 0)}


def _judged(run: Path) -> dict[str, tuple[int, int]]:
    """Of a bench run that was judged: by policy and criterion, passes decided and not."""
    policies = _json(run / "judged.json").get("policies", {})
    return {
        f"{policy}, {name}": (int(figure["decided"]), int(figure["not_decided"]))
        for policy, criteria in policies.items()
        for name, figure in criteria.items()
    }


def _json(path: Path) -> dict[str, Any]:
    return read_file(path) if path.is_file() else {}
