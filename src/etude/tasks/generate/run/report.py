"""The report of a generation run, for people and as `report.json`: installs by builder, yield by generator, tasks by
category, cost per task.

It depends on the journal alone, so it can be rebuilt at any time (promise 11).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from etude.tasks.generate.run.journal import CandidateDecision, GenerationJournal, InstallDecision
from etude.tasks.store.overlap import statement

MAX_REASONS = 6  # the most frequent of each generator; the rest is one sum
_VARIES = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\d[\d.]*|\S*/\S+")


def build_report(decisions: GenerationJournal, faults: Iterable[str] = ()) -> dict[str, Any]:
    """The content of `report.json`."""
    rows = list(decisions.candidates.values())
    taken = sum(row.taken for row in rows)
    dollars = sum(row.dollars for row in [*rows, *decisions.installs.values()])
    return {
        "tasks": taken,
        "candidates": len(rows),
        "categories": dict(sorted(Counter(row.category for row in rows if row.taken).items())),
        "projects": dict(sorted(Counter(row.project for row in rows if row.taken).items())),
        "installs": _install_yields(list(decisions.installs.values())),
        "generators": {name: _generator_yield([r for r in rows if r.generator == name]) for name in _names(rows)},
        "cost": {
            "seconds": round(decisions.spent["seconds"], 1),
            "core_s": round(decisions.spent["core_s"], 1),
            "dollars": round(dollars, 4),
            **_per_task(decisions.spent, dollars, taken),
        },
        "faults": list(faults),
    }


def _per_task(spent: dict[str, float], dollars: float, taken: int) -> dict[str, float | None]:
    whole = {"seconds": spent["seconds"], "core_s": spent["core_s"], "dollars": dollars}
    return {f"{name}_per_task": round(value / taken, 4) if taken else None for name, value in whole.items()}


def _names(rows: list[CandidateDecision]) -> list[str]:
    return list(dict.fromkeys(row.generator for row in rows))


def _install_yields(rows: list[InstallDecision]) -> dict[str, Any]:
    """Yield by builder."""
    yields: dict[str, Any] = {}
    for builder in dict.fromkeys(row.builder for row in rows):
        attempts = [row for row in rows if row.builder == builder]
        good = [row for row in attempts if not row.reason]
        yields[builder] = {
            "tried": len(attempts),
            "installed": len(good),
            "share": round(len(good) / len(attempts), 3),
            "seconds": round(sum(row.seconds for row in attempts), 1),
            "dollars": round(sum(row.dollars for row in attempts), 4),
            "discarded": {row.project: row.reason for row in attempts if row.reason},
        }
    return yields


def _generator_yield(rows: list[CandidateDecision]) -> dict[str, Any]:
    taken = [row for row in rows if row.taken]
    seconds = sum(row.seconds for row in rows)
    return {
        "category": rows[0].category,
        "candidates": len(rows),
        "valid": len(taken),
        "share": round(len(taken) / len(rows), 3),
        "seconds": round(seconds, 1),
        "seconds_per_task": round(seconds / len(taken), 2) if taken else None,
        "dollars": round(sum(row.dollars for row in rows), 4),
        "reasons": _reasons(rows),
    }


def _reasons(rows: list[CandidateDecision]) -> dict[str, int]:
    """Counts of reasons that differ only in names and numbers; the first of each kind represents it."""
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for row in rows:
        if row.taken:
            continue
        kind = " ".join(_VARIES.sub("_", row.reason).split())[:60]
        counts[first.setdefault(kind, " ".join(row.reason.split())[:140])] += 1
    shown = dict(counts.most_common(MAX_REASONS))
    rest = counts.total() - sum(shown.values())
    return shown | ({"others": rest} if rest else {})


def format_report(document: dict[str, Any], console_width: int = 118) -> str:
    """Tables for people."""
    from io import StringIO

    from rich.console import Console
    from rich.table import Table

    out = StringIO()
    console = Console(file=out, width=console_width, highlight=False)
    table = Table(
        "generator", "category", "candidates", "valid", "share", "s per task", "most frequent rejection", box=None
    )
    for name, row in document["generators"].items():
        reason = next((f"{text} ({count})" for text, count in row["reasons"].items()), "")
        per_task = "" if row["seconds_per_task"] is None else f"{row['seconds_per_task']:.1f}"
        numbers = (str(row["candidates"]), str(row["valid"]), f"{100 * row['share']:.0f}%", per_task)
        table.add_row(name, row["category"], *numbers, reason[:60])
    console.print(table)
    for builder, row in document["installs"].items():
        console.print(f"{row['installed']} of {row['tried']} projects installed by {builder} in {row['seconds']:.0f} s")
        for project, reason in row["discarded"].items():
            console.print(f"  {project}: {reason[:150]}")
    cost = document["cost"]
    each = "" if not document["tasks"] else (
        f", {cost['core_s_per_task']:.1f} core-seconds and ${cost['dollars_per_task']:.4f} a task"
    )  # fmt: skip
    by_category = ", ".join(f"{name} {count}" for name, count in document["categories"].items())
    console.print(f"{document['tasks']} tasks in {cost['seconds']:.0f} s{each}: {by_category or 'none'}")
    if splits := statement(document.get("splits", {})):
        console.print(splits)
    for fault in document["faults"][:5]:
        console.print(f"infrastructure error: {fault[:200]}")
    return out.getvalue().rstrip()
