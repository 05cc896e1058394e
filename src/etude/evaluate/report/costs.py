"""What a run's own bench took: by policy the mean of an attempt's tokens and seconds with its interval, and score drawn against it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from etude.core.statistics.amounts import amount
from etude.evaluate.report.charts import policies
from etude.evaluate.report.paired import RESAMPLES, SEED, Means, by_task, gather
from etude.evaluate.report.pareto.draw import draw
from etude.evaluate.report.pareto.points import NoPareto, curves
from etude.evaluate.report.rows.outcomes import outcomes

COSTS = ("tokens", "seconds")
SCRIPTED = ("expert", "nop", "cheat")  # no model produces their tokens


def costs(run: Path) -> dict[str, dict[str, Any]]:
    """{policy: {axis: {"value", "ci95"}}} of the run's own bench: a task counts once, as the mean of its attempts; 95% by task."""
    rows = (row for row in outcomes(run) if row["where"] in ("trials", "bench"))
    return {
        policy: {axis: _figure(means) for axis, means in own.items()}
        for (policy,), own in gather(rows, ("policy",), COSTS).items()
    }


def against_cost(report: dict[str, Any]) -> list[str]:
    """One plot an axis, of two policies or more; nothing where the run has no bench."""
    found = [
        {"name": name, "effort": "", "avg": entry["avg"], "ci95": entry["ci95"], "best_of": {}, "axes": entry["axes"]}
        for key, name, entry in policies(report)
        if key not in SCRIPTED and "axes" in entry
    ]
    if len(found) < 2:
        return []
    drawn = []
    for axis in COSTS:
        try:
            drawn.append(f'<figure class="wide">{draw(curves({"policies": found}, axis), axis)}</figure>')
        except NoPareto as none:
            drawn.append(f'<p class="muted">{none}</p>')
    words = "Scores weigh levels as the exercises mix them; costs are means by task. Scripted policies are left out."
    return [*drawn, f'<p class="muted">{words}</p>']


def _figure(means: Means) -> dict[str, Any]:
    found = amount(by_task(means), {"": 1.0}, resamples=RESAMPLES, seed=SEED)
    return {"value": found.value, "ci95": [found.low, found.high]}
