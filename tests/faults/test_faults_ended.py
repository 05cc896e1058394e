"""A run killed while rollouts are grading makes those gradings in its next life, from the files that it kept (promises 6, 8)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rl_lab import GROUPS, SETTINGS, STEPS, check_whole, lives, steps_trained, tiny_checkpoint, until

from etude.core.trace.segment import Rollout
from etude.rl.local_ray import sweep
from etude.rl.store import GroupStore

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

# Graders wait while the file `wait` lies next to the run, and who begins an agent or gives a verdict is written down.
PRELUDE = """
import asyncio, os, sys
from pathlib import Path
from etude.rollout import attempt as attempting
from etude.tasks import registry

side = Path(sys.argv[2]).parent  # the driver has a `folder`
real, graders = attempting._run_agent, dict(registry.GRADERS)

def tell(file, text):
    with open(side / file, "ab", buffering=0) as out:
        out.write(text.encode() + b"\\n")

async def begun(task, setup, policy, sandbox, name, *rest):
    tell("agents", name)
    return await real(task, setup, policy, sandbox, name, *rest)

class Slow:
    async def grade(self, task, files, pool):
        while (side / "wait").exists():
            await asyncio.sleep(0.02)
        verdict = await graders[task.grader].grade(task, files, pool)
        tell("verdicts", f"{task.id} {verdict.score}")
        return verdict

attempting._run_agent = begun
registry.GRADERS.update({name: Slow() for name in graders})
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    with lives(tiny_checkpoint(tmp_path), tmp_path) as begun:
        yield lambda: begun({}, prelude=PRELUDE)
    sweep(tmp_path / "rl" / "ray.json")


def agents(neighbour: Path) -> list[str]:
    path = neighbour / "agents"
    return path.read_text().split("\n")[:-1] if path.exists() else []


def rollouts(folder: Path) -> list[Rollout]:
    store = GroupStore(folder / "groups")
    return [rollout for group in store.groups() for rollout in store.load(group)]


def test_rollouts_that_were_grading_at_a_sigkill_are_graded_and_no_agent_is_asked_again(
    start: Callable, tmp_path: Path
):
    folder, ended = tmp_path / "rl", tmp_path / "rl" / "groups" / "ended"
    process = start()
    until(lambda: steps_trained(folder) >= 1, process)
    (tmp_path / "wait").touch()
    until(lambda: len(list(ended.glob("*.zst"))) == SETTINGS["slots"], process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    held = GroupStore(folder / "groups").unfinished_groups()
    grading = {(group, member) for group, one in held.items() for member in one.ended}
    assert (
        len(grading) >= SETTINGS["slots"] - 1
    )  # one may have been killed between its rollout and the removal of its file
    before = len(agents(tmp_path))
    assert before >= len(grading)
    (tmp_path / "wait").unlink()
    assert start().wait(timeout=400) == 0
    check_whole(folder)
    places = [tuple(map(int, name.rpartition("#")[2].split("."))) for name in agents(tmp_path)[before:]]
    assert not grading & set(places), "an agent was asked again for a rollout that had ended"
    found = rollouts(folder)
    assert len(found) == STEPS * GROUPS * SETTINGS["group_size"]
    handed = [one for one in found if one.info.get("handed_over")]
    assert len(handed) == len(grading)
    assert json.loads((folder / "summary.json").read_text())["counts"]["handed_over"] == len(grading)
    verdicts = set((tmp_path / "verdicts").read_text().split("\n"))
    assert all(f"{one.task_id} {one.rewards['outcome']}" in verdicts for one in handed)
    assert not list(ended.iterdir())
