"""What only a bench of an endpoint has: the bill, and bugs in real packages."""

from __future__ import annotations

from html import escape
from typing import Any

from etude.report import charts
from etude.report.table import cell, percent, table


def usage(report: dict[str, Any]) -> str:
    """Tokens and dollars an attempt, for policies that were billed."""
    entries = [(f"{name}, exercises", entry) for _, name, entry in charts.policies(report)]
    entries += [(f"{name}, real packages", entry) for name, entry in real_entries(report)]
    keys = {
        "turns": "turns",
        "input_tokens_per_attempt": "tokens in, an attempt",
        "output_tokens_per_attempt": "tokens out, an attempt",
        "dollars_per_attempt": "dollars an attempt",
        "dollars": "dollars in all",
    }
    rows = [[name, *(_known(entry["usage"].get(key)) for key in keys)] for name, entry in entries if "usage" in entry]
    return table(["what it used", *keys.values()], rows) if rows else ""


def real_packages(report: dict[str, Any]) -> str:
    """The real suite, whole and by package; or why it was left out."""
    found = report.get("bench_real", {})
    if "skipped" in found:
        return f"<p>Left out: {escape(str(found['skipped']))}</p>"
    rows: list[list[str]] = []
    for name, entry in real_entries(report):
        rows.append([name, percent(entry), f"{entry['tasks']} x {entry['passes']}"])
        for package, part in entry.get("by_package", {}).items():
            rows.append([f"in {package}", f"{part['avg']:.1f}", f"{part['attempts']} attempts"])
    return (
        table(["injected bugs, the package's own tests judge", "solved, % [95%]", "tasks x passes"], rows)
        if rows
        else ""
    )


def real_entries(report: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """(policy, entry) of the real suite."""
    return [(name, e) for name, e in report.get("bench_real", {}).items() if isinstance(e, dict) and "avg" in e]


def _known(value: Any) -> str:
    return "" if value is None else cell(value)
