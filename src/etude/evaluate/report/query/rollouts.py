"""RL's rollouts: a row each, from the groups on disk, the ledger's version of admission, and what the training step made of them.

So a group's sequences are joined here with their advantages and versions: `rl/groups/000123.zst` has the tokens, each with the version that
sampled it, `rl/ledger.jsonl` the version at which the group was admitted, `rl/steps.jsonl` the step and the advantages, in the order of its
`groups` and, within each, of the members. An advantage exists from the step on: its parts are weighed by the step's weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from etude.core.trace.group_file import unpack_group
from etude.core.trace.segment import Rollout
from etude.evaluate.report.rows.lines import flat, json_lines, placed_lines


def rollouts(run: Path) -> Iterator[dict[str, Any]]:
    """Those that were trained in the order of the steps, then those that still wait. A group is in memory at a time."""
    groups = {int(path.stem): path for path in sorted((run / "rl" / "groups").glob("*.zst")) if path.stem.isdigit()}
    kept = {path.name: path for path in (run / "rl" / "sessions").glob("step-*/*.jsonl")}
    admitted = _admitted(run / "rl" / "ledger.jsonl")
    for step, record in _records(run / "rl" / "steps.jsonl"):
        at = 0
        for group in record["groups"]:
            path = groups.pop(group, None)
            members = unpack_group(path.read_bytes()) if path else []
            # A group whose file is gone still has its place in the step's lists.
            size = len(members) or len(record["advantages"]) // len(record["groups"])
            for member, rollout in enumerate(members):
                parts = {name: math.nan if v is None else v for name, v in record["components"][at + member].items()}
                trained = {"step": step, "reward": sum(parts.values()), "advantage": record["advantages"][at + member]}
                trained |= {f"rewards.{name}": value for name, value in parts.items()}
                yield _row(rollout, group, member, kept, run) | admitted.get(group, {}) | trained
            at += size
    for group, path in groups.items():
        for member, rollout in enumerate(unpack_group(path.read_bytes())):
            yield _row(rollout, group, member, kept, run) | admitted.get(group, {})


def _admitted(path: Path) -> dict[int, dict[str, Any]]:
    """By finished group the policy version that served when it was admitted: what its deadline is counted from."""
    finished = (row for row in json_lines(path) if row.get("kind") in ("completed", "set_aside"))
    return {row["group"]: {"admitted_version": row["version"]} for row in finished if "version" in row}


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The steps in order; of a step trained again after a kill the last line."""
    places = {row["step"]: at for at, row in placed_lines(path) if "step" in row}
    for step in sorted(places):
        with path.open("rb") as file:
            file.seek(places[step])
            yield step, json.loads(file.readline())


def _row(rollout: Rollout, group: int, member: int, kept: dict[str, Path], run: Path) -> dict[str, Any]:
    session = kept.get(f"{group:06d}-{member}.jsonl")
    return {
        "id": rollout.id,
        "task_id": rollout.task_id,
        "level": rollout.task_id.partition("/")[0],
        "group": group,
        "member": member,
        **_of_tokens(rollout),
        "session": str(session.relative_to(run)) if session else None,
        **flat({"rewards": rollout.rewards, "counters": rollout.counters, "info": rollout.info}),
    }


def _of_tokens(rollout: Rollout) -> dict[str, Any]:
    drawn = [segment for segment in rollout.segments if segment.sampled.any()]
    sampled = sum(int(segment.sampled.sum()) for segment in drawn)
    logprob = sum(float(segment.logprobs[segment.sampled].sum(dtype=np.float64)) for segment in drawn)
    versions = [int(v) for segment in drawn for v in np.unique(segment.versions[segment.sampled])]
    return {
        "segments": len(rollout.segments),
        "tokens": sum(len(segment) for segment in rollout.segments),
        "sampled_tokens": sampled,
        "mean_logprob": logprob / sampled if sampled else None,
        "oldest_version": min(versions, default=None),
        "newest_version": max(versions, default=None),
    }
