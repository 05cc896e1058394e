"""What a run with a region came to, from its folder: who was lost, how old tokens were, what crossed the link."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etude.rl.steps import StepRecord, read
from etude.rl.store import GroupStore


def entries(folder: Path) -> list[dict[str, Any]]:
    """Of the ledger, whole lines only: the run may be writing."""
    data = (folder / "ledger.jsonl").read_bytes() if (folder / "ledger.jsonl").exists() else b""
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


def groups(ledger: Sequence[dict[str, Any]], kind: str) -> set[int]:
    if kind == "trained":
        done = {entry["step"] for entry in ledger if entry["kind"] == "trained"}
        return {
            group for entry in ledger if entry["kind"] == "batch" and entry["step"] in done for group in entry["groups"]
        }
    return {entry["group"] for entry in ledger if entry["kind"] == kind}


def trained_twice(ledger: Sequence[dict[str, Any]]) -> list[int]:
    found = [group for entry in ledger if entry["kind"] == "batch" for group in entry["groups"]]
    return sorted({group for group in found if found.count(group) > 1})


def samples(folder: Path, admitted: set[int], group_size: int) -> dict[str, int]:
    """Of the groups admitted until the region came back: how many were trained, whole, once."""
    ledger, store = entries(folder), GroupStore(folder / "groups")
    trained = groups(ledger, "trained")
    whole = sum(len(store.load(group)) == group_size for group in admitted & trained)
    return {
        "admitted_groups": len(admitted),
        "trained_groups": len(admitted & trained),
        "lost_rollouts": group_size * len(admitted) - group_size * whole,
        "trained_twice": len(trained_twice(ledger)),
        "attempts_begun_anew": int(sum(step.values["retried"] for step in read(folder / "steps.jsonl"))),
        "slots_queued_again": sum(entry["kind"] == "fault" for entry in ledger),
    }


def staleness(folder: Path) -> dict[str, float]:
    steps = read(folder / "steps.jsonl")
    return {
        "max": max(step.values["staleness_max"] for step in steps),
        "mean": round(statistics.fmean(step.values["staleness_mean"] for step in steps), 3),
    }


def crossed(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the relay copied."""
    copied = [event for event in events if event["event"] == "copied"]
    names = [event["name"] for event in copied]
    deltas = [event["seconds"] for event in copied if event["name"].startswith("delta")]
    return {
        "objects_sets": len(names),
        "copied_twice": len(names) - len(set(names)),
        "shard_bytes": sum(event["shard_bytes"] for event in copied),
        "relay_bytes": sum(event["bytes"] for event in copied),
        "median_delta_s": round(statistics.median(deltas), 3) if deltas else None,  # anchors alone may have crossed
    }


def paces(steps: Sequence[StepRecord], first: int, last: int) -> dict[str, float]:
    """Of the steps from `first` to `last`: seconds of each, and the region's share of the turns of all engines."""
    some = [step for step in steps if first <= step.step < last]
    spent = sum(step.values["wait_s"] + step.values["train_s"] + step.values["held_s"] for step in some)
    turns = some[-1].values["region_far_turns"] - some[0].values["region_far_turns"] if some else 0.0
    return {"steps": len(some), "step_s": round(spent / max(1, len(some)), 2), "region_turns": turns}
