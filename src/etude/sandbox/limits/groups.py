"""The ladder of limits: control groups of version 2 where some are handed to us, else of version 1, else rlimits and the runner's watch.

The first step that works is taken, and named. The watch goes on at every step, because the kernel's bound also counts files in memory.
"""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from etude.sandbox.errors import Unsupported
from etude.sandbox.limits import kernel, owner
from etude.sandbox.limits.group import ControlGroup
from etude.sandbox.limits.hierarchy import Hierarchy, mounted_hierarchies
from etude.sandbox.limits.steps import GroupFolder, GroupV1, GroupV2, GroupVersion
from etude.sandbox.spec import SandboxSpec

_END_S = 2.0  # at the pool's end every process is dead already


class ControlGroups:
    """`limits` is the text for a report; `reason` says why there are no groups."""

    def __init__(self, step: GroupVersion | None, reason: str = "") -> None:
        self._step, self.reason = step, reason
        self._numbers = itertools.count(1)
        self._turns = ThreadPoolExecutor(1, "etude-groups")  # its thread starts with the first group
        self._groups: set[ControlGroup] = set()
        self._spots: dict[int, ControlGroup] = {}  # by the process that waits there

    @property
    def available(self) -> bool:
        return self._step is not None

    @property
    def pools(self) -> tuple[Path, ...]:
        """Our own folders, to be written down in a ledger."""
        return () if self._step is None else self._step.pools

    @property
    def cpus(self) -> bool:
        return self._step is not None and self._step.cpus

    @property
    def limits(self) -> str:
        return f"rlimits+watch (no cgroup: {self.reason})" if self._step is None else f"{self._step.name}+rlimits+watch"

    @classmethod
    def find(cls, hierarchies: list[Hierarchy] | None = None) -> ControlGroups:
        """Never raises: what can't be had is a reason. Removes what pools of dead processes left next to ours."""
        found = mounted_hierarchies() if hierarchies is None else hierarchies
        unified, legacy = [one for one in found if one.version == 2], [one for one in found if one.version == 1]
        reasons = [] if found else ["none is mounted"]
        for one in unified:
            try:
                return cls(_swept(GroupV2(one)))
            except OSError as error:
                reasons.append(error.strerror or str(error))
        if legacy:
            try:
                return cls(_swept(GroupV1(legacy)), "; ".join(reasons))
            except OSError as error:
                reasons.append(f"v1: {error.strerror or error}")
        return cls(None, "; ".join(dict.fromkeys(reasons)))

    def require(self, spec: SandboxSpec) -> None:
        """Raises Unsupported for what only a control group can bound."""
        if spec.cpus is not None and not self.cpus:
            why = f"found: {self.limits}" if self._step is None else f"{self._step.name} has no cpu controller here"
            raise Unsupported(
                f"cpus={spec.cpus}: bounding processor time needs a control group ({why}); run as root, delegate cgroup v2 "
                "to this user (systemd-run --user --scope -p Delegate=yes), or leave cpus out"
            )

        if spec.uid_mode == "range" and self._step is None:
            raise Unsupported(
                f"uid_mode='range': the kernel counts processes by user, and only a control group counts those of many ({self.limits}); "
                "run as root, or delegate cgroup v2 to this user (systemd-run --user --scope -p Delegate=yes)"
            )

    def prefetch_move(self) -> None:
        """A birth is near: the kernel's wait before a move may begin (see `stir`)."""
        if self._step is not None:
            self._turns.submit(self._step.prefetch_move)

    def make(self, spec: SandboxSpec, parent: int = 0) -> ControlGroup:
        """A group with the spec's limits for one sandbox; what goes wrong comes with `ControlGroup.entered`. `parent`: the process that will bear
        it, if it is known; where that waits in a group already, it is that one."""
        assert self._step is not None, "ask `available` first"
        parts = self._step.parts(spec)
        spot = self._spots.get(parent)
        if spot is not None and (ready := spot.is_ready) is not None and len(parts) == len(spot.folders):
            del self._spots[parent]
            if ready:
                spot.claim(parts)
                return spot
        self.prefetch_move()
        return self._new(parts)

    def park(self, parent: int) -> None:
        """Have a process wait in the group of the next sandbox that it bears. 0: none."""
        if self._step is not None and parent and parent not in self._spots:
            spot = self._new(tuple(GroupFolder(part.parent, ()) for part in self._step.parts(SandboxSpec())))
            spot.park(parent)
            self._spots[parent] = spot

    def _new(self, parts: tuple[GroupFolder, ...]) -> ControlGroup:
        assert self._step is not None, "ask `available` first"
        group = ControlGroup(f"sandbox-{next(self._numbers)}", parts, self._step.deaths, self._turns)
        self._groups.add(group)
        group.on_removal = lambda: self._groups.discard(group)
        return group

    def close(self) -> None:
        """After the last sandbox of the pool."""
        self._turns.shutdown()
        step, self._step = self._step, None
        if step is None:
            return
        end_s = time.monotonic() + _END_S
        while time.monotonic() < end_s:
            self._groups = {group for group in self._groups if not group.try_to_remove()}
            if not self._groups and all([kernel.remove(pool) for pool in step.pools]):
                return
            time.sleep(0.005)


def _swept(step: GroupVersion) -> GroupVersion:
    for pool in step.pools:
        sweep(pool.parent)
    return step


def sweep(parent: Path) -> list[Path]:
    """Remove the groups below `parent` whose owners have died, as far as their processes have; says which. Idempotent."""
    swept: list[Path] = []
    try:
        pools = [one for one in parent.iterdir() if owner.is_dead(one.name)]
    except OSError:
        return swept
    for pool in pools:
        try:
            children = [one for one in pool.iterdir() if one.is_dir()]
            if all([kernel.remove(one) for one in children]) and kernel.remove(pool):
                swept.append(pool)
        except OSError:
            continue  # another user's, or another sweeper was faster
    return swept
