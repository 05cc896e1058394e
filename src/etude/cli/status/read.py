"""The state of one run directory, read from its own files: recipe runs, bench runs, ablations and collections of sessions.

Promise: nothing is written, and a file that another process writes at the same time is read as far as it is whole.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

from etude.cli.status.bench_state import read_bench, read_collection
from etude.cli.status.recipe_state import read_recipe_run
from etude.cli.status.run_state import RunStatus, StageRow, StageState

WRITTEN_LATER = ("report.json", "report.html")  # a reader of a run writes these, so they say nothing about its activity


def kind_of(folder: Path) -> str:
    """What the folder is a run of: run, bench, ablation or collection; empty for a folder that is no run."""
    if any(os.path.lexists(folder / name) for name in ("recipe.toml", "ledger.jsonl")):
        return "run"
    signs = {"bench": "conditions.json", "ablation": "ablation.json", "collection": "tries.jsonl"}
    found = next((kind for kind, name in signs.items() if os.path.lexists(folder / name)), "")
    if found:
        return found
    from etude.pipeline.run.manifest import RunManifest

    return "run" if RunManifest(folder).known else ""


def read_run(folder: Path, name: str, *, rates: bool = False) -> RunStatus:
    """The state of a run directory. A file that can't be read makes it `damaged`, with the reason in `fault`."""
    readers: dict[str, Callable[..., RunStatus]] = {
        "run": read_recipe_run, "bench": read_bench, "ablation": read_ablation, "collection": read_collection,
    }  # fmt: skip
    kind = kind_of(folder)
    size, active_s = measure(folder)
    try:
        found = readers[kind](folder, name, rates=rates)
    except Exception as error:  # noqa: BLE001 - whatever a damaged file raises is the finding, and the other runs are read
        written_for_people = isinstance(error, ValueError | OSError) or type(error).__module__.startswith("etude.")
        fault = str(error) if written_for_people else f"{type(error).__name__}: {error}"
        found = RunStatus(name, folder, kind, "damaged", fault=fault)
    return RunStatus(**{**vars(found), "bytes": size, "active_s": active_s})


def measure(folder: Path) -> tuple[int, float]:
    """Bytes below a folder, and when the newest of its files was written. A file that vanishes meanwhile has none."""
    from etude.pipeline.run.manifest import files_below

    size, newest = 0, 0.0
    for path in files_below(folder):
        try:
            status = os.lstat(folder / path)
        except FileNotFoundError:
            continue
        size += status.st_size
        if path not in WRITTEN_LATER:
            newest = max(newest, status.st_mtime)
    return size, newest or folder.stat().st_mtime


def read_ablation(folder: Path, name: str, *, rates: bool) -> RunStatus:
    """A cell is a stage. The ablation runs while one of its cells does."""
    from etude.core.events.finite import read_file

    found = read_file(folder / "ablation.json")
    cells = [cell for place in sorted(folder.glob("seed-*")) for cell in sorted(place.iterdir()) if cell.is_dir()]
    states = [read_run(cell, f"{cell.parent.name}/{cell.name}", rates=False) for cell in cells]
    points = {f"seed-{point['seed']}/{point['budget']}" for point in found["points"]}
    at_work = [state for state in states if state.state == "running"]
    done, total = len(points), int(found["cells"])
    stages = tuple(StageRow(state.name, _cell_state(state, points)) for state in states)
    ended = "finished" if done >= total else "stopped"
    return RunStatus(
        name, folder, "ablation", "running" if at_work else ended, "" if at_work or ended == "finished" else f"at {done} of {total} cells",
        at_work[0].pid if at_work else None, done, total, stages, tuple(_errors(states)) if rates else (),
        "" if at_work or ended == "finished" else shlex.join(["etude", "ablate", str(found["name"]), "--out", str(folder)]),
    )  # fmt: skip


def _cell_state(state: RunStatus, points: set[str]) -> StageState:
    if state.state == "running":
        return "running"
    return "failed" if state.state in ("failed", "damaged") else "done" if state.name in points else "stopped"


def _errors(states: Iterable[RunStatus]) -> list[str]:
    return [f"{state.name}: {state.fault or state.words}" for state in states if state.state in ("failed", "damaged")]
