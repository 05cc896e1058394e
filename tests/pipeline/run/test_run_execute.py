"""A run on disk: kill -9 anywhere and it goes on, one run per directory, and what a stage cost is known."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from etude.core.events.read import read_events
from etude.pipeline.run.execute import FAILED
from etude.pipeline.run.lock import RunLock, holder
from etude.pipeline.run.meter import Meter, StageCost, tree_usage

BODIES = '''
import os, signal, sys, time
from pathlib import Path
from etude.core.events.log import EventLog
from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.run.execute import Run
from etude.pipeline.run.stage import Stage

KILL = os.environ.get("KILL", "")

def body(context):
    """Ten counted steps, each on disk before the next; dies where it is asked to."""
    progress = context.folder / "steps"
    done = progress.read_text().split() if progress.exists() else []
    for step in range(len(done), 10):
        if KILL == f"{context.stage}-{step}":  # the run itself: this process must follow it at once
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(10)
        if os.environ.get("HOLD") == f"{context.stage}-{step}":  # until it is interrupted
            time.sleep(60)
        if os.environ.get("FAIL") == f"{context.stage}-{step}":
            while (after := os.environ.get("AFTER")) and not (context.run / after).is_file():
                time.sleep(0.01)
            raise RuntimeError("the disk went away")
        if os.environ.get("DIE") == f"{context.stage}-{step}":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(float(os.environ.get("PAUSE", "0")))
        with progress.open("a") as file:
            file.write(f"{step}\\n")
    (context.run / "bodies").open("a").write(context.stage + "\\n")
    context.summarize({"steps": 10})

def graph():
    me = "bodies:body"
    return (Stage("base", (), ("pretrain",), me, ""), Stage("sft", ("base",), ("sft",), me, "", share=0.5),
            Stage("twin", ("base",), ("sft",), me, "", share=0.5), Stage("report", ("sft",), (), me, "", always=True))

if __name__ == "__main__":
    sys.modules["bodies"] = sys.modules["__main__"]
    run = Run(read_recipe([], sys.argv[2:]), Path(sys.argv[1]), graph())
    for step in run.execute(os.environ.get("STAGES", "base sft report").split(), view=False):
        print(step.stage, step.action, step.why)
'''


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "bodies.py"
    path.write_text(BODIES)
    return path


def launch(program: Path, run: Path, *overrides: str, **result: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(program), str(run), *overrides],
        env=os.environ | result,
        capture_output=True,
        text=True,
    )


def test_killed_in_every_stage_it_goes_on_and_no_step_is_done_twice(program: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for kill in ("base-0", "base-7", "sft-3", "report-9"):
        assert launch(program, run, KILL=kill).returncode == -signal.SIGKILL
    done = launch(program, run)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "base skip done"
    for stage in ("base", "sft", "report"):
        assert (run / stage / "steps").read_text().split() == [str(i) for i in range(10)]
    assert (run / "bodies").read_text().split() == ["base", "sft", "report"]


def test_a_changed_setting_starts_its_stage_from_an_empty_folder_and_keeps_the_old_one_aside(
    program: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert launch(program, run).returncode == 0
    (run / "sft" / "old").touch()
    done = launch(program, run, "sft.seed=9")
    assert done.stdout.splitlines() == [
        "base skip done",
        "sft run sft.seed was 0, is 9",
        "report run sft is made again",
    ]
    assert not (run / "sft" / "old").exists() and (run / "sft.previous" / "old").exists()
    assert tomllib.loads((run / "recipe.toml").read_text())["sft"]["seed"] == 9


def test_a_run_records_recipe_machine_versions_and_costs(program: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert launch(program, run).returncode == 0
    facts = json.loads((run / "machine.json").read_text())
    assert facts["machine"]["cores"] >= 1 and facts["versions"]["torch"]
    costs = json.loads((run / "stages.json").read_text())
    assert set(costs) == {"base", "sft", "report"}
    assert all(
        set(c) == {"seconds", "core_seconds", "peak_rss_bytes"} and c["peak_rss_bytes"] > 0 for c in costs.values()
    )


def test_a_second_run_in_the_same_directory_learns_who_holds_it(program: Path, tmp_path: Path) -> None:
    with RunLock(tmp_path / "run"):
        done = launch(program, tmp_path / "run")
    assert done.returncode == 1 and f"in use by process {os.getpid()}" in done.stderr
    assert launch(program, tmp_path / "run").returncode == 0


def test_a_lock_left_by_a_killed_run_locks_nothing(tmp_path: Path) -> None:
    code = f"""
import os, time, pathlib
from etude.pipeline.run.lock import RunLock
with RunLock(pathlib.Path({str(tmp_path)!r})):
    if os.fork() == 0:
        time.sleep(30)  # a child that outlives the run must not hold its directory
        os._exit(0)
    print("held", flush=True)
    time.sleep(30)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    assert holder(tmp_path) == process.pid
    process.kill()
    process.wait()
    try:
        assert holder(tmp_path) is None
    finally:
        os.killpg(process.pid, signal.SIGKILL)


def test_a_failing_stage_is_reported_with_its_place_and_retried_in_place(program: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    failed = launch(program, run, FAIL="sft-4")
    assert failed.returncode == 1 and "RuntimeError: the disk went away" in failed.stderr
    assert "bodies.py" in failed.stderr  # the line of the stage's own code
    done = launch(program, run)
    assert done.stdout.splitlines()[:2] == ["base skip done", "sft resume was interrupted, goes on"]
    assert (run / "sft" / "steps").read_text().split() == [str(i) for i in range(10)]


def test_a_stage_whose_process_is_killed_names_stage_signal_and_remedy(program: Path, tmp_path: Path) -> None:
    failed = launch(program, tmp_path / "run", DIE="base-3")
    assert "stage base: its process was killed by SIGKILL; perhaps memory ran out" in failed.stderr
    assert launch(program, tmp_path / "run").returncode == 0


def test_stages_that_do_not_need_each_other_run_at_the_same_time(program: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert launch(program, run, STAGES="base sft twin", PAUSE="0.1").returncode == 0
    result = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    order = [(entry["event"], entry["stage"]) for entry in result]
    assert order[:2] == [("started", "base"), ("finished", "base")]
    assert set(order[2:4]) == {("started", "sft"), ("started", "twin")}


@pytest.mark.nightly
def test_when_one_of_two_fails_the_other_is_stopped_and_goes_on_next_time(program: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    # Which of the two is further is not promised: sft fails once twin has begun, and twin doesn't end by itself.
    failed = launch(program, run, STAGES="base sft twin", FAIL="sft-2", AFTER="twin/steps", HOLD="twin-5")
    assert failed.returncode == 1 and "the disk went away" in failed.stderr
    notes = [event for event in read_events(run / "events.jsonl") if event.get("text", "").startswith(FAILED)]
    assert [(note["stage"], note["text"], note["ends"]) for note in notes] == [
        ("sft", f"{FAILED}the disk went away", True)
    ]
    assert 0 < len((run / "twin" / "steps").read_text().split()) <= 5
    assert launch(program, run, STAGES="base sft twin").returncode == 0
    assert (run / "twin" / "steps").read_text().split() == [str(i) for i in range(10)]


def test_an_interrupt_reaches_the_stages_and_the_run_goes_on_afterwards(program: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, str(program), str(run)],
        env=os.environ | {"PAUSE": "0.2"},
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a test run in the background inherits it ignored
    )
    steps = run / "base" / "steps"
    while not steps.is_file():
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    seen = steps.read_text().split()
    time.sleep(0.5)
    assert steps.read_text().split() == seen and len(seen) < 10  # no one works on
    assert launch(program, run).returncode == 0


def test_the_meter_counts_work_of_children_waited_for_or_alive() -> None:
    burn = "import time\nwhile time.process_time() < {}: pass\n"
    saved: list[StageCost] = []
    with Meter(saved.append) as meter:
        subprocess.run([sys.executable, "-c", burn.format(0.4)], check=True)
        alive = subprocess.Popen(
            [sys.executable, "-c", burn.format(0.4) + "print(1, flush=True); time.sleep(60)"], stdout=-1
        )
        assert alive.stdout is not None
        alive.stdout.readline()
        meter._sample()
        during = meter.cost.core_seconds
        alive.kill()
        alive.wait()
    assert during >= 0.75
    assert saved[-1].core_seconds >= during - 0.05
    assert saved[-1].seconds >= 0.4 and saved[-1].peak_rss_bytes > tree_usage(os.getpid())[1] / 2


def test_costs_of_a_resumed_stage_add_up() -> None:
    assert StageCost(1, 2, 3) + StageCost(10, 20, 1) == StageCost(11, 22, 3)
