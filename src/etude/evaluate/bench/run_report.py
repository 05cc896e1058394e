"""`report.json` of a bench run, made from its folder alone (promise 11): the same files give the same bytes.

Percentages in percent, intervals by task at 95%. `avg` weighs levels as the suite says (else each task counts once), `avg_equal`
every level alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from etude.core.events.finite import dumps
from etude.core.statistics.best import powers_of_two
from etude.core.statistics.bounded import average
from etude.core.statistics.comparison import comparison
from etude.core.statistics.interval import weighted_mean
from etude.core.statistics.pareto import PolicySamples, front
from etude.evaluate.bench.audit.audited_run import audit_part
from etude.evaluate.bench.audit.probed_run import probed_part
from etude.evaluate.bench.outcome import Outcome
from etude.evaluate.bench.runs.axes import AXES, DIGITS, axes, measures, usage
from etude.evaluate.bench.runs.cost import cost_by_policy
from etude.evaluate.bench.runs.folder import RunFolder, replace_text
from etude.evaluate.bench.runs.judged_run import judged_part
from etude.evaluate.bench.runs.paired_run import read_pairs
from etude.evaluate.bench.runs.recovery import summary_lifts
from etude.evaluate.bench.runs.table import BenchResults, PolicyResult, read_table
from etude.evaluate.bench.scores import Scores, scores, task_means

# Where policies stand between score and cost: Pareto fronts.


Weights = Mapping[str, float]


def pareto_fronts(
    table: BenchResults, found: Mapping[str, Scores], weights: Weights, *, resamples: int, seed: int
) -> dict[str, Any]:
    """By axis, those of the field that have it: where each lies, whether it is on the front, and in which share of resamples."""
    result = {}
    for axis in AXES:
        points = {row.key: _measured(row, found[row.key], axis) for row in table.competing if axis in measures(row)}
        if not points:
            continue
        digits = DIGITS[axis]
        result[axis] = [
            {
                "key": key,
                "score": round(100 * point.score.value, 2),
                "score_ci95": [round(100 * point.score.low, 2), round(100 * point.score.high, 2)],
                "cost": round(point.cost.value, digits),
                "cost_ci95": [round(point.cost.low, digits), round(point.cost.high, digits)],
                "on_front": point.on_front,
                "share": round(point.share, 4),
            }
            for key, point in front(points, weights, resamples=resamples, seed=seed).items()
        ]
    return result


def _measured(row: PolicyResult, found: Scores, axis: str) -> PolicySamples:
    return PolicySamples(found.means(), task_means_in(found, row, axis))


def task_means_in(found: Scores, row: PolicyResult, axis: str) -> Mapping[str, np.ndarray]:
    """An axis' means by task, in the order of the scores."""
    measure = measures(row)[axis]
    order = {task_id: place for place, task_id in enumerate(t for ids in found.ids.values() for t in ids)}
    ordered = sorted(row.outcomes, key=lambda o: (order[o.task_id], o.attempt))
    values = task_means(ordered, measure)
    return {level: values[level] for level in found.ids}


# One policy's score by what the tasks are like: category, level, prompt style, length and files of the reference
# change.


# Lower bounds. Public sets have a median of 7 to 10 changed lines, the report's own 181 (Composer 2 report, section 5); 1,000 is
# where a change is a project.
LINES = (1, 10, 50, 200, 1000)
FILES = (1, 2, 5, 10)


def splits(outcomes: Sequence[Outcome], *, resamples: int, seed: int) -> dict[str, Any]:
    """Tables by each trait that some task tells; within a row each task counts once."""
    traits: dict[str, Callable[[Outcome], str]] = {
        "by_category": lambda o: o.category,
        "by_level": lambda o: o.level,
        "by_style": lambda o: o.style,
        "by_lines": lambda o: band(o.lines, LINES),
        "by_files": lambda o: band(o.files, FILES),
        "by_holdout": lambda o: o.holdout,
    }
    return {name: _rows(outcomes, trait, resamples, seed) for name, trait in traits.items()}


def band(value: int, bounds: Sequence[int]) -> str:
    """`10-49`; the last is open; "" below the first: a task without a reference tells neither."""
    if value < bounds[0]:
        return ""
    place = max(i for i, bound in enumerate(bounds) if bound <= value)
    if place == len(bounds) - 1:
        return f"{bounds[place]}+"
    last = bounds[place + 1] - 1
    return str(bounds[place]) if last == bounds[place] else f"{bounds[place]}-{last}"


def _rows(outcomes: Sequence[Outcome], trait: Callable[[Outcome], str], resamples: int, seed: int) -> dict[str, Any]:
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if name := trait(outcome):
            groups.setdefault(name, []).append(outcome)
    rows = {}
    for name in sorted(groups, key=_order):
        found = scores(groups[name])
        mean, ci95 = average(found.means(), found.counts(), resamples=resamples, seed=seed).percent()
        best = round(100 * weighted_mean(found.best(found.most()), found.counts()), 2)
        rows[name] = {"avg": mean, "ci95": ci95, "tasks": found.tasks, f"best_of_{found.most()}": best}
    return rows


def _order(name: str) -> tuple[int, str]:
    """Bands by their lower bound, words by the alphabet."""
    lead = name.rstrip("+").partition("-")[0]
    return (int(lead), "") if lead.isdigit() else (0, name)


SCHEMA = 1
KIND = "bench"
MOST_K = 16


def write_report(folder: RunFolder) -> dict[str, Any]:
    """Rebuild the file and return what it says. Raises NoBenchRun, ConditionsDiffer, OutcomeError."""
    found = report(folder)
    replace_text(folder.report, dumps(found, indent=1) + "\n")
    return found


def report(folder: RunFolder) -> dict[str, Any]:
    """What report.json says."""
    table = read_table(folder)
    shared = table.shared
    counts: dict[str, Any] = {"resamples": shared["report"]["resamples"], "seed": shared["seed"]}
    found = {row.key: scores(row.outcomes) for row in table.finished}
    paid = cost_by_policy(folder.usage, {row.key: row.price for row in table.rows}.get)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": KIND,
        "suite": shared["suite"],
        "tasks": len(shared["tasks"]),
        "strict": shared["strict"],
        **counts,
        "policies": [_entry(row, found[row.key], shared["weights"], paid, counts) for row in table.finished],
        "unfinished": _unfinished(table),
        "thin_levels": _thin(found),
    }
    if found:
        weights = shared["weights"] or next(iter(found.values())).counts()
        document["pareto"] = pareto_fronts(table, found, weights, **counts)
        document |= _against_each_other(table, found, weights, counts)
        document["summaries"] = summary_lifts(table.finished, found, weights, **counts)
    document["tasks_with_rubric"] = rubrics = shared["report"].get("rubrics", 0)
    document["judged"] = _judged(folder, rubrics)
    document["pairs"] = read_pairs(folder)
    document["audit"] = audit_part(folder, table)
    document["contamination"] = probed_part(folder, table)
    return document


def _against_each_other(
    table: BenchResults, found: Mapping[str, Scores], weights: Mapping[str, float], counts: dict[str, Any]
) -> dict[str, Any]:
    """Those that compete, as `etude bench compare` sets them side by side."""
    tables = {row.key: found[row.key].tables for row in table.competing}
    said = comparison(tables, found[table.competing[0].key].ids, weights, **counts)
    return {"comparisons": said["pairs"], "ranking": said["ranking"], "items": said["items"]}


def _judged(folder: RunFolder, rubrics: int) -> dict[str, Any]:
    """What judges decided; where there was no judge, whether that leaves anything out."""
    found = judged_part(folder)
    return found if rubrics or found["judge"] else found | {"why": "no task asked has a rubric"}


def _entry(
    row: PolicyResult, found: Scores, weights: dict[str, float] | None, paid: dict[str, float], counts: dict[str, Any]
) -> dict[str, Any]:
    """One policy at one effort."""
    mix, equal = weights or found.counts(), dict.fromkeys(found.tables, 1.0)
    mean, ci95 = average(found.means(), mix, **counts).percent()
    mean_equal, ci95_equal = average(found.means(), equal, **counts).percent()
    facts = row.facts
    return {
        "name": facts["name"],
        "effort": facts["effort"],
        "key": row.key,
        "kind": facts["kind"],
        "model": facts["model"],
        "agent": facts.get("agent", ""),
        "harness": facts["harness"],
        "tasks": found.tasks,
        "passes": row.passes,
        "avg": mean,
        "ci95": ci95,
        "avg_equal": mean_equal,
        "ci95_equal": ci95_equal,
        **_at(found, mix, counts),
        "axes": axes(row, mix, **counts),
        "usage": usage(row),
        **({"price": facts["price"], "priced": facts["priced"], "spent_dollars": round(paid.get(row.key, 0.0), 6)}
           if facts["price"] else {}),
        **{name: _mean(row, name) for name in ("tool_calls", "turns")},
        **splits(row.outcomes, **counts),
    }  # fmt: skip


def _at(found: Scores, weights: dict[str, float], counts: dict[str, Any]) -> dict[str, Any]:
    """Expected best of k, and the chance that one of k solves wholly, at 1, 2, 4, 8 and 16 as far as there are passes."""
    document: dict[str, Any] = {"best_of": {}, "best_of_ci95": {}, "pass_at": {}, "pass_at_ci95": {}}
    for k in powers_of_two(min(MOST_K, found.passes)):
        for name, values in (("best_of", found.best(k)), ("pass_at", found.pass_at(k))):
            document[name][str(k)], document[f"{name}_ci95"][str(k)] = average(values, weights, **counts).percent()
    return document


def _mean(row: PolicyResult, name: str) -> float:
    return round(sum(getattr(o, name) for o in row.outcomes) / len(row.outcomes), 3)


def _thin(found: Mapping[str, Scores]) -> list[str]:
    """Levels of one task among larger levels: how such tasks spread is not known, so intervals take it from the rest."""
    levels = [scored.ids for scored in list(found.values())[:1]]
    return [level for ids in levels for level, tasks in ids.items() if len(tasks) == 1]


def _unfinished(table: BenchResults) -> list[dict[str, Any]]:
    """Policies with fewer attempts than planned: `policies` then holds their whole passes alone."""
    tasks = len(table.shared["tasks"])
    return [
        {"key": row.key, "whole_passes": row.passes, "planned_passes": row.facts["passes"],
         "missing": row.facts["passes"] * tasks - row.made}
        for row in table.rows
        if row.passes < row.facts["passes"]
    ]  # fmt: skip
