"""What the plot shows, read from a bench run's `report.json`: a curve for each policy, a point for each of its efforts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.core.events.finite import read_file

EFFORTS = ("low", "medium", "high")  # in the order in which a curve joins them; others follow by cost
AXES = {
    "tokens": "completion tokens an attempt",
    "dollars": "dollars an attempt",
    "seconds": "wall seconds an attempt",
    "core_seconds": "core-seconds an attempt",
}


class NoPareto(ValueError):
    """The report has nothing to draw on this axis; says what it has."""


@dataclass(frozen=True)
class Point:
    """One policy at one effort. Intervals are 95% by task; `share`: of the resamples in which it is on the front."""

    policy: str
    effort: str
    score: float
    score_ci95: tuple[float, float]
    cost: float
    cost_ci95: tuple[float, float]
    on_front: bool
    share: float | None = None
    best_of: Mapping[int, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.policy}, {self.effort}" if self.effort else self.policy


def read_report(run: Path) -> dict[str, Any]:
    """A bench run's report. Raises NoPareto if the folder has none."""
    path = run / "report.json"
    if not path.is_file():
        raise NoPareto(f"{run} has no report.json: give the --out of an `etude bench run`")
    return read_file(path)


def curves(report: Mapping[str, Any], axis: str) -> dict[str, list[Point]]:
    """Points by policy, in the order of effort; policies in the report's order. Raises NoPareto."""
    if axis not in AXES:
        raise NoPareto(f"there is no axis {axis!r}; there are {', '.join(AXES)}")
    entries = [entry for entry in report.get("policies", []) if isinstance(entry, dict)]
    stored = report.get("pareto", {}).get(axis)
    points = _stored(stored, entries) if stored is not None else _found(entries, axis)
    if not points:
        has = [name for name in AXES if any(name in entry.get("axes", {}) for entry in entries)]
        raise NoPareto(f"no policy of this report has {axis}; there is {', '.join(has) or 'nothing to draw'}")
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(point.policy, []).append(point)
    place = {effort: number for number, effort in enumerate(EFFORTS)}
    for own in found.values():
        own.sort(key=lambda point: (place.get(point.effort, len(place)), point.cost))
    return found


def axes_of(report: Mapping[str, Any]) -> list[str]:
    """The axes that some policy has."""
    entries = [entry for entry in report.get("policies", []) if isinstance(entry, dict)]
    stored = report.get("pareto")
    return [
        name
        for name in AXES
        if (name in stored if stored is not None else any(name in e.get("axes", {}) for e in entries))
    ]


def heading(report: Mapping[str, Any]) -> str:
    """`exercises@3: 200 tasks, 4 passes`, as far as the report says."""
    suite = report.get("suite", "")
    if isinstance(suite, dict):
        suite = "@".join(str(suite[key]) for key in ("name", "version") if suite.get(key))
    tasks = report.get("tasks")
    passes = sorted(
        {entry["passes"] for entry in report.get("policies", []) if isinstance(entry, dict) and "passes" in entry}
    )
    pass_count = f", {passes[0]}{f' to {passes[-1]}' if len(passes) > 1 else ''} passes" if passes else ""
    return str(suite) + (f": {tasks} tasks{pass_count}" if suite and isinstance(tasks, int) else "")


def _stored(rows: list[dict[str, Any]], entries: list[dict[str, Any]]) -> list[Point]:
    """As the report's own `pareto` says, which also leaves out who does not compete."""
    by_key = {entry.get("key", f"{entry['name']}@{entry.get('effort', '')}"): entry for entry in entries}
    return [
        Point(
            by_key[row["key"]]["name"],
            by_key[row["key"]].get("effort", ""),
            row["score"],
            tuple(row["score_ci95"]),
            row["cost"],
            tuple(row["cost_ci95"]),
            row["on_front"],
            row.get("share"),
            _best_of(by_key[row["key"]]),
        )
        for row in rows
    ]


def _found(entries: list[dict[str, Any]], axis: str) -> list[Point]:
    """From the policies' own figures; who is on the front is found here."""
    rows = [(entry, entry["axes"][axis]) for entry in entries if axis in entry.get("axes", {})]
    places = [(float(entry["avg"]), float(cost["value"])) for entry, cost in rows]
    return [
        Point(
            entry["name"],
            entry.get("effort", ""),
            score,
            tuple(entry["ci95"]),
            price,
            tuple(cost["ci95"]),
            not any(s >= score and c <= price and (s > score or c < price) for s, c in places),
            None,
            _best_of(entry),
        )
        for (entry, cost), (score, price) in zip(rows, places, strict=True)
    ]


def _best_of(entry: Mapping[str, Any]) -> dict[int, float]:
    return {int(k): float(value) for k, value in entry.get("best_of", {}).items()}
