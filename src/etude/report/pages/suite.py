"""A bench run of a suite (`etude bench run`): every policy at every effort, what it cost, who differs from whom, where.

Reads the run's `report.json` of kind "bench" alone; what it does not have is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from etude.report.charts import chart
from etude.report.pareto.draw import draw
from etude.report.pareto.points import AXES, axes_of, curves, heading
from etude.report.plot import Bar, Line, bar_chart, line_chart
from etude.report.table import cell, percent, points, table

KIND = "bench"
SPLITS = {
    "by_category": "Category",
    "by_level": "Level",
    "by_style": "Style of the request",
    "by_lines": "Lines of the reference change",
    "by_files": "Files of the reference change",
    "by_holdout": "Held out by",
}
NAMED = 40  # saturated or impossible tasks that are listed by name


def is_suite(report: dict[str, Any]) -> bool:
    """Whether a report.json is of a suite's run."""
    return report.get("kind") == KIND


def suite_lead(report: dict[str, Any]) -> str:
    """What was asked, under which conditions, and what is missing."""
    strict = ", ".join(f"{name.replace('_', ' ')}: {cell(value)}" for name, value in report.get("strict", {}).items())
    lines = [f"{heading(report)}, seed {report.get('seed', '?')}", strict]
    words = "".join(f'<p class="muted">{escape(line)}</p>' for line in lines if line)
    for row in report.get("unfinished", []):
        words += (
            f'<p class="bad">{escape(row["key"])} is unfinished: {row["whole_passes"]} of {row["planned_passes"]} passes '
            f"are whole, {row['missing']} attempts are missing. Run the same command again.</p>"
        )
    return words


def suite_sections(report: dict[str, Any]) -> dict[str, Callable[[], Sequence[str]]]:
    """Every section by its name, in order, as what draws it."""
    return {
        "Policies": lambda: [_averages(report), _policies(report)],
        "Score against cost": lambda: [_fronts(report), _costs(report)],
        "Several passes": lambda: _passes(report),
        "Compared on the same tasks": lambda: [_compared(report)],
        "By kind of task": lambda: [_split(report, key, title) for key, title in SPLITS.items()],
        "Tasks": lambda: [_items(report)],
    }


def _averages(report: dict[str, Any]) -> str:
    bars = [Bar(entry["key"], entry["avg"], *entry["ci95"]) for entry in report["policies"]]
    drawn = chart("Average score", bar_chart(bars, y_title="%"), "All passes. Whiskers: 95%, by task.")
    return f'<div class="charts one">{drawn}</div>'


def _policies(report: dict[str, Any]) -> str:
    rows = [
        [
            entry["key"],
            percent(entry),
            percent(entry, "avg_equal", "ci95_equal"),
            str(entry["passes"]),
            cell(float(entry["turns"])),
            cell(float(entry["tool_calls"])),
            entry.get("model", "") or entry["kind"],
        ]
        for entry in report["policies"]
    ]
    return table(["policy@effort", "average, %", "levels alike, %", "passes", "turns", "calls", "model"], rows)


def _fronts(report: dict[str, Any]) -> str:
    """A plot for each axis that some policy has a figure on."""
    title = heading(report)
    return "".join(
        f'<div class="chart wide">{draw(curves(report, axis), axis, title=title)}</div>' for axis in axes_of(report)
    )


def _costs(report: dict[str, Any]) -> str:
    names = [name for name in AXES if any(name in entry["axes"] for entry in report["policies"])]
    rows = [[entry["key"], *(_cost(entry["axes"].get(name)) for name in names)] for entry in report["policies"]]
    return table(["", *(AXES[name] for name in names)], rows) if names else ""


def _cost(found: dict[str, Any] | None) -> str:
    if found is None:
        return "not known"
    low, high = found["ci95"]
    return f"{cell(float(found['value']))} [{cell(float(low))}, {cell(float(high))}]"


def _passes(report: dict[str, Any]) -> list[str]:
    found = []
    for key, title, note in (
        ("best_of", "Best of k", "Expected best of k attempts at a task, unbiased."),
        ("pass_at", "pass@k", "Chance that one of k attempts solves the task wholly, unbiased."),
    ):
        lines = [
            Line(entry["key"], [int(k) for k in entry[key]], list(entry[key].values()), hue=place % 6)
            for place, entry in enumerate(report["policies"])
            if len(entry.get(key, {})) >= 2
        ]
        found.append(
            chart(title, line_chart(lines, x_title="k (log scale)", y_title="%", log_x=True, y_zero=True), note)
        )
    return [_charts(*found)]


def _compared(report: dict[str, Any]) -> str:
    rows = [
        [f"{row['b']} − {row['a']}", points(row), cell(float(row["p_holm"])), f"{row['tasks_changed']} of {row['tasks']}",
         "" if row.get("detectable_points") is None else cell(float(row["detectable_points"]))]
        for row in report.get("comparisons", [])
    ]  # fmt: skip
    head = ["", "points, 95%", "p (Holm)", "tasks that differ", "least that would be seen, points"]
    return table(head, rows) if rows else ""


def _split(report: dict[str, Any], key: str, title: str) -> str:
    """Policies beside each other for every kind; left out where there is one kind only."""
    kinds = list(dict.fromkeys(kind for entry in report["policies"] for kind in entry.get(key, {})))
    if len(kinds) < 2:
        return ""
    rows = []
    for kind in kinds:
        own = [entry.get(key, {}).get(kind) for entry in report["policies"]]
        tasks = next(found["tasks"] for found in own if found)
        rows.append([kind, str(tasks), *("" if found is None else percent(found) for found in own)])
    return f"<h3>{escape(title)}</h3>" + table(["", "tasks", *(e["key"] for e in report["policies"])], rows)


def _items(report: dict[str, Any]) -> str:
    items = report.get("items", {})
    words = []
    for key, said in (
        ("saturated", "solved by all who compete, so they tell nobody apart"),
        ("impossible", "solved by nobody"),
    ):
        names = items.get(key, [])
        listed = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
        words.append(f"<p>{len(names)} {key} ({said}){': ' + escape(listed) if names else ''}.</p>")
    worst = sorted((v, k) for k, v in items.get("discrimination", {}).items() if v is not None)[:10]
    rows = [[name, cell(float(value))] for value, name in worst]
    return "".join(words) + (table(["tasks that tell policies apart least", "discrimination"], rows) if rows else "")


def _charts(*drawn: str) -> str:
    content = "".join(drawn)
    return f'<div class="charts">{content}</div>' if content else ""
