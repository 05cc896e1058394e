"""What a run's knowledge phase left, for `report.json`: the corpus without its documents, perplexity, retrieval, drafts.

The probes measure shares (0 to 1) and nats or bits; nothing is recomputed here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

PHASES = ("base", "short", "long")  # the knowledge phase's checkpoints, in the order they are made
MOST_REASONS = 20  # of projects left out; an error's own words make each of them another reason

Read = Callable[[str], Any]  # "stage/file" of the run, None where it is missing or out of date


def knowledge(read: Read) -> dict[str, Any]:
    """The report's `corpus`, `mtp`, `perplexity` and `retrieval`, each only if its stage has left it."""
    found: dict[str, Any] = {}
    if (corpus := read("corpus/summary.json")) is not None:
        found["corpus"] = slim(corpus)
    if (trained := read("mtp/summary.json")) is not None:
        found["mtp"] = {"training": trained}
    probes = read("probes/summary.json") or {}
    if "mtp" in probes:
        found["mtp"] = found.get("mtp", {}) | probes["mtp"]
    if "perplexity" in probes:
        found["perplexity"] = probes["perplexity"] | {
            name: probes[key]
            for name, key in (("paired", "perplexity_paired"), ("by_position", "by_position"))
            if key in probes
        }
    if "retrieval" in probes:
        found["retrieval"] = probes["retrieval"]
    return found


def slim(corpus: dict[str, Any]) -> dict[str, Any]:
    """The corpus' summary with lists of projects as counts: a library of 100,000 projects has a report too."""
    library = corpus.get("library")
    if not library:
        return corpus
    left_out = library.get("left_out", {})
    reasons = Counter(left_out.values()).most_common(MOST_REASONS)
    short = library | {
        "left_out": {"projects": len(left_out), "reasons": dict(reasons)},
        "heldout_projects": len(library.get("heldout_projects", [])),
    }
    return corpus | {"library": short}


def reader(run: Path, old: set[str]) -> Read:
    """Reads `stage/file` under the run; what an outdated stage left reads as missing."""

    def read(name: str) -> Any:
        path = run / name
        return json.loads(path.read_text()) if name.split("/")[0] not in old and path.is_file() else None

    return read
