"""Sandboxes and weights as their pages want them: what attempts waited for, which faults they met, how weights travelled."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from etude.report.board.index import Index
from etude.report.board.lines import Lines
from etude.report.board.sources.change import Problems
from etude.report.faults import faults

PHASES = ("create_s", "policy_s", "tools_s", "grade_s", "seconds")
QUANTILES = (0.5, 0.9, 0.99, 1.0)
BINS = 24  # of a histogram: what fits on a phone


def fleet(index: Index) -> dict[str, Any]:
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
        "faults": [
            {"class": name, "repeated": repeated[name], "given_up": given_up[name]}
            for name in sorted(repeated | given_up, key=lambda n: -(repeated[n] + given_up[n]))
        ],
        "last": [{"reason": e["reason"], "of": e.get("task_id") or e.get("group")} for e in lost[-50:]][::-1],
        "sandbox": _sandbox(index.run),
    }


def weights(index: Index) -> dict[str, Any]:
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


def audit(index: Index) -> dict[str, Any]:
    """Lines of every `audit.jsonl` of the run, newest last; `read` says which files there are."""
    problems, rows, read = Problems(), [], []
    for path in sorted({*index.run.glob("audit.jsonl"), *index.run.glob("*/audit.jsonl")}):
        read.append(str(path.relative_to(index.run)))
        rows += Lines(path, problems).news()
    return {"files": read, "rows": rows, "problems": problems.found}


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
