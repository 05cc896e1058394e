"""From a run's files to `report.json` (promise 11: the report can be rebuilt from them at any time).

Stages write `<stage>/summary.json` when they finish; curves come from `events.jsonl`. What a run has not reached is
left out of the report rather than filled in.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from etude.core import bounded_toml
from etude.core.events.finite import read_file
from etude.evaluate.report.knowledge import knowledge, reader
from etude.evaluate.report.machinery import shares
from etude.evaluate.report.page import costs

SCHEMA = 1


class NotARun(Exception):
    """The folder holds no run to report on."""


def collect(run: Path) -> dict[str, Any]:
    """The report of the run in `run`, with whatever its finished stages wrote. Raises NotARun."""
    if not (run / "recipe.toml").is_file():
        raise NotARun(f"{run} has no recipe.toml, so it is not a run directory: give the --out of an `etude run`")
    stages = _read(run / "stages.json", {})
    worked = spans(run, stages)
    old = outdated_stages(run)
    bench = {} if "bench" in old else _read(run / "bench" / "summary.json", {})
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "recipe": bounded_toml.loads((run / "recipe.toml").read_text()),
        **_read(run / "machine.json", {"machine": {}, "versions": {}}),
        "seconds": {name: entry["seconds"] for name, entry in stages.items()},
        "wall_seconds": round(wall_seconds(stages, worked), 3),
        "core_seconds": {name: entry["core_seconds"] for name, entry in stages.items()},
        "peak_rss_bytes": peak_rss_bytes(stages, worked),
    }
    for stage in ("base", "short", "long", "sessions", "sft", "competent_sft", "rl", "attempts", "rewarded_sft"):
        summary = None if stage in old else _read(run / stage / "summary.json", None)
        if summary is not None:
            report[stage] = summary
    report |= knowledge(reader(run, old))
    if "counts" in report.get("rl", {}):
        report["rl"]["shares"] = shares(report)
    for key in ("split", "sandbox", "bench", "lift", "over_controls", "discovery", "overlap"):
        if key in bench:
            report[key] = bench[key]
    if "bench" in report:
        for policy, took in costs(run).items():
            for entry in (report["bench"].get(policy), report["bench"].get("controls", {}).get(policy)):
                if entry is not None:
                    entry["axes"] = took
    return report


def spans(run: Path, stages: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """When each finished stage worked, as (start, end): it ended when the ledger says, and began its own seconds earlier."""
    attempts = _attempts(run)
    ends = {
        e["stage"]: e["time"]
        for e in _ledger(run, "finished")
        if e["stage"] in stages and e.get("attempt") == attempts.get(e["stage"], {}).get("attempt")
    }
    return {name: (end - stages[name]["seconds"], end) for name, end in ends.items()}


def outdated_stages(run: Path) -> set[str]:
    """Stages whose output came from an attempt that has started again since: it does not match the recipe any more."""
    attempts, found = _attempts(run), set()
    while True:
        more = {
            name
            for name, entry in attempts.items()
            for source, made_from in entry.get("upstream", {}).items()
            if source in found or attempts.get(source, {}).get("attempt") != made_from
        }
        if more <= found:
            return found
        found |= more


def wall_seconds(stages: dict[str, Any], worked: dict[str, tuple[float, float]]) -> float:
    """How long somebody waited: stages side by side count once, pauses not at all. Unfinished ones count in full."""
    wall, until = 0.0, float("-inf")
    for start, end in sorted(worked.values()):
        wall += max(0.0, end - max(start, until))
        until = max(until, end)
    return wall + sum(entry["seconds"] for name, entry in stages.items() if name not in worked)


def peak_rss_bytes(stages: dict[str, Any], worked: dict[str, tuple[float, float]]) -> int:
    """An upper bound: stages side by side are taken to have peaked together."""
    peaks = {name: entry.get("peak_rss_bytes", 0) for name, entry in stages.items()}
    together = [
        sum(peaks[name] for name, (start, end) in worked.items() if start <= moment < end)
        for moment, _ in worked.values()
    ]
    return max([*peaks.values(), *together], default=0)


def metrics(run: Path) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Curves by stage and metric name: points (step, value) in order. A resumed step counts once, as last seen."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    begun = {
        stage: entry["time"] for stage, entry in _attempts(run).items()
    }  # what is older is of an attempt set aside
    path = run / "events.jsonl"
    for line in path.read_text().splitlines() if path.is_file() else []:
        event = _event(line)
        if event.get("kind") != "metric" or event.get("time", 0.0) < begun.get(event["stage"], 0.0):
            continue
        for name, value in event.get("values", {}).items():
            found.setdefault(event["stage"], {}).setdefault(name, {})[int(event["step"])] = float(value)
    return {s: {n: sorted(points.items()) for n, points in by_name.items()} for s, by_name in found.items()}


def texts(run: Path) -> list[dict[str, Any]]:
    """Documents of the corpus drawn for reading (`corpus/samples.json`): text with its provenance."""
    return reader(run, outdated_stages(run))("corpus/samples.json") or []


def _attempts(run: Path) -> dict[str, dict[str, Any]]:
    """The newest beginning of each stage, as the ledger has it."""
    return {entry["stage"]: entry for entry in _ledger(run, "started")}


def _ledger(run: Path, kind: str) -> list[dict[str, Any]]:
    path = run / "ledger.jsonl"
    entries = [_event(line) for line in path.read_text().splitlines()] if path.is_file() else []
    return [entry for entry in entries if entry.get("event") == kind]


def _event(line: str) -> dict[str, Any]:
    """One event; a line torn by a kill is no event."""
    try:
        return json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return {}


def _read(path: Path, missing: Any) -> Any:
    return read_file(path) if path.is_file() else missing
