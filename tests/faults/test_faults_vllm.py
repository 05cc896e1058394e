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
    result = (folder / "events.jsonl").read_text()
    assert "router replay is off" in result and "killed by signal 9" in result
    assert all(not record.values["replayed_routes"] for record in read(folder / "steps.jsonl"))
    store = GroupStore(folder / "groups")
    rollouts = [rollout for group in store.groups() for rollout in store.load(group)]
    assert rollouts and all(segment.routes is None for rollout in rollouts for segment in rollout.segments)
    assert not [
        pid for pid in seen if Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
