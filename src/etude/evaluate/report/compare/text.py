"""The comparison as tables for a terminal."""

from __future__ import annotations

from typing import Any

from etude.evaluate.report.compare.document import Comparison
from etude.evaluate.report.query.formats import table


def text(found: Comparison) -> str:
    """What was set otherwise, the figures, the sessions."""
    parts = [f"A: {found.a}\nB: {found.b}"]
    for source, rows in found.different.items():
        parts.append(
            f"{source}, keys that differ:\n" + _table([{"key": r["key"], "A": r["a"], "B": r["b"]} for r in rows])
        )
    if not found.different:
        parts.append("Recipe, conditions and machine are the same.")
    if found.figures:
        parts.append("figures (differences paired by task, 95%):\n" + _table([_figure(row) for row in found.figures]))
    if found.session_pairs:
        head = f"sessions of the same task ({len(found.session_pairs)} of {found.shared_tasks} shared tasks):\n"
        parts.append(head + _table([_session(pair.to_json()) for pair in found.session_pairs]))
    return "\n\n".join(parts)


def _figure(row: dict[str, Any]) -> dict[str, Any]:
    shown = {"what": row["name"], "figure": row["figure"], "A": row["a"], "B": row["b"]}
    paired = "ci95" in row
    low, high = row["ci95"] if paired else (0.0, 0.0)
    return shown | {
        "B - A": row["difference"] if paired else row["b"] - row["a"],
        "95%": f"[{low:+.4g}, {high:+.4g}]" if paired else "",
        "tasks": row.get("tasks"),
    }


def _session(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "task": row["task_id"],
        "A": row["a_score"],
        "B": row["b_score"],
        "turns A": row["a_turns"],
        "turns B": row["b_turns"],
        "part at": row["parts_at_step"],
        "patch": "same" if row["patch_equal"] else "differs",
    }


def _table(rows: list[dict[str, Any]]) -> str:
    return "\n".join(table(list(rows[0]), rows))
