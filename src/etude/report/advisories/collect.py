"""From a run's files to the history that the rules read, and the rules' answer."""

from __future__ import annotations

import json
import time
import tomllib
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etude.report.advisories.advisory import Advisory
from etude.report.advisories.engine import judge
from etude.report.advisories.history import History, Steps
from etude.report.query.lines import json_lines
from etude.report.query.outcomes import outcomes
from etude.report.query.steps import steps
from etude.report.working import at_work

LATEST = 1000  # attempts whose ends and faults are counted: a share within three points


def advisories(run: Path, *, now: float | None = None) -> list[Advisory]:
    """What the run's files warn of; a run that is at work is judged as it stands."""
    return judge(history(run, now=now))


def history(run: Path, *, now: float | None = None) -> History:
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
    ends, faults, attempts = _latest(run)
    return History(
        found,
        tomllib.loads(recipe.read_text()) if recipe.is_file() else {},
        {name: _json(run / name / "summary.json") for name in finished},
        ends,
        faults,
        attempts,
        _judged(run),
        time.time() if now is None else now,
        at_work(run),
    )


def _through(run: Path) -> set[str]:
    """Stages whose progress came to its end: what they do after the last step is no stall."""
    last = {e["stage"]: e for e in json_lines(run / "events.jsonl") if e.get("kind") == "progress"}
    return {stage for stage, event in last.items() if 0 < event.get("total", 0) <= event.get("done", 0)}


def _latest(run: Path) -> tuple[Counter[str], Counter[str], int]:
    """How the latest attempts ended, what faults they met on the way, and how many there are: RL's, else the bench's."""
    ends: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    last = deque(_rl_attempts(run), maxlen=LATEST) if (run / "rl" / "groups").is_dir() else _bench_attempts(run)
    for end, met in last:
        ends[end] += 1
        faults.update(met)
    return ends, faults, len(last)


def _rl_attempts(run: Path) -> Iterator[tuple[str, list[str]]]:
    """(how it ended, faults by class) of the newest groups."""
    from etude.trace.group_file import unpack_group

    size = int(tomllib.loads((run / "recipe.toml").read_text())["rl"]["group_size"]) if _has_recipe(run) else 1
    paths = sorted((run / "rl" / "groups").glob("*.zst"))[-max(1, LATEST // size) :]
    for path in paths:
        for rollout in unpack_group(path.read_bytes()):
            met = rollout.info.get("faults") or ["fault"] * (int(rollout.info.get("tries", 1)) - 1)
            yield str(rollout.info.get("end", "")), list(met)


def _bench_attempts(run: Path) -> deque[tuple[str, list[str]]]:
    return deque(((str(row.get("reason", "")), list(row.get("faults") or [])) for row in outcomes(run)), maxlen=LATEST)


def _has_recipe(run: Path) -> bool:
    path = run / "recipe.toml"
    return path.is_file() and "group_size" in tomllib.loads(path.read_text()).get("rl", {})


def _judged(run: Path) -> dict[str, tuple[int, int]]:
    """Of a bench run that was judged: by policy and criterion, passes decided and not."""
    policies = _json(run / "judged.json").get("policies", {})
    return {
        f"{policy}, {name}": (int(figure["decided"]), int(figure["not_decided"]))
        for policy, criteria in policies.items()
        for name, figure in criteria.items()
    }


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.is_file() else {}
