"""The state of a recipe run: stages from its ledger, rates and errors from its event log."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.cli.status.rates import stage_rates
from etude.cli.status.run_state import RECENT_BYTES, RunStatus, StageRow, StageState, count_states

if TYPE_CHECKING:
    from etude.pipeline.run.ledger import StageAttempt, StageLedger

LAST_ERRORS = 5


def read_recipe_run(folder: Path, name: str, *, rates: bool) -> RunStatus:
    """Raises what a damaged ledger or recipe raises."""
    from etude.core.events.read import recent_events
    from etude.pipeline.run.ledger import StageLedger
    from etude.pipeline.run.lock import holder
    from etude.pipeline.run.manifest import is_run_directory

    if not is_run_directory(folder):
        raise ValueError(f"{folder} has a run's files, but no ledger of stages and no manifest that a run wrote")
    ledger = StageLedger(folder / "ledger.jsonl")
    pid = holder(folder)
    events = recent_events(folder / "events.jsonl", RECENT_BYTES)
    failures = _failures(events)
    stages = _stages(folder, ledger, running=pid is not None, failures=failures)
    state, where = _state(stages, pid)
    done, total = count_states(stages)
    only_rl = {stage.name for stage in stages if stage.state != "pending"} <= {"rl"} and ledger.latest("rl") is not None
    return RunStatus(
        name, folder, "rl" if only_rl else "run", state, where, pid, done, total, stages,
        _errors(folder, failures) if rates else (),
        "" if state in ("finished", "running") else shlex.join(["etude", "rl" if only_rl else "run", "--out", str(folder)]),
        rates=stage_rates(events, {s.name: s.started_s or 0.0 for s in stages if s.state != "pending"}) if rates else {},
    )  # fmt: skip


def _stages(
    folder: Path, ledger: StageLedger, *, running: bool, failures: dict[str, tuple[float, str]]
) -> tuple[StageRow, ...]:
    """Every stage of the recipe's graph, and those of an earlier release that the ledger names."""
    from etude.core.events.finite import read_file

    costs_file = folder / "stages.json"
    costs = read_file(costs_file) if costs_file.is_file() else {}
    names = [*dict.fromkeys([*graph_names(folder), *ledger.attempts])]
    rows = []
    for stage in names:
        attempt, cost = ledger.latest(stage), costs.get(stage, {})
        rows.append(
            StageRow(
                stage, _stage_state(attempt, running=running, failed=stage in failures and failed_since(attempt, failures[stage][0])),
                attempt.started_s if attempt else None, attempt.ended_s if attempt else None,
                cost.get("seconds"), cost.get("core_seconds"),
            )
        )  # fmt: skip
    return tuple(rows)


def graph_names(folder: Path) -> list[str]:
    """The stages of the run's own recipe in running order; of the whole graph where the directory has no recipe."""
    from etude.core import bounded_toml
    from etude.pipeline.run.graph import GRAPH, names

    path = folder / "recipe.toml"
    recipe: dict[str, Any] = bounded_toml.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    without = recipe.get("run", {}).get("without", [])
    return [stage for stage in names(GRAPH) if stage not in without]


def failed_since(attempt: StageAttempt | None, time_s: float) -> bool:
    """Whether a failure belongs to this attempt at a stage."""
    return attempt is not None and time_s >= (attempt.started_s or 0.0)


def _stage_state(attempt: StageAttempt | None, *, running: bool, failed: bool) -> StageState:
    if attempt is None:
        return "pending"
    if attempt.finished:
        return "done"
    return "failed" if failed else "running" if running else "stopped"


def _state(stages: tuple[StageRow, ...], pid: int | None) -> tuple[str, str]:
    """The run's state, and the stage that it is about."""
    if pid is not None:
        return "running", ""
    for state in ("failed", "stopped"):
        names = [stage.name for stage in stages if stage.state == state]
        if names:
            return state, f"at {', '.join(names)}"
    done = [stage.name for stage in stages if stage.state == "done"]
    if done and (len(done) == len(stages) or set(done) <= {"rl"}):
        return "finished", ""
    return "stopped", f"after {done[-1]}" if done else "before its first stage"


def _failures(events: list[dict[str, Any]]) -> dict[str, tuple[float, str]]:
    """By stage the time and the words of its last failure. A stage that goes on afterwards has none."""
    from etude.pipeline.run.execute import FAILED

    found: dict[str, tuple[float, str]] = {}
    for event in events:
        text = str(event.get("text", ""))
        if event["kind"] == "note" and event.get("ends") and text.startswith(FAILED):
            found[event["stage"]] = (event["time"], text.removeprefix(FAILED))
        elif event["kind"] in ("phase", "progress"):
            found.pop(event["stage"], None)
    return found


def _errors(folder: Path, failures: dict[str, tuple[float, str]]) -> tuple[str, ...]:
    """The last failures of stages, after the last attempts that could not be made."""
    from etude.evaluate.report.rows.faults import faults

    lost = [f"rl: {row['reason']}" for row in faults(folder)]
    failed = [f"{stage}: {words}" for stage, (_, words) in failures.items()]
    return tuple([*lost, *failed][-LAST_ERRORS:])
