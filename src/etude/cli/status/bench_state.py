"""The state of a bench run, and of a collection of sessions."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from etude.cli.status.rates import stage_rates
from etude.cli.status.run_state import RECENT_BYTES, RunStatus, StageRow, StageState

LAST_ERRORS = 5


def read_bench(folder: Path, name: str, *, rates: bool) -> RunStatus:
    """A policy is a stage: done once every task has its passes. Raises ConditionsDiffer for conditions that can't be read."""
    from etude.core.events.read import recent_events
    from etude.evaluate.bench.runs import conditions
    from etude.evaluate.bench.runs.folder import RunFolder
    from etude.evaluate.report.rows.faults import faults
    from etude.pipeline.run.lock import holder

    asked = conditions.read(RunFolder(folder)) or {}
    pid = holder(folder)
    tasks = len(asked["shared"]["tasks"])
    rows = _outcomes(folder)
    stages = []
    for key, facts in asked["policies"].items():
        total, done = tasks * facts["passes"], len({(row["task_id"], row["attempt"]) for row in rows.get(key, ())})
        stages.append(StageRow(key, _state(done, total, running=pid is not None), done=done, total=total))
    done, total = sum(stage.done or 0 for stage in stages), sum(stage.total or 0 for stage in stages)
    ended = "finished" if done >= total > 0 else "stopped"
    events = recent_events(folder / "events.jsonl", RECENT_BYTES) if rates else []
    label = str(asked["shared"]["suite"]["name"])
    return RunStatus(
        name, folder, "bench", ended if pid is None else "running",
        f"at {done} of {total} attempts" if ended == "stopped" and pid is None else "", pid, done, total, tuple(stages),
        tuple(f"{row['policy']}: {row['reason']}" for row in faults(folder))[-LAST_ERRORS:] if rates else (),
        "" if ended == "finished" or pid is not None else _bench_command(label, folder),
        rates=_bench_rates(rows, events) if rates else {},
    )  # fmt: skip


def _bench_command(suite: str, folder: Path) -> str:
    return f"{shlex.join(['etude', 'bench', 'run', suite, '--out', str(folder)])}, with the other options of the first call"


def _outcomes(folder: Path) -> dict[str, list[dict[str, Any]]]:
    from etude.evaluate.report.rows.lines import json_lines

    paths = sorted((folder / "policies").glob("*.jsonl"))
    needed = {"task_id", "attempt"}
    return {path.stem: [row for row in json_lines(path) if needed <= row.keys()] for path in paths}


def _bench_rates(rows: dict[str, list[dict[str, Any]]], events: list[dict[str, Any]]) -> dict[str, Any]:
    """By policy: attempts, pass rate and tokens of its outcomes so far; steps and time left while it is at work."""
    running = stage_rates(events, dict.fromkeys(rows, 0.0))
    found = {}
    for key, outcomes in rows.items():
        blank = {"done": 0, "total": 0, "phase": "", "steps_per_minute": None, "seconds_left": None}
        values = {"attempts": len(outcomes), "tokens": sum(_number(row.get("tokens")) for row in outcomes)}
        if outcomes:
            values["pass_rate"] = sum(_number(row.get("score")) >= 1 for row in outcomes) / len(outcomes)
        row = running.get(key, blank)
        found[key] = row | {"values": values | row.get("values", {})}
    return found


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else 0


def _state(done: int, total: int, *, running: bool) -> StageState:
    if done >= total:
        return "done"
    return "running" if running else "stopped" if done else "pending"


def read_collection(folder: Path, name: str, *, rates: bool) -> RunStatus:
    """Attempts are counted from `tries.jsonl`. The folder doesn't say how many are wanted, so it never counts as finished."""
    from etude.evaluate.report.rows.lines import json_lines
    from etude.pipeline.run.lock import holder

    rows = list(json_lines(folder / "tries.jsonl"))
    kept, pid = sum(bool(row.get("kept")) for row in rows), holder(folder)
    tokens = sum(_number(row.get("output_tokens")) for row in rows)
    values = {"attempts": len(rows), "kept": kept, "output_tokens": tokens}
    row = {"done": kept, "total": 0, "phase": "", "steps_per_minute": None, "seconds_left": None, "values": values}
    return RunStatus(
        name, folder, "collection", "stopped" if pid is None else "running", f"at {kept} kept sessions" if pid is None else "", pid,
        kept, None, (StageRow("sessions", "running" if pid is not None else "stopped", done=kept),),
        resume="" if pid is not None else f"etude session collect --out {shlex.quote(str(folder))}, with the other options of the first call",
        rates={"sessions": row} if rates else {},
    )  # fmt: skip
