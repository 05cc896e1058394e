"""The latest attempts of a run: how they ended, what faults they met on the way, which were given up, which can't be read."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from etude.core import bounded_toml
from etude.evaluate.report.rows.faults import faults
from etude.evaluate.report.rows.outcomes import outcomes

LATEST = 1000  # attempts whose ends and faults are counted: a share within three points

AttemptEnd = tuple[str, list[str]]  # how an attempt ended, faults by class


def latest(run: Path) -> dict[str, Any]:
    """`ends`, `faults`, `attempts`, `lost` and `damaged` of a history: of RL where there is one, else of the bench."""
    if (run / "rl" / "groups").is_dir():
        return _of_rl(run)
    rows = deque(outcomes(run), maxlen=LATEST)
    attempts = [(str(row.get("end") or row.get("reason", "")), list(row.get("faults") or [])) for row in rows]
    made = {(f"{row['policy']}@{row['effort']}", row["task_id"], row["attempt"]) for row in rows}
    lost = [f for f in faults(run) if (f.get("policy"), f.get("task_id"), f.get("attempt")) not in made]
    return _counted(attempts, lost[-LATEST:])


def _of_rl(run: Path) -> dict[str, Any]:
    from etude.core.trace.group_file import DamagedGroup, unpack_group

    paths = sorted((run / "rl" / "groups").glob("*.zst"))[-max(1, LATEST // _group_size(run)) :]
    attempts: list[AttemptEnd] = []
    damaged: dict[str, str] = {}
    for path in paths:
        try:
            rollouts = unpack_group(path.read_bytes())
        except DamagedGroup as error:
            damaged[str(path.relative_to(run))] = str(error)
            continue
        for rollout in rollouts:
            met = rollout.info.get("faults") or ["fault"] * (int(rollout.info.get("tries", 1)) - 1)
            attempts.append((str(rollout.info.get("end", "")), list(met)))
    first = min((int(path.stem) for path in paths if path.stem.isdigit()), default=0)
    lost = [fault for fault in faults(run) if (fault.get("group") or 0) >= first]
    return _counted(attempts, lost) | {"damaged": damaged}


def _counted(attempts: Iterable[AttemptEnd], lost: Iterable[dict[str, Any]]) -> dict[str, Any]:
    rows = list(attempts)
    return {
        "ends": Counter(end for end, _ in rows),
        "faults": Counter(name for _, met in rows for name in met),
        "attempts": len(rows),
        "lost": Counter(fault["class"] for fault in lost),
    }


def _group_size(run: Path) -> int:
    path = run / "recipe.toml"
    return int(bounded_toml.loads(path.read_text()).get("rl", {}).get("group_size", 1)) if path.is_file() else 1
