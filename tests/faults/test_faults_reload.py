"""Processes of a real run replaced while it goes on, and the controller killed in the middle of that."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rl_lab import check_whole, lives, steps_trained, tiny_checkpoint, until

from etude.rl.local_ray import sweep
from etude.rl.reload import REQUEST, Reload, answers, ask

STEPS = 40  # longer than it takes to start three processes
# On a busy machine an engine may take longer to start than such a run to end; it is the controller who waits.
A_SECOND_A_STEP = """
import time
from etude.rl.ledger import RlLedger

def write(ledger, kind, write=RlLedger.write, **values):
    write(ledger, kind, **values)
    time.sleep(kind == "trained")

RlLedger.write = write
"""
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    with lives(tiny_checkpoint(tmp_path), tmp_path) as begun:
        yield lambda **more: begun({"engines": 2, "steps": STEPS}, **more)
    sweep(tmp_path / "rl" / "ray.json")


def log_of(tmp_path: Path) -> str:
    path = tmp_path / "rl" / "events.jsonl"
    return path.read_text() if path.exists() else ""


def test_two_engines_and_the_trainer_are_replaced_in_mid_run(start: Callable, tmp_path: Path):
    folder = tmp_path / "rl"
    process = start()
    until(lambda: steps_trained(folder) >= 1, process)
    ask(folder, Reload(id="all", settings={"max_batch": 8}))
    assert process.wait(timeout=400) == 0, log_of(tmp_path)
    check_whole(folder, STEPS)
    (answer,) = answers(folder)
    assert answer.error == ""
    for who in ("engine 0", "engine 1", "trainer"):
        assert log_of(tmp_path).count(f"the {who} process is replaced (number 2)") == 1
    assert "process died" not in log_of(tmp_path)


def test_settings_with_which_no_engine_starts_cost_one_start_of_one_engine(start: Callable, tmp_path: Path):
    folder = tmp_path / "rl"
    process = start()
    until(lambda: steps_trained(folder) >= 1, process)
    ask(folder, Reload(id="drafts", trainer=False, settings={"draft_tokens": 2}))  # the model has no draft layers
    assert process.wait(timeout=400) == 0, log_of(tmp_path)
    check_whole(folder, STEPS)
    (answer,) = answers(folder)
    assert "the engine 0 did not come up" in answer.error
    assert "the engine 1" not in log_of(tmp_path)


def test_a_controller_killed_during_a_reload_answers_it_in_its_next_life(start: Callable, tmp_path: Path):
    folder = tmp_path / "rl"
    process = start(prelude=A_SECOND_A_STEP)
    until(lambda: steps_trained(folder) >= 1, process)
    ask(folder, Reload(id="late", settings={"max_batch": 8}))
    until(lambda: "is replaced" in log_of(tmp_path), process)
    process.kill()
    process.wait()
    assert (folder / REQUEST).exists() and not answers(folder)
    assert start().wait(timeout=400) == 0, log_of(tmp_path)
    check_whole(folder, STEPS)
    assert [(answer.id, answer.error) for answer in answers(folder)] == [("late", "")]
