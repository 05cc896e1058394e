"""`etude runs` and `etude status` read run directories of every kind and in every state, and change nothing in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from here import Here, document

from etude.cli.status import show as status_verb
from etude.cli.status.listing import read_runs
from etude.cli.status.read import read_run
from etude.core.events.log import EventLog
from etude.core.events.read import recent_events
from etude.pipeline.run.ledger import StageLedger
from etude.pipeline.run.lock import RunLock
from etude.pipeline.run.manifest import RunManifest

WITHOUT = ["short", "mtp", "competent_sft", "attempts", "rewarded_sft", "probes"]
STAGES = ["corpus", "base", "long", "sessions", "sft", "rl", "trials", "bench", "report"]


def recipe_run(folder: Path, done: int, then: str = "") -> Path:
    """A run of nine stages of which the first `done` are finished and the next one was begun."""
    RunManifest(folder).begin()
    (folder / "recipe.toml").write_text(f"[run]\nname = 'mine'\nwithout = {json.dumps(WITHOUT)}\n")
    ledger, log = StageLedger(folder / "ledger.jsonl"), EventLog(folder / "events.jsonl")
    for stage in STAGES[:done]:
        ledger.start(stage, {}, {})
        log.note(stage, "done in 2 s", ends=True)
        ledger.finish(stage)
    if then:
        ledger.start(then, {}, {})
    (folder / "stages.json").write_text(json.dumps({s: {"seconds": 2.5, "core_seconds": 4.0} for s in STAGES[:done]}))
    log.close()
    return folder


def bench_run(folder: Path, outcomes: int) -> Path:
    shared = {"suite": {"name": "ours"}, "tasks": ["a", "b"], "report": {}}
    (folder / "policies").mkdir(parents=True)
    (folder / "conditions.json").write_text(
        json.dumps({"schema": 1, "shared": shared, "policies": {"nop@medium": {"passes": 2}}})
    )
    rows = [{"task_id": "ab"[n % 2], "attempt": n // 2, "score": n % 2, "tokens": 10} for n in range(outcomes)]
    (folder / "policies" / "nop@medium.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "faults.jsonl").write_text(
        '{"policy": "nop@medium", "task": "a", "attempt": 1, "message": "no sandbox"}\n'
    )
    return folder


def age(folder: Path, seconds: float) -> None:
    """Make a run look as if it had written nothing for so long."""
    then = time.time() - seconds
    for place, _, names in os.walk(folder):
        for name in (".", *names):
            os.utime(Path(place, name), (then, then))


def contents(folder: Path) -> dict[str, Any]:
    return {str(path): (path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in folder.rglob("*")}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    recipe_run(folder / "whole", len(STAGES))
    recipe_run(folder / "halfway", 5, "rl")
    failed = recipe_run(folder / "failed", 4, "sft")
    with (failed / "events.jsonl").open("a") as log:
        event = {"time": time.time() + 1, "kind": "note", "stage": "sft", "text": "failed: no memory", "ends": True}
        log.write(json.dumps(event) + "\n")
    bench_run(folder / "bench" / "ours", 3)
    (folder / "broken").mkdir()
    (folder / "broken" / "conditions.json").write_text("{")
    (folder / "notes").mkdir()
    (folder / "notes" / "todo.txt").write_text("no run")
    for number, name in enumerate(("halfway", "failed", "bench", "broken", "whole")):
        age(folder / name, 60 * number)
    return folder


def test_every_run_is_listed_newest_first_and_nothing_is_changed(here: Here, runs: Path) -> None:
    before = contents(runs)
    rows = document(here("runs", "--json"))["runs"]
    assert [(row["name"], row["kind"], row["state"], row["where"]) for row in rows] == [
        ("halfway", "run", "stopped", "at rl"),
        ("failed", "run", "failed", "at sft"),
        ("bench/ours", "bench", "stopped", "at 3 of 4 attempts"),
        ("broken", "bench", "damaged", ""),
        ("whole", "run", "finished", ""),
    ]
    assert [(row["done"], row["total"]) for row in rows] == [(5, 9), (4, 9), (3, 4), (None, None), (9, 9)]
    assert rows[4]["bytes"] == sum(path.stat().st_size for path in (runs / "whole").rglob("*") if path.is_file())
    text = here("runs").stdout
    assert "stopped at rl" in text and "5/9" in text and "broken: runs/broken/conditions.json is no JSON" in text
    assert contents(runs) == before


def test_a_run_in_progress_names_its_process_and_its_rates(here: Here, runs: Path) -> None:
    run = runs / "halfway"
    log, begun = EventLog(run / "events.jsonl", clock=iter([t + time.time() for t in range(1, 99)]).__next__), 3
    for step in range(begun):
        log.metric("rl", step, pass_rate=0.25 * step, rollouts=8, sampled_tokens=100, unwatched=1)
        log.progress("rl", step + 1, 10)
    log.close()
    holding = "import sys; from pathlib import Path; from etude.pipeline.run.lock import RunLock\n"
    holding += "with RunLock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holding, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        found = document(here("status", "halfway", "--json"))
        assert f"running (pid {other.pid})" in here("runs").stdout
        other.communicate("")
    assert (found["state"], found["pid"], found["resume"]) == ("running", other.pid, "")
    assert {s["name"]: s["state"] for s in found["stages"]}["rl"] == "running"
    rate = found["rates"]["rl"]
    assert (rate["done"], rate["total"]) == (3, 10) and rate["attempts_per_hour"] > 0 and rate["tokens_per_hour"] > 0
    assert rate["values"] == {"pass_rate": 0.5, "rollouts": 8, "sampled_tokens": 100}


def test_status_of_a_failed_run_has_its_stages_its_errors_and_the_command_that_resumes_it(
    here: Here, runs: Path
) -> None:
    said = here("status", "runs/failed").stdout
    assert "sft: no memory" in said and said.endswith("resume: etude run --out runs/failed\n")
    found = document(here("status", "failed", "--json"))
    assert [stage["state"] for stage in found["stages"]] == ["done"] * 4 + ["failed"] + ["pending"] * 4
    assert found["stages"][0]["seconds"] == 2.5 and found["stages"][0]["ended_s"] >= found["stages"][0]["started_s"]


def test_a_stage_that_goes_on_after_a_failure_is_no_longer_failed(here: Here, runs: Path) -> None:
    with (runs / "failed" / "events.jsonl").open("a") as log:
        log.write(json.dumps({"time": time.time() + 2, "kind": "phase", "stage": "sft", "text": "starts"}) + "\n")
    assert document(here("status", "failed", "--json"))["state"] == "stopped"


def test_status_of_a_bench_run_counts_attempts_tokens_and_faults(here: Here, runs: Path) -> None:
    found = document(here("status", "bench/ours", "--json"))
    assert found["rates"]["nop@medium"]["values"] == {"attempts": 3, "tokens": 30, "pass_rate": pytest.approx(1 / 3)}
    assert found["errors"] == ["nop@medium: no sandbox"] and "etude bench run ours --out" in found["resume"]


def test_status_without_a_name_is_that_of_the_newest_run(here: Here, runs: Path) -> None:
    assert document(here("status", "--json"))["name"] == "halfway"


def test_a_damaged_run_is_reported_and_is_an_error_of_status(here: Here, runs: Path) -> None:
    done = here("status", "broken")
    assert done.returncode == 1 and "damaged" in done.stdout and "conditions.json is no JSON" in done.stdout


DAMAGE = [b"", b"{", b"\xff\xfe", b"[]\n", b'{"event": "started", "stage": 3}\n', b"[[" * 9000, b'{"rl": 1}']


@pytest.mark.parametrize(
    "name", ["ledger.jsonl", "recipe.toml", "stages.json", "events.jsonl", "manifest.jsonl", "lock"]
)
def test_any_damage_of_a_run_leaves_the_list_of_runs_readable(name: str, runs: Path) -> None:
    for damage in DAMAGE:
        (runs / "halfway" / name).write_bytes(damage)
        found = {state.name: state for state in read_runs(runs)}
        assert set(found) == {"halfway", "failed", "bench/ours", "broken", "whole"}
        state = read_run(runs / "halfway", "halfway", rates=True)
        assert bool(state.fault) is (state.state == "damaged") and status_verb.text(state)


def test_an_ablation_and_its_cells_and_a_collection_are_runs(here: Here, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "ablations" / "cpt"
    recipe_run(folder / "seed-0" / "64", 5)
    (folder / "ablation.json").write_text(
        json.dumps({"name": "cpt", "cells": 4, "points": [{"seed": 0, "budget": 64}]})
    )
    (tmp_path / "runs" / "taught").mkdir()
    (tmp_path / "runs" / "taught" / "tries.jsonl").write_text('{"kept": true, "output_tokens": 7}\n{"kept": false}\n')
    rows = {row["name"]: row for row in document(here("runs", "--json"))["runs"]}
    assert {name: row["kind"] for name, row in rows.items()} == {
        "ablations/cpt": "ablation", "ablations/cpt/seed-0/64": "run", "taught": "collection",
    }  # fmt: skip
    assert (rows["ablations/cpt"]["done"], rows["ablations/cpt"]["total"], rows["taught"]["done"]) == (1, 4, 1)


def test_a_run_of_the_rl_stage_alone_is_finished_when_that_stage_is(here: Here, tmp_path: Path) -> None:
    run = recipe_run(tmp_path / "runs" / "mine", 0, "rl")
    assert "rl, stopped at rl" in here("status").stdout and "resume: etude rl --out runs/mine" in here("status").stdout
    StageLedger(run / "ledger.jsonl").finish("rl")
    assert document(here("status", "--json"))["state"] == "finished"


def test_watching_ends_with_the_run(here: Here, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter(["running", "running", "finished"])
    read, later_s = (
        status_verb.read_run,
        time.time() + 3600,
    )  # "active 0 s ago" at every reading, however slow the machine is
    monkeypatch.setattr(status_verb, "REFRESH_S", 0.0)
    monkeypatch.setattr(
        status_verb, "read_run", lambda *a, **k: replace(read(*a, **k), state=next(states), active_s=later_s)
    )
    done = here("status", "whole", "--watch")
    assert done.returncode == 0 and done.stdout.count("runs/whole  run, running") == 1
    assert "runs/whole  run, finished" in done.stdout and next(states, None) is None


@pytest.mark.parametrize("words", [["runs"], ["runs", "absent"], ["status"], ["status", "absent"]])
def test_where_there_is_no_run_the_error_says_how_to_start_or_find_one(words: list[str], here: Here) -> None:
    done = here(*words)
    assert done.returncode == 1 and "etude run" in done.stderr and "Traceback" not in done.stderr


def test_recent_events_are_the_whole_ones_at_the_end_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    lines = [json.dumps({"time": n, "kind": "note", "stage": "rl"}) + "\n" for n in range(100)]
    path.write_text("".join(lines) + '{"torn')
    assert [event["time"] for event in recent_events(path, 1 << 20)] == list(range(100))
    assert [event["time"] for event in recent_events(path, len(lines[-1]) * 3 + 6)] == [98, 99]
    assert recent_events(tmp_path / "absent", 9) == []


@pytest.mark.parametrize("words", [["runs"], ["status", "halfway"]])
def test_the_command_imports_neither_torch_nor_ray(words: list[str], runs: Path) -> None:
    code = "import sys; from etude.cli.main import app; app(sys.argv[1:], standalone_mode=False)\n"
    code += "print([name for name in ('torch', 'ray') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=runs.parent, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_a_lock_held_by_this_process_is_no_concern_of_a_reader(here: Here, runs: Path) -> None:
    with RunLock(runs / "halfway"):
        thread = threading.Thread(target=here, args=("runs",))
        thread.start()
        thread.join()
        assert (runs / "halfway" / "lock").read_text() == f"{os.getpid()}\n"
