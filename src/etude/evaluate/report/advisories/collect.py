"""From a run's files to the history that the rules read, and the rules' answer."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from etude.core import bounded_toml
from etude.core.events.finite import read_file
from etude.evaluate.report.advisories.advisory import Advisory
from etude.evaluate.report.advisories.hints import HINTS
from etude.evaluate.report.advisories.history import RunState, Steps
from etude.evaluate.report.advisories.learning import LEARNING
from etude.evaluate.report.advisories.work import WORK
from etude.evaluate.report.rows.faults import faults
from etude.evaluate.report.rows.lines import json_lines
from etude.evaluate.report.rows.outcomes import outcomes
from etude.evaluate.report.rows.steps import steps
from etude.evaluate.report.working import at_work

# The latest attempts of a run: how they ended, what faults they met on the way, which were given up, which can't be
# read.


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


# All rules over one history: alarms first; hints only of a run without any.


ALARMS = (*WORK, *LEARNING)


def judge(history: RunState) -> list[Advisory]:
    """Every alarm in the order of the rules; else every hint."""
    alarms = [found for rule in ALARMS for found in rule(history)]
    return alarms or [found for rule in HINTS for found in rule(history)]


def advisories(run: Path, *, now: float | None = None) -> list[Advisory]:
    """What the run's files warn of; a run that is at work is judged by its current state."""
    return judge(history(run, now=now))


def history(run: Path, *, now: float | None = None) -> RunState:
    """Reads the steps, the latest rollouts and the summaries; what is not there is empty."""
    finished = _json(run / "stages.json")
    times: dict[str, list[float]] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in steps(run):
        times.setdefault(row["stage"], []).append(float(row.get("time") or 0.0))
        rows.setdefault(row["stage"], []).append(row)
    through = _through(run)
    found = {name: Steps(times[name], rows[name], name in finished or name in through) for name in rows}
    recipe = run / "recipe.toml"
    report = _json(run / "conditions.json").get("shared", {}).get("report", {})
    return RunState(
        stages=found,
        recipe=bounded_toml.loads(recipe.read_text()) if recipe.is_file() else {},
        summaries={name: _json(run / name / "summary.json") for name in finished},
        **latest(run),
        judged=_judged(run),
        rubrics=int(report.get("rubrics") or 0),
        judge=str(report.get("judge") or ""),
        now=time.time() if now is None else now,
        alive=at_work(run),
    )


def _through(run: Path) -> set[str]:
    """Stages whose progress came to its end: what they do after the last step is no stall."""
    last = {e["stage"]: e for e in json_lines(run / "events.jsonl") if e.get("kind") == "progress"}
    return {stage for stage, event in last.items() if 0 < event.get("total", 0) <= event.get("done", 0)}


def _judged(run: Path) -> dict[str, tuple[int, int]]:
    """Of a bench run that was judged: by policy and criterion, passes decided and not."""
    policies = _json(run / "judged.json").get("policies", {})
    return {
        f"{policy}, {name}": (int(figure["decided"]), int(figure["not_decided"]))
        for policy, criteria in policies.items()
        for name, figure in criteria.items()
    }


def _json(path: Path) -> dict[str, Any]:
    return read_file(path) if path.is_file() else {}
