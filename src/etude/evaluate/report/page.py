"""What a run's report says, section by section, from `report.json`, curves and texts: markup whose every text is escaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from etude.core.statistics.amounts import amount
from etude.evaluate.report import charts, outcome
from etude.evaluate.report.charts import Curves, policies
from etude.evaluate.report.comparison_curves import ComparisonCurves
from etude.evaluate.report.machinery import machinery
from etude.evaluate.report.pages.corpus import corpus
from etude.evaluate.report.pages.documents import documents
from etude.evaluate.report.pages.drafts import drafts
from etude.evaluate.report.pages.perplexity import perplexity
from etude.evaluate.report.pages.pretraining import pretraining
from etude.evaluate.report.pages.retrieval import retrieval
from etude.evaluate.report.paired import RESAMPLES, SEED, Means, by_task, gather
from etude.evaluate.report.pareto.draw import draw
from etude.evaluate.report.pareto.points import NoPareto, curves
from etude.evaluate.report.rows.outcomes import outcomes
from etude.evaluate.report.table import cell, table

# What a run's own bench took: by policy the mean of an attempt's tokens and seconds with its interval, and score
# drawn against it.


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


def sections(
    report: dict[str, Any],
    curves: Curves,
    comparisons: Sequence[ComparisonCurves] = (),
    texts: Sequence[dict[str, Any]] = (),
) -> dict[str, Callable[[], Sequence[str]]]:
    """Every section by its name, in order, as what draws it. Those whose stage has not run are empty."""
    return {
        "Before and after" if "lift" in report else "What the bench found": lambda: _bench(report),
        "Score against cost": lambda: against_cost(report),
        "By category and level": lambda: [outcome.levels(report), outcome.overlap(report)],
        "Corpus": lambda: [*corpus(report), documents(texts)],
        "Pretraining": lambda: pretraining(report, curves),
        "Perplexity": lambda: perplexity(report),
        "Long context": lambda: retrieval(report),
        "Draft layers": lambda: drafts(report),
        "Learning curves": lambda: _learning(report, curves, comparisons),
        "Asynchrony": lambda: _asynchrony(report),
        "What it cost": lambda: [_costs(report)],
        "Machine and versions": lambda: [_facts(report)],
    }


def _charts(*drawn: str) -> str:
    content = "".join(drawn)
    return f'<div class="charts">{content}</div>' if content else ""


def subtitle(report: dict[str, Any]) -> str:
    """How long it took, on what."""
    machine = report.get("machine", {})
    gpus = machine.get("gpus") or []
    parts = [
        f"{report['wall_seconds'] / 60:.1f} minutes on {machine.get('cores', 0):g} cores",
        ", ".join(map(str, gpus)) if gpus else "no GPU",
    ]
    if found := report.get("sandbox"):
        parts.append(f"sandboxes: {found['backend']} ({found['isolation']})")
    return f'<p class="muted">{escape(" · ".join(parts))}</p>'


def _bench(report: dict[str, Any]) -> list[str]:
    return [
        _charts(charts.averages(report, outcome.describe_tasks(report)), charts.best_of(report)),
        outcome.lifts(report),
        outcome.policies(report),
        outcome.discovery(report),
    ]


def _learning(report: dict[str, Any], curves: Curves, comparisons: Sequence[ComparisonCurves]) -> list[str]:
    drawn = _charts(
        charts.losses(curves, comparisons),
        charts.losses_by_step(curves, comparisons),
        charts.rewards(report, comparisons),
        charts.solved_by_cost(comparisons),
    )
    captions = [f"<p>Dashed: {escape(found.caption)}</p>" for found in comparisons]
    missing = report.get("comparisons", {}).get("missing", [])
    lost = f'<p class="muted">Not found, so not drawn: {escape(", ".join(missing))}.</p>' if missing else ""
    return [drawn, _alarms(report), *captions, lost]


def _alarms(report: dict[str, Any]) -> str:
    """The alarms of drift, by the numbers that they have in the chart; where the run looked and found none, it says so."""
    if "alarms" not in report.get("rl", {}):
        return ""
    rows = [[str(n), str(alarm["step"]), alarm["text"]] for n, alarm in enumerate(charts.alarms(report), 1)]
    return (
        table(["", "step", "alarm of drift"], rows)
        if rows
        else '<p class="muted">No alarm of drift (figures are held against their first 30 steps).</p>'
    )


def _asynchrony(report: dict[str, Any]) -> list[str]:
    if "rl" not in report:
        return []
    drawn = _charts(
        charts.from_curve(report, {"staleness_max": "oldest", "staleness_mean": "mean"}, "Staleness", "versions"),
        charts.from_curve(
            report, {"drift_k3": "training batches, mean k3"}, "Sampler against trainer", "k3 (log scale)", log_y=True
        ),
        charts.tokens_by_version(report),
        charts.from_curve(report, {"delta_ratio": "delta / full weights"}, "Weight deltas", "ratio"),
        charts.from_curve(report, {"entropy": "entropy"}, "Entropy", "nats a token"),
        charts.from_curve(report, {"grad_norm": "gradient norm"}, "Gradient norm", ""),
    )
    return [machinery(report), drawn]


def _costs(report: dict[str, Any]) -> str:
    cores = report["core_seconds"]
    rows = [[stage, f"{s:.0f}", f"{cores.get(stage, 0) / 60:.1f}"] for stage, s in report["seconds"].items()]
    comparisons = (
        " (some stages run side by side)" if report["wall_seconds"] < sum(report["seconds"].values()) - 1 else ""
    )
    rows.append([f"in all{comparisons}", f"{report['wall_seconds']:.0f}", f"{sum(cores.values()) / 60:.1f}"])
    peak = report.get("peak_rss_bytes", 0)
    memory = f'<p class="muted">Peak memory at most {peak / 2**30:.1f} GiB.</p>' if peak else ""
    return table(["stage", "wall, s", "core-minutes"], rows) + memory


def _facts(report: dict[str, Any]) -> str:
    sandbox = {f"sandbox {name}": value for name, value in report.get("sandbox", {}).items() if value != ""}
    facts = {**report.get("machine", {}), **sandbox, **report.get("versions", {})}
    rows = [
        [name.removesuffix("_bytes"), f"{value / 2**30:.1f} GiB"]
        if name.endswith("_bytes")
        else [name.replace("_", " "), cell(value)]
        for name, value in facts.items()
    ]
    return table(["", ""], rows)
