"""What the report of a bench run says, section by section, from its `report.json` alone.

Who was asked and what came of it with intervals; score against each cost; pairs on the same tasks; by what tasks are like; what is
missing; judged scores with the judge's agreement; what the auditor flagged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from etude.evaluate.report.pareto.draw import draw
from etude.evaluate.report.pareto.points import axes_of, curves
from etude.evaluate.report.table import Html, cell, percent, points, table

FIGURES = {"tokens": ("Tokens", ",.0f"), "dollars": ("Dollars", ".4f"), "seconds": ("Seconds", ",.1f"),
           "core_seconds": ("Core-s", ",.2f")}  # fmt: skip
TRAITS = {"by_category": "Category", "by_level": "Level", "by_style": "Prompt style", "by_lines": "Changed lines",
          "by_files": "Changed files", "by_holdout": "Kept from training"}  # fmt: skip
ITEMS_SHOWN = 50

Report = Mapping[str, Any]


def bench_lead(report: Report) -> str:
    """Who was asked and what came of it; what is missing."""
    return _subtitle(report) + _missing(report) + _policies(report)


def bench_sections(report: Report) -> dict[str, Callable[[], Sequence[str]]]:
    """Every section by its name, in order, as what draws it: the board shows the same ones, each by itself."""
    return {
        "Score against cost": lambda: _plots(report),
        "On the same tasks": lambda: [_pairs(report)],
        "By what tasks are like": lambda: [_trait(report, key, name) for key, name in TRAITS.items()],
        "Self-summaries": lambda: [_summaries(report.get("summaries") or [])],
        "Judged": lambda: [_judged(report.get("judged") or {}), _preferences(report.get("pairs") or [])],
        "Audit": lambda: [_audit(report.get("audit") or {}), _probes(report.get("contamination") or {})],
        "Tasks": lambda: [_items(report)],
        "Conditions": lambda: [_conditions(report)],
    }


def _subtitle(report: Report) -> str:
    attempts = sum(entry["tasks"] * entry["passes"] for entry in report["policies"])
    words = f"{len(report['policies'])} policies and efforts · {attempts:,} attempts · seed {report['seed']}"
    return f'<p class="muted">{escape(words)} · intervals: 95%, by task</p>'


def _missing(report: Report) -> str:
    warnings = [
        f"{row['key']}: {row['missing']} attempts of {row['planned_passes']} planned passes are missing, "
        f"{row['whole_passes']} passes are whole and shown"
        for row in report["unfinished"]
    ]
    if thin := report.get("thin_levels"):
        warnings.append(
            f"Intervals are rough: of {', '.join(thin)} there is one task each, whose spread is taken from the rest"
        )
    return "".join(f'<p class="bad">{escape(line)}</p>' for line in warnings)


def _policies(report: Report) -> str:
    axes = [name for name in FIGURES if any(name in entry["axes"] for entry in report["policies"])]
    most = max((int(k) for entry in report["policies"] for k in entry["best_of"]), default=1)
    ks = [str(2**n) for n in range(1, most.bit_length())]
    head = [
        "Policy",
        "Effort",
        "Average",
        *(f"Best of {k}" for k in ks),
        "Tasks × passes",
        *(FIGURES[a][0] for a in axes),
        "Turns",
    ]
    rows = []
    for entry in report["policies"]:
        name = (
            entry["name"]
            if entry["kind"] != "control"
            else Html(f"{escape(entry['name'])} <span class='muted'>control</span>")
        )
        best = [f"{entry['best_of'][k]:.1f}" if k in entry["best_of"] else "" for k in ks]
        costs = [_cost(entry["axes"], axis) for axis in axes]
        rows.append(
            [
                name,
                entry["effort"],
                percent(entry),
                *best,
                f"{entry['tasks']} × {entry['passes']}",
                *costs,
                f"{entry['turns']:.1f}",
            ]
        )
    return table(head, rows)


def _cost(axes: Report, axis: str) -> Html | str:
    if axis not in axes:
        return ""
    form, (low, high) = FIGURES[axis][1], axes[axis]["ci95"]
    return Html(f"{axes[axis]['value']:{form}} <span class='muted'>[{low:{form}}, {high:{form}}]</span>")


def _plots(report: Report) -> list[str]:
    """One plot an axis, where anyone competes on it."""
    return [
        f'<figure class="wide">{draw(curves(report, axis), axis, best_of=axis == "tokens")}</figure>'
        for axis in axes_of(report)
        if len(report["pareto"][axis]) > 1
    ]


def _pairs(report: Report) -> str:
    rows = [
        [row["b"], row["a"], points(row), f"{row['p_holm']:.3f}", f"{row['tasks_changed']} of {row['tasks']}",
         "" if row["detectable_points"] is None else f"{row['detectable_points']:.1f}"]
        for row in report.get("comparisons", [])
    ]  # fmt: skip
    if not rows:
        return ""
    head = ["Policy", "Over", "Points", "p (Holm)", "Tasks that differ", "Detectable"]
    words = "Differences by task, of the policy over the other. Detectable: the smallest true difference found with 80% power."
    return table(head, rows) + f'<p class="muted">{words}</p>'


def _trait(report: Report, key: str, title: str) -> str:
    """Averages by one trait, a column a policy; where all tasks are alike in it there is nothing to tell."""
    values = list(dict.fromkeys(value for entry in report["policies"] for value in entry[key]))
    if len(values) < 2:
        return ""
    entries = [entry for entry in report["policies"] if entry["kind"] != "control"] or report["policies"]
    tasks = {value: next(e[key][value]["tasks"] for e in report["policies"] if value in e[key]) for value in values}
    rows = [
        [value, str(tasks[value]), *(percent(entry[key][value]) if value in entry[key] else "" for entry in entries)]
        for value in values
    ]
    return table([title, "Tasks", *(entry["key"] for entry in entries)], rows)


def _judged(judged: Report) -> str:
    if not judged.get("judge"):
        return f'<p class="muted">{escape(str(judged["why"]))}</p>' if judged.get("why") else ""
    rows = [
        [key, name, cell(found)] for key, criteria in judged["policies"].items() for name, found in criteria.items()
    ]
    agreement_rows = [[cell(row["judge"]), cell(row["criterion"]), cell(row["kappa"]), cell(row["ci95"]), cell(row["items"])]
            for row in [*judged["agreement"], *judged.get("readers", ())]]  # fmt: skip
    agreement = table(["Judge, or readers among themselves", "Criterion", "Kappa", "95%", "Labels"], agreement_rows)
    return table(["Policy", "Criterion", "Judged"], rows) + agreement


def _audit(audit: Report) -> str:
    names = {"read": "Read", "flagged": "Flagged", "avg": "Average", "avg_without_flagged": "Without flagged",
             "avg_flagged_as_failed": "Flagged as failed"}  # fmt: skip
    rows = [[key, *(cell(row.get(name)) for name in names)] for key, row in audit.get("policies", {}).items()]
    if not rows:
        return ""
    flagged = [
        [str(one.get("key")), str(one.get("task_id")), cell([flag.get("wire", "") for flag in one.get("flags", [])])]
        for one in audit.get("flagged", [])[:ITEMS_SHOWN]
    ]
    return table(["Policy", *names.values()], rows) + (table(["Flagged", "Task", "For"], flagged) if flagged else "")


def _preferences(pairs: Sequence[Report]) -> str:
    """Two policies side by side, as a judge saw them in both orders."""
    rows = [
        [f"{found['a']} over {found['b']}", name, cell(row["a_preferred"]), cell(row["ci95"]), cell(row["decided"]), cell(row["orders_disagree"])]
        for found in pairs
        for name, row in found["criteria"].items()
    ]  # fmt: skip
    return table(["Preferred", "Criterion", "%", "95%", "Pairs", "Orders disagree"], rows) if rows else ""


def _summaries(rows: Sequence[Report]) -> str:
    """What summing a session up is worth, at the same budget of tokens."""
    names = {
        "points": "Points",
        "ci95": "95%",
        "tasks": "Tasks",
        "tokens_with": "Tokens with",
        "tokens_without": "Without",
    }
    found = [[str(row["with"]), *(cell(row[name]) for name in names)] for row in rows]
    return table(["With self-summaries over without", *names.values()], found) if found else ""


def _probes(found: Report) -> str:
    """What models wrote of the tasks from memory; and who was not asked."""
    names = {"own": "Of its own secrets", "control": "Of others'", "p_value": "p", "tasks": "Tasks"}
    rows = [[str(row.get("policy")), *(cell(row.get(name)) for name in names)] for row in found.get("probes", [])]
    known = table(["Probed for memory", *names.values()], rows) if rows else ""
    words = f"Not probed for memory of the tasks: {', '.join(found['not_probed'])}." if found.get("not_probed") else ""
    return known + (f'<p class="muted">{escape(words)}</p>' if words else "")


def _items(report: Report) -> str:
    found, tasks = report.get("items", {}), report["tasks"]
    labels = {"saturated": "solved by all in every pass", "impossible": "solved by no policy in any pass"}
    parts = [
        f"<p>{len(found[key])} of {tasks} tasks were {words}: {escape(', '.join(found[key][:ITEMS_SHOWN]))}"
        + (" …" if len(found[key]) > ITEMS_SHOWN else "")
        + "</p>"
        for key, words in labels.items()
        if found.get(key)
    ]
    against = {task: r for task, r in found.get("discrimination", {}).items() if r < 0}
    if against:
        rows = [[task, f"{r:+.2f}"] for task, r in sorted(against.items(), key=lambda pair: pair[1])[:ITEMS_SHOWN]]
        parts.append("<p>Better policies fail these more often: look at their tests first.</p>")
        parts.append(table(["Task", "Correlation with the rest"], rows))
    return "".join(parts)


def _conditions(report: Report) -> str:
    suite = report["suite"]
    rows = [
        ["suite", suite["label"]],
        ["digest of its tasks", suite["digest"]],
        *(["strict: " + k, cell(v)] for k, v in report["strict"].items()),
    ]
    rows += [[f"{entry['key']}: harness", entry["harness"]] for entry in report["policies"]]
    rows += [
        [f"{entry['key']}: price of {entry['priced']}", cell(entry["price"])]
        for entry in report["policies"]
        if entry.get("price")
    ]
    return table(["Condition", ""], rows)
