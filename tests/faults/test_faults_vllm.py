"""The rl stage on vLLM (docs/vllm.md), whose processes are killed in the middle: every group is trained once (promises 6, 8). Needs
ETUDE_VLLM_PYTHON."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from rl_lab import check_whole, lives, steps_trained, until

from etude.learn.engine.vllm.found import VARIABLE
from etude.rl.local_ray import _descendants, sweep
from etude.rl.steps import read
from etude.rl.store import GroupStore

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

CHECKPOINT = Path(__file__).parents[2] / "checkpoints" / "sft-nano"


def vllm_below(pid: int) -> dict[int, str]:
    """Of vLLM, among the descendants of a process: command lines by id."""
    found = {}
    for one in _descendants(pid):
        try:
            words = Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if "etude_vllm_serve.py" in words or words.startswith("VLLM::"):
            found[one] = words
    return found


def left_of(seen: dict[int, str]) -> list[int]:
    """Processes that are still there."""
    places = {pid: Path(f"/proc/{pid}/cmdline") for pid in seen}
    return [pid for pid, place in places.items() if place.exists() and place.read_bytes()]


def test_a_run_whose_vllm_is_killed_twice_trains_every_group_once_and_leaves_nothing(tmp_path):
    python = os.environ.get(VARIABLE) or pytest.skip(f"{VARIABLE} names no Python that has vLLM (docs/vllm.md)")
    folder = tmp_path / "rl"
    seen: dict[int, str] = {}
    with lives(CHECKPOINT, tmp_path) as begun:
        process = begun({}, engine={"kind": "vllm", "vllm": {"python": python}})
        for steps, title in ((1, "etude_vllm_serve.py"), (3, "VLLM::Worker")):
            until(lambda n=steps: steps_trained(folder) >= n, process)
            until(lambda t=title: any(t in words for words in vllm_below(process.pid).values()), process)
            running = vllm_below(process.pid)
            seen |= running
            os.kill(next(pid for pid, words in running.items() if title in words), signal.SIGKILL)
        assert process.wait(timeout=600) == 0, (tmp_path / "driver-0.log").read_text()[-3000:]
    sweep(folder / "ray.json")
    check_whole(folder)
    assert json.loads((folder / "summary.json").read_text())["times"]["restarts"] == 2
    assert "killed by signal 9" in (folder / "events.jsonl").read_text()
    assert all(record.values["replayed_routes"] > 0 for record in read(folder / "steps.jsonl"))
    store = GroupStore(folder / "groups")
    rollouts = [rollout for group in store.groups() for rollout in store.load(group)]
    assert rollouts and all(segment.routes is not None for rollout in rollouts for segment in rollout.segments)
    assert not left_of(seen)


def test_two_replicas_sample_and_one_that_is_killed_comes_back(tmp_path):
    python = os.environ.get(VARIABLE) or pytest.skip(f"{VARIABLE} names no Python that has vLLM (docs/vllm.md)")
    folder = tmp_path / "rl"
    with lives(CHECKPOINT, tmp_path) as begun:
        process = begun({"engines": 2}, engine={"kind": "vllm", "vllm": {"python": python}})
        until(lambda: steps_trained(folder) >= 1, process)
        seen = vllm_below(process.pid)
        programs = [pid for pid, words in seen.items() if "etude_vllm_serve.py" in words]
        assert len(programs) == 2
        os.kill(programs[1], signal.SIGKILL)
        assert process.wait(timeout=600) == 0, (tmp_path / "driver-0.log").read_text()[-3000:]
    sweep(folder / "ray.json")
    check_whole(folder)
    assert json.loads((folder / "summary.json").read_text())["times"]["restarts"] == 1
    assert len(list((folder / "vllm").glob("*/logs/*"))) == 3  # two engines, and the one that came back
    assert not left_of(seen)
