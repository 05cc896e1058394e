"""Sandboxes and weights as their pages want them: what attempts waited for, which faults they met, how weights travelled."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from etude.evaluate.report.board.change import Problems
from etude.evaluate.report.board.index import AttemptIndex
from etude.evaluate.report.board.json_lines import GrowingJsonLines
from etude.evaluate.report.rows.faults import faults

PHASES = ("create_s", "policy_s", "tools_s", "grade_s", "seconds")
QUANTILES = (0.5, 0.9, 0.99, 1.0)
MOMENTS = 160  # of a run's time at most: a point every other pixel of a phone
BINS = 24  # of a histogram: what fits on a phone


def fleet(index: AttemptIndex) -> dict[str, Any]:
    """Seconds by phase with quantiles and histogram, faults by class, what the sandboxes are."""
    repeated: Counter[str] = Counter()
    met, words = index.column("faults")
    for number, count in enumerate(np.bincount(met, minlength=len(words)).tolist() if len(words) else []):
        for name in words[number].split():
            repeated[name] += count
    lost = list(faults(index.run))
    given_up = Counter(entry["class"] for entry in lost)
    tries, _ = index.column("tries")
    return {
        "attempts": len(index),
        "repeated": int((tries - 1).clip(0).sum()),
        "phases": {name: _spread(index.column(name)[0]) for name in PHASES},
        "hosts": _hosts(index),
        "time": _over_time(index),
        "faults": [
            {"class": name, "repeated": repeated[name], "given_up": given_up[name]}
            for name in sorted(repeated | given_up, key=lambda n: -(repeated[n] + given_up[n]))
        ],
        "last": [{"reason": e["reason"], "of": e.get("task_id") or e.get("group")} for e in lost[-50:]][::-1],
        "sandbox": _sandbox(index.run),
    }


def weights(index: AttemptIndex) -> dict[str, Any]:
    """The store's anchors and deltas, in the order they were published; without a store `entries` is empty."""
    path = index.run / "rl" / "weights" / "index.json"
    entries = _json(path).get("entries", [])
    versions, _ = index.column("newest")
    tokens, _ = index.column("sampled")
    drawn = versions >= 0
    newest = int(versions[drawn].max()) if drawn.any() else -1
    by_version = np.bincount(versions[drawn], weights=tokens[drawn], minlength=newest + 1) if drawn.any() else []
    return {
        "entries": [{key: entry.get(key) for key in ("version", "base", "bytes", "raw_bytes")} for entry in entries],
        "sampled_by_newest": [int(count) for count in by_version],
    }


def audit(index: AttemptIndex) -> dict[str, Any]:
    """The rows of every `audit.jsonl` of the run, newest last; `read` says which files there are."""
    problems, rows, read = Problems(), [], []
    for path in sorted({*index.run.glob("audit.jsonl"), *index.run.glob("*/audit.jsonl")}):
        read.append(str(path.relative_to(index.run)))
        rows += GrowingJsonLines(path, problems).news()
    return {"files": read, "rows": rows, "problems": problems.found}


def _hosts(index: AttemptIndex) -> list[dict[str, Any]]:
    """Attempts by the host their sandbox was on, the busiest first: how long a sandbox took to come, what had to be repeated."""
    (host, names), (create, _), (tries, _) = (index.column(name) for name in ("host", "create_s", "tries"))
    known = ~np.isnan(create)
    rows = [
        {
            "host": names[number],
            "attempts": int(of.sum()),
            "create_s": [float(np.quantile(create[of], q)) for q in (0.5, 0.9, 1.0)],
            "repeated": int((tries[of] - 1).clip(0).sum()),
        }
        for number in range(len(names))
        if (of := (host == number) & known).any()
    ]
    return sorted(rows, key=lambda row: -row["attempts"])


def _over_time(index: AttemptIndex) -> dict[str, Any] | None:
    """By source, in moments of equal length: how many attempts were at work on average, and how many began. None if no time is known."""
    (began, _), (seconds, _), (source, names) = (index.column(name) for name in ("began", "seconds", "source"))
    known = (began >= 0) & ~np.isnan(seconds)
    if not known.any():
        return None
    start, end = float(began[known].min()), float((began[known] + seconds[known]).max())
    moment_s = max(
        1, math.ceil((end - start) / MOMENTS)
    )  # whole seconds, as the times are: shorter ones would be a comb
    edges = start + moment_s * np.arange(math.ceil((end - start) / moment_s) + 1)
    lines: dict[str, Any] = {}
    for number, name in enumerate(names):
        of = known & (source == number)
        if not of.any():
            continue
        first, length = began[of].astype(float), seconds[of].astype(float)
        worked = np.array(
            [float(np.clip(edge - first, 0.0, length).sum()) for edge in edges]
        )  # seconds of work until then
        created = np.histogram(first, bins=edges)[0]
        live = np.diff(worked) / moment_s
        lines[name] = {"live": live.round(4).tolist(), "began": created.tolist()}
    return {"from_unix_s": start, "moment_s": moment_s, "known": int(known.sum()), "sources": lines}


def _spread(values: np.ndarray) -> dict[str, Any] | None:
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    counts, edges = np.histogram(known, bins=BINS, range=(0.0, max(float(np.quantile(known, 0.99)), 1e-3)))
    return {
        "count": len(known),
        "mean": float(known.mean()),
        "quantiles": {str(q): float(np.quantile(known, q)) for q in QUANTILES},
        "counts": counts.tolist(),
        "width": float(edges[1] - edges[0]),
    }


def _sandbox(run: Path) -> dict[str, Any]:
    for stage in ("bench", ""):
        if found := _json(run / stage / "summary.json").get("sandbox"):
            return found
    return {}


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    found = json.loads(path.read_text())
    return found if isinstance(found, dict) else {}
