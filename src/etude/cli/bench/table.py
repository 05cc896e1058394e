"""A bench run's report as a table for people."""

from __future__ import annotations

from typing import Any

COLUMNS = ("policy", "average", "95% interval", "best of", "passes", "tokens", "dollars", "seconds", "turns")


def table(report: dict[str, Any]) -> str:
    """One line a policy and effort, then the fronts, the pairs that differ, and what is left to do."""
    rows = [COLUMNS, *(_row(entry) for entry in report["policies"])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    head = f"{report['suite']['label']}, {report['tasks']} tasks; per attempt:"
    return "\n".join([head, *lines, *_fronts(report), *_summaries(report), *_items(report), *_thin(report)])


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    low, high = entry["ci95"]
    k, best = list(entry["best_of"].items())[-1]
    axes = entry["axes"]
    return (
        entry["key"],
        f"{entry['avg']:.1f}%",
        f"[{low:.1f}, {high:.1f}]",
        f"{best:.1f}% of {k}",
        str(entry["passes"]),
        _figure(axes, "tokens", ",.0f"),
        _figure(axes, "dollars", ".4f"),
        _figure(axes, "seconds", ".1f"),
        f"{entry['turns']:.1f}",
    )


def _figure(axes: dict[str, Any], name: str, form: str) -> str:
    return format(axes[name]["value"], form) if name in axes else "-"


def _fronts(report: dict[str, Any]) -> list[str]:
    """Where more than one competes."""
    lines = []
    for axis, points in report.get("pareto", {}).items():
        if len(points) > 1:
            held = [f"{p['key']} ({100 * p['share']:.0f}%)" for p in points if p["on_front"]]
            lines.append(f"front by {axis}: {', '.join(held)}")
    return lines


def _summaries(report: dict[str, Any]) -> list[str]:
    """What self-summaries were worth, where a policy was asked with and without."""
    return [
        f"self-summaries of {row['with']}: {row['points']:+.1f} points {row['ci95']} over {row['tasks']} tasks, "
        f"{row['tokens_with']:,.0f} tokens instead of {row['tokens_without']:,.0f}"
        for row in report.get("summaries", [])
    ]


def _items(report: dict[str, Any]) -> list[str]:
    found, tasks = report.get("items", {}), report["tasks"]
    labels = {"saturated": "always solved", "impossible": "never solved"}
    return [f"{len(found[key])} of {tasks} tasks are {words}" for key, words in labels.items() if found.get(key)]


def _thin(report: dict[str, Any]) -> list[str]:
    thin = report["thin_levels"]
    return [f"one task each of {', '.join(thin)}: their spread is taken from the rest; ask more tasks"] if thin else []
