"""A process that bears sandboxes waits in the group of the next one: what it forks is in its group without a move, or is moved there."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator

import pytest

from etude.sandbox.limits.group import ControlGroup
from etude.sandbox.limits.groups import ControlGroups
from etude.sandbox.spec import SandboxSpec

# A parent that forks a child whenever a line comes, tells its number, and waits.
PARENT = """
import os, sys
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        import time; time.sleep(1000)
    print(pid, flush=True)
"""


class Parent:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            ["python3", "-S", "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid
        self.children: list[int] = []

    def spawn(self) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.children.append(int(self.process.stdout.readline()))
        return os.pidfd_open(self.children[-1])

    def end(self) -> None:
        for pid in self.children:
            os.kill(pid, 9)
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def groups() -> Iterator[ControlGroups]:
    found = ControlGroups.find()
    if not found.available:
        pytest.skip(found.limits)
    yield found
    found.close()


@pytest.fixture
def parent(groups: ControlGroups) -> Iterator[Parent]:
    made = Parent()
    yield made
    made.end()


def members(group: ControlGroup) -> set[int]:
    return {int(word) for folder in group.folders for word in (folder / "cgroup.procs").read_text().split()}


async def parked(groups: ControlGroups, parent: Parent) -> None:
    groups.park(parent.pid)
    while groups._spots[parent.pid].is_ready is None:
        await asyncio.sleep(0.001)


async def test_a_child_is_born_in_its_group_with_its_bounds(groups: ControlGroups, parent: Parent) -> None:
    await parked(groups, parent)
    group = groups.make(SandboxSpec(pids=8), parent.pid)
    assert parent.pid in members(group)
    pidfd = parent.spawn()
    group.enter(pidfd)
    await group.require_entered()
    os.close(pidfd)
    assert parent.children[0] in members(group)
    limits = [(folder / "pids.max").read_text() for folder in group.folders if (folder / "pids.max").exists()]
    assert limits == ["18\n"]


async def test_a_child_that_was_born_elsewhere_is_moved(groups: ControlGroups, parent: Parent) -> None:
    await parked(groups, parent)
    group = groups.make(SandboxSpec(), parent.pid)
    await parked(groups, parent)  # it has gone on to the next one before it bore this one's
    pidfd = parent.spawn()
    group.enter(pidfd)
    await group.require_entered()
    os.close(pidfd)
    assert members(group) == {parent.children[0]}


async def test_a_parent_on_its_way_is_not_waited_for(groups: ControlGroups, parent: Parent) -> None:
    groups.park(parent.pid)
    groups._spots[parent.pid]._entered = None  # as if it had not arrived
    group = groups.make(SandboxSpec(), parent.pid)
    pidfd = parent.spawn()
    group.enter(pidfd)
    await group.require_entered()
    os.close(pidfd)
    assert parent.children[0] in members(group)


async def test_a_parent_that_died_is_forgotten(groups: ControlGroups, parent: Parent) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    groups.park(gone.pid)
    while groups._spots[gone.pid].is_ready is None:
        await asyncio.sleep(0.001)
    assert groups._spots[gone.pid].is_ready is False
    group = groups.make(SandboxSpec(), gone.pid)
    assert gone.pid not in groups._spots
    pidfd = parent.spawn()
    group.enter(pidfd)
    await group.require_entered()
    os.close(pidfd)
