"""The control group of one sandbox: made before its birth, entered before it gets its spec, removed after its death.

Everything happens in order in one thread of the pool: the kernel makes a caller that moves a process wait 10 ms (a grace period of RCU, once
the machine has been quiet for 20 ms), and an event loop has better things to do. No caller waits for it twice: a sandbox is handed out
only after `entered`. Best is who is born inside: a process that bears sandboxes waits in the group of the next one (`park`), and what it
forks is there without a move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path

from etude.sandbox.errors import CapacityExhausted, SandboxDied
from etude.sandbox.limits import kernel, steps

_REMOVAL_PAUSES_S = (
    0.001,
    0.002,
    0.004,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.4,
)  # between attempts; the dead leave a group within ms


class ControlGroup:
    """`folders` are its own, one for v2 and one a controller for v1: the owner of a ledger records them."""

    def __init__(self, name: str, parts: tuple[steps.GroupFolder, ...], deaths: str, turns: Executor) -> None:
        self.name, self._parts, self._turns = name, parts, turns
        self.on_removal: Callable[[], None] = lambda: None
        self.folders = tuple(part.parent / name for part in parts)
        self._deaths = self.folders[0] / deaths
        self._killed = 0
        self._born_inside = False
        self._made = turns.submit(self._make)
        self._entered: Future[None] | None = None

    def park(self, parent: int) -> None:
        """Begin to move in the process that will bear what this group is for."""
        self._entered = self._turns.submit(self._enter, parent)

    @property
    def is_ready(self) -> bool | None:
        """Whether the parent is in: None as long as it is on its way."""
        if self._entered is None or not self._entered.done():
            return None
        return self._made.exception() is None and self._entered.exception() is None

    def claim(self, parts: tuple[steps.GroupFolder, ...]) -> None:
        """This group is for the parent's next child: these are its bounds."""
        self._parts, self._born_inside = parts, True
        self._made, self._entered = self._turns.submit(self._bound), None

    def enter(self, pidfd: int) -> None:
        """Begin to move a process in, unless it was born there; `entered` says how it went. Raises SandboxDied."""
        self._entered = self._turns.submit(self._enter, _pid(pidfd))

    async def require_entered(self) -> None:
        """Raises CapacityExhausted, SandboxDied."""
        assert self._entered is not None, "enter first"
        await asyncio.wrap_future(self._made)
        await asyncio.wrap_future(self._entered)

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel killed for memory since the last question."""
        before, self._killed = self._killed, kernel.counter(self._deaths, "oom_kill")
        return self._killed > before

    async def remove(self) -> None:
        """Idempotent. The pool's end removes what is still busy after a second, and what is created later."""
        for pause_s in (*_REMOVAL_PAUSES_S, 0.0):
            try:
                removed = await asyncio.wrap_future(self._turns.submit(self.try_to_remove))
            except RuntimeError:  # the thread has ended
                return
            if removed:
                self.on_removal()
                return
            await asyncio.sleep(pause_s)

    def try_to_remove(self) -> bool:
        return all([kernel.remove(folder) for folder in self.folders])

    def _make(self) -> None:
        try:
            for part, folder in zip(self._parts, self.folders, strict=True):
                kernel.make(folder)
                steps.bound(folder, part)
        except OSError as error:
            raise CapacityExhausted(f"control group {self.name}: {error.strerror}") from None

    def _bound(self) -> None:
        try:
            for part, folder in zip(self._parts, self.folders, strict=True):
                steps.bound(folder, part)
        except OSError as error:
            raise CapacityExhausted(f"control group {self.name}: {error.strerror}") from None

    def _enter(self, pid: int) -> None:
        if self._made.exception() is not None or (self._born_inside and self._holds(pid)):
            return  # `entered` raises it
        try:
            for folder in self.folders:
                kernel.write(folder / "cgroup.procs", str(pid))
        except ProcessLookupError:
            raise SandboxDied("the sandbox' first process died before it had its limits") from None
        except OSError as error:
            raise CapacityExhausted(f"control group {self.name}: {error.strerror}") from None

    def _holds(self, pid: int) -> bool:
        """Looked up, not believed: the parent may have been moved on before it bore this one."""
        try:
            lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        except OSError:
            return False
        return all(any(line.endswith(f"/{one.parent.name}/{one.name}") for line in lines) for one in self.folders) and (
            sum(line.endswith(f"/{self.name}") for line in lines) >= len(self.folders)
        )


def _pid(pidfd: int) -> int:
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines():
        if line.startswith("Pid:") and int(line.split()[1]) > 0:
            return int(line.split()[1])
    raise SandboxDied("the sandbox' first process died before it had its limits")
