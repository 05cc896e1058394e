"""Figures of two runs: of the bench and of RL paired by task, of every stage what it cost and where its curves ended."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from etude.core.events.finite import read_file
from etude.evaluate.report.charts import Curves
from etude.evaluate.report.paired import Means, compare_means, gather
from etude.evaluate.report.query.rollouts import rollouts
from etude.evaluate.report.rows.outcomes import outcomes

BENCH = ("score", "tokens", "output_tokens", "turns", "tool_calls", "seconds", "core_seconds")
ROLLOUT = {
    "rewards.outcome": "outcome",
    "reward": "reward",
    "sampled_tokens": "sampled tokens",
    "counters.turns": "turns",
}
SCORES = ("score", "rewards.outcome")
LAST = 8  # entries of a curve that its end is the mean of
Sides = dict[tuple[str, ...], dict[str, Means]]


def of_bench(a: Path, b: Path) -> list[dict[str, Any]]:
    """Each policy that both runs asked, figure by figure. Where each asked one that the other did not, those two are a pair."""
    ours, theirs = (gather(outcomes(run), ("policy", "effort"), BENCH) for run in (a, b))
    pairs = [(key, key) for key in ours if key in theirs]
    alone_a, alone_b = [key for key in ours if key not in theirs], [key for key in theirs if key not in ours]
    pairs += [(alone_a[0], alone_b[0])] if len(alone_a) == len(alone_b) == 1 else []
    return [row for x, y in pairs for row in _rows(_named(x, y), ours[x], theirs[y], BENCH)]


def of_rollouts(a: Path, b: Path) -> list[dict[str, Any]]:
    """RL's rollouts at the tasks that both runs practised."""
    ours, theirs = (gather(rollouts(run), (), ROLLOUT) for run in (a, b))
    found = _rows("RL rollouts", ours.get((), {}), theirs.get((), {}), ROLLOUT)
    return [row | {"figure": ROLLOUT[row["figure"]]} for row in found]


def of_stages(a: Path, b: Path) -> list[dict[str, Any]]:
    """What each stage that both finished took."""
    ours, theirs = (_json(run / "stages.json") for run in (a, b))
    return [
        {"name": stage, "figure": figure, "a": ours[stage][figure], "b": theirs[stage][figure]}
        for stage in ours
        if stage in theirs
        for figure in ("seconds", "core_seconds", "peak_rss_bytes")
        if figure in ours[stage] and figure in theirs[stage]
    ]


def of_curves(a: Curves, b: Curves, wanted: Mapping[str, Iterable[str]]) -> list[dict[str, Any]]:
    """Where the named curves ended: the mean of the last entries of each."""
    return [
        {"name": stage, "figure": f"{name}, last {LAST}", "a": _end(a[stage][name]), "b": _end(b[stage][name])}
        for stage, names in wanted.items()
        for name in names
        if name in a.get(stage, {}) and name in b.get(stage, {})
    ]


def _rows(name: str, a: Mapping[str, Means], b: Mapping[str, Means], fields: Iterable[str]) -> list[dict[str, Any]]:
    found = [
        (field, compare_means(a[field], b[field], scores=field in SCORES))
        for field in fields
        if field in a and field in b
    ]
    return [{"name": name, "figure": field, **row} for field, row in found if row is not None]


def _named(x: tuple[str, ...], y: tuple[str, ...]) -> str:
    own = [" ".join(filter(None, key)) for key in (x, y)]
    return own[0] if own[0] == own[1] else f"{own[0]} against {own[1]}"


def _end(points: list[tuple[int, float]]) -> float:
    return statistics.fmean(value for _, value in points[-LAST:])


def _json(path: Path) -> dict[str, Any]:
    return read_file(path) if path.is_file() else {}
